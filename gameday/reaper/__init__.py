"""Everything about runs that died or came late: find, undo, write down, and keep others away from their nodes."""
