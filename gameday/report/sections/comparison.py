"""This run beside the last ones of its plan: what became slower, and what held before and does not now."""

from __future__ import annotations

import difflib

from pydantic import BaseModel, Field

from gameday.checks.verdict import Status
from gameday.report.compare import FEWEST_RUNS, LEAST_S, OVER_PEAK, Trend, trends
from gameday.report.durations import durations
from gameday.report.run_folder import RunFolder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary

ORDER = 105
TITLE = "Comparison"
GROUP = "People and earlier runs"

MOST_PLAN_LINES = 600
"""The most lines of a plan for a comparison: its time grows with the product of the lines."""


class Changed(BaseModel):
    """A check with another verdict than in the previous run; None: it was not judged there, or is missing here."""

    check: str
    before: Status | None
    now: Status | None


class Comparison(BaseModel):
    """`runs` has the earlier ones, oldest first, and this one last."""

    runs: tuple[Summary, ...]
    trends: tuple[Trend, ...]
    changed: tuple[Changed, ...]
    plan_changed: bool
    plan_diff: tuple[str, ...] = Field(description="lines of a unified diff from the previous run's plan to this one's")
    fewest_runs: int = FEWEST_RUNS
    over_peak: float = OVER_PEAK
    least_s: float = LEAST_S

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return (
            "" if len(self.runs) > 1 else "no earlier run of this plan has a readable report beside this run's folder"
        )


def build(run: RunFolder) -> Comparison:
    now = summarise(run)
    previous = run.earlier[-1] if run.earlier else None
    return Comparison(
        runs=(*run.earlier, *([now] if now else ())),
        trends=trends(durations(run), run.earlier),
        changed=_changed(previous, now) if previous and now else (),
        plan_changed=bool(previous and now and previous.plan_sha256 != now.plan_sha256),
        plan_diff=_plan_diff(run.previous_plan_text, run.plan_text),
    )


def _plan_diff(before: str, now: str) -> tuple[str, ...]:
    """Return the difference of two plans; empty if one is unknown, or longer than a person would write."""
    if not before or not now or max(before.count("\n"), now.count("\n")) > MOST_PLAN_LINES:
        return ()
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "previous run", "this run", lineterm="", n=2)
    return tuple(lines)


def _changed(before: Summary, now: Summary) -> tuple[Changed, ...]:
    checks = dict.fromkeys([*now.checks, *before.checks])
    found = [Changed(check=check, before=before.checks.get(check), now=now.checks.get(check)) for check in checks]
    return tuple(change for change in found if change.before != change.now)
