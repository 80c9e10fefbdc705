"""The hypothesis table: each expectation, its bound, what was measured, and what that means."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.checks.verdict import Verdict
from gameday.history.events import DetectorConsulted
from gameday.report.run_folder import RunFolder
from gameday.report.sections.timeline import shown_records

ORDER = 30
TITLE = "Expectations"
OPEN = True

_SAID_BY = {
    "taint-set": "taints",
    "cordoned": "cordoned",
    "condition-set": "conditions",
    "condition-clears": "conditions",
    "label-set": "labels",
    "event-written": "events",
    "allocatable-falls": "allocatable_falls",
    "allocatable-returns": "allocatable_falls",
    "stays-schedulable": "stays_schedulable_for",
}
"""Keys of the plan's `expect` by the check that judges them, for those that a detector's profile can fill."""


class ExpectationsSection(BaseModel):
    verdicts: tuple[Verdict, ...]
    on_timeline: frozenset[int] = Field(exclude=True)
    """Records that have a row in the timeline, so that evidence links lead somewhere."""
    detector: DetectorConsulted | None
    """The profile the plan was completed with; None if the plan names no detector."""
    from_profile: tuple[str, ...]
    """Checks with expectations from the profile and not from the plan."""


def build(run: RunFolder) -> ExpectationsSection:
    consulted = run.history.last(DetectorConsulted)
    filled = consulted.filled if consulted else ()
    from_profile = tuple(check for check, key in _SAID_BY.items() if key in filled)
    return ExpectationsSection(
        verdicts=run.verdicts, on_timeline=shown_records(run), detector=consulted, from_profile=from_profile
    )
