"""The exit codes of every command and of every run: one table that scripts and schedulers can rely on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code.

    DIRTY wins over every other outcome, because something is left in the cluster. PASSED, FAILED, ABORTED and REFUSED
    promise a clean cluster; UNKNOWN does not.
    """

    PASSED = 0
    """The hypothesis held and the cluster is clean; for other commands: done."""
    FAILED = 1
    """An expectation was broken; the cluster is clean."""
    UNKNOWN = 2
    """An expectation could not be judged, or an undo could not be verified."""
    ABORTED = 3
    """A guardrail or the operator (Ctrl-C included) stopped the run; the cluster is clean."""
    DIRTY = 4
    """Something is known to be left in the cluster."""
    REFUSED = 5
    """The cluster was not fit for the run; nothing was changed."""
    USAGE = 64
    """The command line or a file given to it is wrong, a plan included (sysexits.h EX_USAGE)."""
    INTERNAL = 70
    """A bug in gameday itself (sysexits.h EX_SOFTWARE)."""
