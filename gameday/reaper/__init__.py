"""Everything about dead and late runs: undo what they left, write it down, keep others off their nodes."""
