"""The people: who had which part, when somebody took the alert and acted, and how far the runbook was followed."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.checks.facts import seconds_text
from gameday.history.events import AlertSeen
from gameday.report.notes import Acknowledged, HumanEvent, People, Runbook
from gameday.report.run_folder import RunFolder
from gameday.values.dated import CLOCK_TOLERANCE_S

ORDER = 102
TITLE = "People"
GROUP = "People and earlier runs"


class PeopleSection(BaseModel):
    """Seconds are None if one of the two instants is unknown, or if the clocks clearly disagree (`doubt`)."""

    problem: str
    said: bool = Field(description="true if anybody wrote anything here")
    summary: str | None
    impact: str | None
    authors: tuple[str, ...]
    people: People
    alert: str | None = Field(description="the first alert that fired, from which acknowledging is counted")
    alert_at: datetime | None
    acknowledged: Acknowledged | None
    to_acknowledge_s: float | None
    first_action: HumanEvent | None
    to_first_action_s: float | None
    doubt: str
    runbook: Runbook
    runbook_of_alert: str | None = Field(description="the alert's own annotation runbook_url")
    fidelity: float | None = Field(description="share of the judged steps that were followed, 0 to 1")

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return (
            ""
            if self.said or self.problem
            else "nobody has written down yet who was there, and which steps of the runbook were followed"
        )


def build(run: RunFolder) -> PeopleSection:
    notes, alert = run.notes, _first_alert(run)
    to_acknowledge, late = _since(alert, notes.acknowledged)
    to_first_action, late_too = _since(alert, notes.first_action)
    written = (notes.summary, notes.impact, notes.authors, notes.acknowledged, notes.first_action)
    book = notes.runbook
    return PeopleSection(
        problem=run.notes_problem,
        said=any(written) or any(notes.people.model_dump().values()) or bool(book.link or book.steps),
        summary=notes.summary or None,
        impact=notes.impact or None,
        authors=notes.authors,
        people=notes.people,
        alert=alert.alert if alert else None,
        alert_at=alert.at if alert else None,
        acknowledged=notes.acknowledged,
        to_acknowledge_s=to_acknowledge,
        first_action=notes.first_action,
        to_first_action_s=to_first_action,
        doubt=late or late_too,
        runbook=book,
        runbook_of_alert=alert.annotations.get("runbook_url") if alert else None,
        fidelity=book.fidelity,
    )


def _first_alert(run: RunFolder) -> AlertSeen | None:
    """Return the first alert that people could have seen, the plan's own before others."""
    fired = [alert for alert in run.history.of(AlertSeen) if alert.state == "firing" and not alert.at_baseline]
    return min(fired, key=lambda alert: (not alert.expected, alert.at), default=None)


def _since(alert: AlertSeen | None, event: Acknowledged | HumanEvent | None) -> tuple[float | None, str]:
    """Return the seconds after the alert, or why they are unknown."""
    if alert is None or event is None:
        return None, ""
    seconds = (event.at - alert.at).total_seconds()
    if seconds < -CLOCK_TOLERANCE_S:
        return None, f"noted {seconds_text(-seconds)} before {alert.alert} fired: one of the two times is wrong"
    return max(0.0, seconds), ""
