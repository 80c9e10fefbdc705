"""The command to copy after a run that did not pass, for the page and the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pydantic import BaseModel

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.history.events import RunStarted
from gameday.values.results import Cleanliness

_AGAIN = {
    RunOutcome.ABORTED: "To run it again:",
    RunOutcome.REFUSED: "Once that is mended, run it again:",
    RunOutcome.FAILED: "To run it again:",
    RunOutcome.UNKNOWN: "To run it again:",
}
_EXAMINE = {
    RunOutcome.FAILED: "To find out what this cluster lacks to notice and to repair this fault:",
    RunOutcome.UNKNOWN: "To find out what could not be read on this cluster:",
}


class NextCommand(BaseModel):
    """A shell line, and the reason to run it."""

    why: str
    command: str


def next_command(started: RunStarted | None, result: RunResult, *, ended: bool) -> NextCommand | None:
    """Return what to do next; None for a run that passed on a clean cluster, still runs, or is unknown.

    A rehearsal's cluster ends with its run, so there is nothing left to undo or to examine.

    Args:
        started: The beginning of the run's history.
        result: How it ended.
        ended: True if it came to its end; False: it was killed, so the cluster's part in it is unknown.
    """
    if started is None or result.running:
        return None
    words = _words(started.command)
    if started.trigger == "rehearsal" and result.outcome in _EXAMINE and (watched := _with_a_detector(words)):
        why = "Nobody watched this rehearsal (--detector off). To run it with our node-health controller:"
        return NextCommand(why=why, command=shlex.join(watched))
    if started.trigger != "rehearsal" and result.cleanliness is not Cleanliness.CLEAN:
        why = "To undo what the run may have left, or to prove that nothing is left:"
        return NextCommand(why=why, command=shlex.join(["gameday", "reap", *_profile(words)]))
    if started.trigger != "rehearsal" and words[:2] == ["gameday", "run"] and result.outcome in _EXAMINE and ended:
        command = shlex.join(["gameday", "doctor", *words[2:3], *_profile(words)])
        return NextCommand(why=_EXAMINE[result.outcome], command=command)
    if result.outcome in _AGAIN:
        return NextCommand(why=_AGAIN[result.outcome], command=started.command)
    return None


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a history may hold anything: a quote that nothing closes
        return []


def _with_a_detector(words: Sequence[str]) -> list[str]:
    """Return the command without the option that switches off every detector; empty if it has none."""
    at = words.index("--detector") if "--detector" in words else len(words)
    return [*words[:at], *words[at + 2 :]] if words[at + 1 : at + 2] == ["off"] else []


def _profile(words: Sequence[str]) -> Sequence[str]:
    at = words.index("--profile") if "--profile" in words else len(words)
    return words[at : at + 2]
