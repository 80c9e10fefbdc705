"""The detection chain as a waterfall: when each hop happened, how long it took, where it breaks, which was slowest."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from pydantic import BaseModel, Field

from gameday.checks.facts import first_fault, target_nodes
from gameday.checks.fault_state import FaultState, fault_state
from gameday.checks.verdict import Status
from gameday.history.events import AlertSeen, CordonSeen, HopSeen, StepStarted
from gameday.report.doctors_word import DoctorsWord
from gameday.report.noticed import first_taint, signal_verdicts
from gameday.report.run_folder import RunFolder
from gameday.report.ticks import Tick, time_ticks
from gameday.values.results import Hop, Step

ORDER = 50
TITLE = "Detection chain"
OPEN = True

CAUSES: dict[Hop, tuple[Hop, ...]] = {
    Hop.LOGGED: (Hop.WRITTEN,),
    Hop.NVML_EVENT: (Hop.LOGGED, Hop.WRITTEN),
    Hop.IN_LOG_STORE: (Hop.LOGGED, Hop.WRITTEN),
    Hop.DECIDED: (Hop.IN_LOG_STORE, Hop.LOGGED, Hop.WRITTEN),
    Hop.SAMPLED: (Hop.NVML_EVENT, Hop.DECIDED, Hop.IN_LOG_STORE, Hop.WRITTEN),
    Hop.RULE_PENDING: (Hop.SAMPLED, Hop.DECIDED, Hop.WRITTEN),
    Hop.RULE_FIRING: (Hop.RULE_PENDING, Hop.SAMPLED, Hop.WRITTEN),
    Hop.NOTIFIED: (Hop.RULE_FIRING, Hop.WRITTEN),
    Hop.TAINTED: (Hop.DECIDED, Hop.NOTIFIED, Hop.RULE_FIRING, Hop.IN_LOG_STORE, Hop.WRITTEN),
}
"""The possible causes of each hop: logs and metrics branch, so a hop's cause is not always the row above."""


OF_REAL_XIDS = (Hop.LOGGED, Hop.NVML_EVENT)
"""The hops that only a real Xid has, and only by the injector's word; others are not missing them."""
_LEAST_AXIS_S = 0.001
_TO_SIGNAL = {
    "alert-fires": (
        Hop.WRITTEN,
        Hop.IN_LOG_STORE,
        Hop.DECIDED,
        Hop.SAMPLED,
        Hop.RULE_PENDING,
        Hop.RULE_FIRING,
    ),
    "taint-set": (Hop.WRITTEN, Hop.IN_LOG_STORE, Hop.DECIDED, Hop.TAINTED),
}
"""The hops to an alert and to a taint, by the check on it."""


class Break(BaseModel):
    """The place where the chain ends before a signal that the plan expects."""

    after: str
    """The last hop that was seen on the way to the signal."""
    before: str
    """The next hop on that way, which was not seen."""
    missed: str
    """The expectation that did not hold."""


class HopRow(BaseModel):
    """`start_s` to `end_s` after the fault is the time of this hop; None if it was not seen."""

    hop: str
    at: datetime | None
    start_s: float | None
    end_s: float | None
    took_s: float | None
    since: str
    source: str
    slowest: bool = False


class Chain(BaseModel):
    node: str | None
    went_in: FaultState
    rows: tuple[HopRow, ...]
    total_s: float | None
    ticks: tuple[Tick, ...]
    slowest: str | None
    breaks: tuple[Break, ...] = ()


class Chains(BaseModel):
    chains: tuple[Chain, ...]
    doctor: DoctorsWord | None = Field(description="why it breaks; None if no chain does, or nobody was asked")


def build(run: RunFolder) -> Chains:
    chains = tuple(_with_pods(run, _chain(run, node)) for node in target_nodes(run.history))
    return Chains(chains=chains, doctor=run.doctors_word if any(chain.breaks for chain in chains) else None)


def _chain(run: RunFolder, node: str | None) -> Chain:
    seen: dict[Hop, HopSeen] = {}
    for event in run.history.of(HopSeen):
        if event.node == node and (event.hop not in seen or event.at < seen[event.hop].at):
            seen[event.hop] = event
    seen = {**_hops_by_other_events(run, node), **seen}
    zero = seen[Hop.WRITTEN].at if Hop.WRITTEN in seen else None
    rows = [_row(hop, seen, zero) for hop in Hop if hop in seen or hop not in OF_REAL_XIDS]
    took = {row.hop: row.took_s for row in rows if row.took_s is not None and row.hop != Hop.WRITTEN}
    breaks = _breaks(run, node, seen) if zero else ()
    # The slowest of the hops that came means nothing if others did not come.
    slowest = max(took, key=lambda hop: took[hop]) if took and not breaks else None
    rows = [row.model_copy(update={"slowest": row.hop == slowest}) for row in rows]
    ends = [row.end_s for row in rows if row.end_s is not None]
    # An unseen hop is shown as such; but if nothing was seen at all, there is no chain to draw.
    total_s = max(ends, default=None)
    return Chain(
        node=node,
        went_in=fault_state(run.history, node),
        rows=tuple(rows) if seen else (),
        total_s=total_s,
        ticks=tuple(time_ticks(0.0, max(total_s or 0.0, _LEAST_AXIS_S))),
        slowest=slowest,
        breaks=breaks,
    )


def _breaks(run: RunFolder, node: str | None, seen: Collection[Hop]) -> tuple[Break, ...]:
    """Return the breaks before the expected signals that did not come, one for each place."""
    found: dict[tuple[Hop, Hop], Break] = {}
    for verdict in signal_verdicts(run):
        way = _TO_SIGNAL.get(verdict.check, ())
        missed = verdict.status is Status.BROKEN and verdict.seconds is None and verdict.node == node
        if not way or not missed or way[-1] in seen:
            continue
        last = max(place for place, hop in enumerate(way) if hop in seen)
        place = way[last], way[last + 1]
        found.setdefault(place, Break(after=place[0], before=place[1], missed=verdict.expectation))
    return tuple(found.values())


def _with_pods(run: RunFolder, chain: Chain) -> Chain:
    """Return the chain with the pods' reaction, if there was any: the first GPU pod that left before the recovery.

    It does not count for the chain's length: how long a pod takes to go is its own affair.
    """
    tainted = next((row for row in chain.rows if row.hop == Hop.TAINTED and row.at), None)
    if tainted is None or tainted.at is None or tainted.end_s is None:
        return chain
    pods = run.frames.pods
    starts = [record.at for record, event in run.history.with_times(StepStarted) if event.step is Step.RECOVER]
    end = min(starts, default=run.history.records[-1].at)
    left = pods[(pods["node"] == chain.node) & (pods["gpus"] > 0) & ~pods["phase"].isin(("Pending", "Running"))]
    ours = f"gd-{run.started.run_id}-" if run.started else "gd-"
    left = left[left["time"].between(tainted.at, end) & ~left["pod"].str.startswith(ours)].sort_values("time")
    if left.empty:
        return chain
    at: datetime = left["time"].iloc[0].to_pydatetime(warn=False)
    took_s = (at - tainted.at).total_seconds()
    row = HopRow(
        hop="pods reacted",
        at=at,
        start_s=tainted.end_s,
        end_s=tainted.end_s + took_s,
        took_s=took_s,
        since=tainted.hop,
        source=f"watch of the pods; {left['pod'].iloc[0]} {str(left['phase'].iloc[0]).lower()}",
    )
    return chain.model_copy(update={"rows": (*chain.rows, row)})


def _hops_by_other_events(run: RunFolder, node: str | None) -> dict[Hop, HopSeen]:
    """Return hops that have no record of their own, by the first sighting in other events."""
    fault = first_fault(run.history, node)
    if fault is None or node is None:
        return {}
    found = [HopSeen(hop=Hop.WRITTEN, node=node, at=fault[1].written_at, source="agent")]
    for alert in run.history.of(AlertSeen):
        hop = {"pending": Hop.RULE_PENDING, "firing": Hop.RULE_FIRING}.get(alert.state)
        if hop and alert.node == node and alert.expected and not alert.at_baseline:
            found.append(HopSeen(hop=hop, node=node, at=alert.at, source=f"alert {alert.alert}"))
    if taint := first_taint(run, node):
        source = f"{taint.manager or 'Kubernetes'}, {taint.taint}"
        found.append(HopSeen(hop=Hop.TAINTED, node=node, at=taint.at, source=source))
    elif cordon := _first_cordon(run, node, since=fault[1].written_at):
        found.append(HopSeen(hop=Hop.TAINTED, node=node, at=cordon.at, source="Kubernetes, cordoned"))
    return {hop.hop: hop for hop in sorted(found, key=lambda hop: hop.at, reverse=True)}


def _first_cordon(run: RunFolder, node: str, since: datetime) -> CordonSeen | None:
    """Return the first cordon between the fault and the recover step, which cordons nodes itself."""
    recovers = [record.at for record, event in run.history.with_times(StepStarted) if event.step is Step.RECOVER]
    end = min(recovers, default=None)
    cordons = [seen for _, seen in run.history.about(CordonSeen, node) if seen.cordoned and seen.at >= since]
    return next((seen for seen in cordons if end is None or seen.at < end), None)


def _row(hop: Hop, seen: dict[Hop, HopSeen], zero: datetime | None) -> HopRow:
    event = seen.get(hop)
    if event is None or zero is None:
        return HopRow(hop=hop, at=None, start_s=None, end_s=None, took_s=None, since="", source="")
    earlier = [c for c in CAUSES.get(hop, ()) if c in seen and seen[c].at <= event.at]
    cause = max(earlier, key=lambda c: seen[c].at, default=None)
    begin = seen[cause].at if cause else event.at
    return HopRow(
        hop=hop,
        at=event.at,
        start_s=(begin - zero).total_seconds(),
        end_s=(event.at - zero).total_seconds(),
        # No duration for a hop that is dated before all its causes: the clocks disagree.
        took_s=(event.at - begin).total_seconds() if cause or hop is Hop.WRITTEN else None,
        since=str(cause) if cause else "",
        source=event.source,
    )
