"""The run's record in the cluster: every mutation's intent and undo, written before the act, and the locks.

Anybody who finds a ledger can finish it: the undo is data, not a function in a process that may be dead.
"""
