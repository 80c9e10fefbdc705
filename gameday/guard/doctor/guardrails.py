"""The guardrails, measured as before a fault."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.guard.check import check_all
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets


def check_guardrails(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that each guardrail with a limit is kept; without targets none is measured."""
    if not targets:
        yield Prerequisite("guardrails", "all", None, "not checked without targets", "see to the targets first")
        return
    for checked in check_all(run, targets):
        found = checked.measurement
        detail = "; ".join(filter(None, (found.why, f"limit: {checked.limit}")))
        yield Prerequisite("guardrails", checked.name, found.ok, detail, "" if found.ok else found.hint, found.value)
