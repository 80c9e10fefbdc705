"""Pure checkers: (plan, history, frames) -> verdict. No client, no clock, no socket.

One file per check; every module here that defines `check` is found and run.
"""
