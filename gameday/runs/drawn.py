"""The game-days that a random season drew: those that were played, and the others with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from gameday.checks.outcome import RunOutcome
from gameday.documents.fields import format_duration
from gameday.runs.pages import PageModel
from gameday.runs.run_row import JudgedRun
from gameday.runs.season_record import SeasonRecord

_NOT_PLAYED = "not played"


class DrawnGameDay(PageModel):
    """A game-day of a random season; seconds count from the moment at which the season began to play."""

    at_s: float
    """The time that was drawn for it."""
    plan: str
    targets: tuple[str, ...] = ()
    run_id: str = ""
    """Name of its run; empty if it had no time or no nodes."""
    began_s: float | None = None
    """Seconds at which it began; None if it was not played."""
    outcome: str = _NOT_PLAYED
    why: str = ""

    @property
    def began(self) -> bool:
        """True if it left a report, even if it was refused."""
        return self.outcome != _NOT_PLAYED

    @property
    def played(self) -> bool:
        """True if it began and was not refused."""
        return self.outcome not in (_NOT_PLAYED, RunOutcome.REFUSED)


def drawn_game_days(record: SeasonRecord, runs: Mapping[str, JudgedRun]) -> tuple[DrawnGameDay, ...]:
    """Return a random season's game-days in the order of their times; none for any other season.

    Args:
        record: The season.
        runs: Its runs that left a history, by run id.
    """
    if record.random is None:
        return ()
    found = [DrawnGameDay(at_s=one.at_s, plan=one.plan, why=one.why) for one in record.random.not_placed]
    for place in record.places:
        if place.drawn is None:
            continue
        known = DrawnGameDay(at_s=place.drawn.at_s, plan=place.plan, targets=place.targets, run_id=place.run_id)
        run = runs.get(place.run_id)
        update = _played(record, run) if run else {"why": record.why_not_begun(place)}
        found.append(known.model_copy(update=update))
    return tuple(sorted(found, key=lambda one: one.at_s))


def drawn_headline(record: SeasonRecord, drawn: tuple[DrawnGameDay, ...]) -> str:
    """Return a sentence on what was drawn and how much was played; empty for a season that is not random."""
    if record.random is None:
        return ""
    played = sum(one.played for one in drawn)
    asked = f"seed {record.seed}, budget {format_duration(record.random.budget)}"
    gap = f"mean gap {format_duration(record.random.mean_gap)}"
    return f"A random season ({asked}, {gap}): {len(drawn)} drawn, {played} played, {len(drawn) - played} not."


def _played(record: SeasonRecord, run: JudgedRun) -> dict[str, object]:
    began = next((row.started for row in run.row.rows), None)
    return {
        "began_s": (began - record.started).total_seconds() if began else None,
        "outcome": str(run.result.outcome),
        "why": "" if run.result.outcome is RunOutcome.PASSED else run.result.why,
    }
