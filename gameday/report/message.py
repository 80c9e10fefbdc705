"""A run's message to people in a chat or a mail: the outcome, why, the figures, the link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gameday.checks.facts import seconds_text
from gameday.checks.outcome import RunOutcome
from gameday.report.safe_text import cut, visible
from gameday.report.summary import Summary
from gameday.values.results import Cleanliness

_LONGEST = 400
"""Characters of one sentence; a phone shows about as much."""
# Chats give `<…>` and `@…` a meaning (a mention of everybody among them), also in a plan's title.
_TAME = str.maketrans({"<": "‹", ">": "›", "@": "＠", "`": "'"})


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)

    subject: str
    body: str


def worth_telling(run: Summary, before: Summary | None, on: Literal["red or change", "every run"]) -> bool:
    """`before` is the same plan's run before this one, None if there was none."""
    red = run.outcome is not RunOutcome.PASSED or run.cleanliness is not Cleanliness.CLEAN
    changed = before is not None and before.outcome is not run.outcome
    return on == "every run" or red or changed


def message(run: Summary, before: Summary | None, link: str) -> Message:
    """Plain text in which nothing can become a mention, a link or markup but the report's own link."""
    dirty = "" if run.cleanliness is Cleanliness.CLEAN else f", CLUSTER {run.cleanliness.upper()}"
    subject = f"{run.outcome.upper()}{dirty}: {run.title}"
    lines = [_line(run.why)]
    if before and before.outcome is not run.outcome:
        lines.append(f"Changed: the run before ({before.started:%Y-%m-%d %H:%M} UTC) {before.outcome}.")
    measured = [f"{n.measure} {seconds_text(n.seconds)}" for n in run.numbers if n.seconds is not None]
    if measured:
        lines.append(f"Measured: {', '.join(measured)}.")
    lines.append(_line(f"{run.plan} on {run.place}, run {run.run_id}, targets {', '.join(run.targets) or 'none'}"))
    return Message(subject=_line(subject), body="\n".join([*lines, link]))


def notice(subject: str, lines: Sequence[str]) -> Message:
    """Return a message that is about no run's outcome, in the same plain text."""
    return Message(subject=_line(subject), body="\n".join(map(_line, lines)))


def _line(text: str) -> str:
    return visible(cut(" ".join(text.split()), _LONGEST)).translate(_TAME)
