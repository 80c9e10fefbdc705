"""The run's record in the cluster: every mutation's intent and undo, written before the act, and the locks.

Anybody can finish a ledger that they find: the undo is data, not a function in a process that may be dead.
"""
