"""How every command ends: one table, so that scripts and schedulers can rely on it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """DIRTY beats every other outcome: whatever else a run found, something is left in the cluster. HELD, BROKEN,
    ABORTED and REFUSED promise that nothing is; UNKNOWN does not."""

    HELD = 0
    """The hypothesis held and the cluster is clean; for other commands: done."""
    BROKEN = 1
    """An expectation was broken; the cluster is clean."""
    UNKNOWN = 2
    """Something could not be told: an expectation, or whether all is undone."""
    ABORTED = 3
    """Stopped by a guard or by the operator (Ctrl-C included); the cluster is clean."""
    DIRTY = 4
    """Something is known to be left in the cluster."""
    REFUSED = 5
    """The cluster was not fit for the run; nothing was changed."""
    USAGE = 64
    """The command line or a file given to it is wrong, a plan included (sysexits.h EX_USAGE)."""
    INTERNAL = 70
    """A fault in gameday itself (sysexits.h EX_SOFTWARE)."""


class CommandError(Exception):
    """Ends a command with a message a person can act on, and its exit code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.code = code
