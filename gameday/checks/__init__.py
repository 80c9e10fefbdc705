"""Pure checkers: (plan, history, frames) -> verdicts. No client, no clock, no socket.

One file for a check or a few related ones; what an expectation brings is judged in its own folder. Every module that
defines `check`, here and there, is found and run (see `run`).
`facts` and `node_diff` hold what several checks need; `outcome` folds the verdicts into the run's outcome.
"""
