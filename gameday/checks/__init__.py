"""Pure checkers: (plan, history, frames) -> verdicts. No client, no clock, no socket.

One file for a check or a few related ones. Every module here that defines `check` is found and run (see `run`).
`facts` and `node_diff` hold what several checks need; `outcome` folds the verdicts into the run's outcome.
"""
