"""Open a run and close it: locks, ledger, the undo that is never skipped, and the last look."""
