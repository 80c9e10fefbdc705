"""The plan's probes: how often each was asked, and its answers before, during and after the fault."""

from __future__ import annotations

from pydantic import BaseModel

from gameday.checks.facts import remediation_end, target_nodes
from gameday.history.events import FaultInjected, ProbeAnswered
from gameday.report.run_folder import RunFolder

ORDER = 76
TITLE = "Probes"
GROUP = "Fault and signals"


class Phase(BaseModel):
    """The answers of one phase; `detail` is from the last one that did not hold, else from the last one."""

    held: int
    failed: int
    unread: int
    detail: str


class ProbeRow(BaseModel):
    name: str
    asks: str
    before: Phase | None
    during: Phase | None
    after: Phase | None


class Probes(BaseModel):
    rows: tuple[ProbeRow, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.rows else "the plan asks no questions of its own"


def build(run: RunFolder) -> Probes:
    history = run.history
    begin = min((fault.written_at for fault in history.of(FaultInjected)), default=None)
    ends = [end.at for node in target_nodes(history) if (end := remediation_end(history, node))]
    groups: dict[tuple[str, str], list[ProbeAnswered]] = {}
    for event in history.of(ProbeAnswered):
        groups.setdefault((event.probe, event.asks), []).append(event)
    rows = []
    for (name, asks), events in groups.items():
        before = [one for one in events if begin is None or one.asked_at < begin]
        after = [one for one in events if ends and one.asked_at >= max(ends)]
        during = [one for one in events if one not in before and one not in after]
        rows.append(ProbeRow(name=name, asks=asks, before=_phase(before), during=_phase(during), after=_phase(after)))
    return Probes(rows=tuple(rows))


def _phase(events: list[ProbeAnswered]) -> Phase | None:
    if not events:
        return None
    amiss = [event for event in events if not event.holds]
    return Phase(
        held=len(events) - len(amiss),
        failed=len([event for event in amiss if event.holds is False]),
        unread=len([event for event in amiss if event.holds is None]),
        detail=(amiss or events)[-1].detail,
    )
