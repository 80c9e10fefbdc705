"""Pure checkers: (plan, history, frames) -> verdicts. No client, no clock, no socket.

One file per check or tightly related family; every module here that defines
`check` is found and run (see `run`). `facts` and `residue` are what the checks
share, `outcome` folds their verdicts.
"""
