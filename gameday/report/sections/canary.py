"""The canary job's figures before, during and after the fault: the only signal of a fault that merely slows down."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.history.events import CanaryMeasured
from gameday.report.run_folder import RunFolder

ORDER = 75
TITLE = "Canary"
GROUP = "Fault and signals"


class Phase(BaseModel):
    """The newest measurement of one phase, of `n`."""

    value: float | None
    ok: bool | None
    n: int
    detail: str


class CanaryRow(BaseModel):
    node: str
    measure: str
    unit: str
    bound: str
    before: Phase | None
    during: Phase | None
    after: Phase | None
    change_percent: float | None = Field(description="during against before; None if either was not measured")


class Canaries(BaseModel):
    rows: tuple[CanaryRow, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.rows else "no canary job ran beside this fault"


def build(run: RunFolder) -> Canaries:
    groups: dict[tuple[str, str], list[CanaryMeasured]] = {}
    for event in run.history.of(CanaryMeasured):
        groups.setdefault((event.node, event.measure), []).append(event)
    return Canaries(rows=tuple(_row(node, measure, events) for (node, measure), events in groups.items()))


def _row(node: str, measure: str, events: list[CanaryMeasured]) -> CanaryRow:
    before, during, after = (
        _phase([event for event in events if event.phase == name]) for name in ("before", "during", "after")
    )
    change = None
    if before and during and before.value and during.value is not None:
        change = 100 * (during.value - before.value) / before.value
    return CanaryRow(
        node=node,
        measure=measure,
        unit=events[-1].unit,
        bound=next((event.bound for event in reversed(events) if event.bound), ""),
        before=before,
        during=during,
        after=after,
        change_percent=change,
    )


def _phase(events: list[CanaryMeasured]) -> Phase | None:
    if not events:
        return None
    newest = events[-1]
    return Phase(value=newest.value, ok=newest.ok, n=len(events), detail=newest.detail)
