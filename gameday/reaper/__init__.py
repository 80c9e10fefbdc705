"""Everything about runs that died or came late: undo what they left, write it down, keep others off their nodes."""
