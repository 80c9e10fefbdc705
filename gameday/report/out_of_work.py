"""Find out from a run's history how long its targets' GPUs were out of work."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from gameday.checks.facts import breaks_gpu_nodes, first_fault, not_yet
from gameday.checks.node_diff import node_snapshot
from gameday.history.events import CordonSeen, NodeReturned, Refused, RepairHopSeen, RunEnded, TaintSeen
from gameday.report.outage import OutOfWork
from gameday.report.run_folder import RunFolder
from gameday.values.results import RepairHop

_KEEPS_WORK_OFF = ("NoSchedule", "NoExecute")


class NodeOutage(NamedTuple):
    """A target's time out of work. `since` None: it stayed schedulable; `until` None: the history has no end of it."""

    node: str
    gpus: int | None
    since: datetime | None
    until: datetime | None
    why: str

    @property
    def gpu_hours(self) -> float | None:
        if self.why:
            return None
        if self.since is None or self.until is None or self.gpus is None:
            return 0.0
        return self.gpus * (self.until - self.since).total_seconds() / 3600


def node_outages(run: RunFolder) -> tuple[NodeOutage, ...]:
    """Return the outage of each target, by the rule `gameday.report.outage.RULE`."""
    return tuple(_outage(run, node) for node in run.target_names) if breaks_gpu_nodes(run.history) else ()


def out_of_work(run: RunFolder) -> OutOfWork:
    """Return the run's GPU time out of work. A refused run, or one that breaks no GPU node, lost none."""
    terms = run.started.outage_terms if run.started else None
    if run.history.last(Refused) or not breaks_gpu_nodes(run.history):
        return OutOfWork(gpu_hours=0.0, terms=terms)
    # The sum over runs is either of real GPUs or of virtual ones.
    outages = [one for one in node_outages(run) if run.is_virtual or one.node not in run.virtual_targets]
    if not outages:
        return OutOfWork(gpu_hours=None, why="the run ended before it chose a node", terms=terms)
    if whys := [f"{one.node}: {one.why}" for one in outages if one.why]:
        return OutOfWork(gpu_hours=None, why="; ".join(whys[:3]), terms=terms)
    return OutOfWork(
        gpu_hours=sum(one.gpu_hours or 0.0 for one in outages),
        gpus=sum(one.gpus or 0 for one in outages if one.since),
        terms=terms,
    )


def _outage(run: RunFolder, node: str) -> NodeOutage:
    before = node_snapshot(run.history, node, "before")
    gpus = before.allocatable_gpus if before else None
    since = _since(run, node)
    until = _until(run, node, since) if since else None
    return NodeOutage(node, gpus, since, until, _why_unknown(run, gpus, since, until))


def _why_unknown(run: RunFolder, gpus: int | None, since: datetime | None, until: datetime | None) -> str:
    if since is None:
        return "" if run.history.last(RunEnded) else not_yet(run.history, "before its end")
    if until is None:
        return "its return is not in the history"
    return "its number of GPUs is not in the history" if gpus is None else ""


def _since(run: RunFolder, node: str) -> datetime | None:
    """Return the moment of the fault or of an earlier cordon or taint; None if neither came."""
    closed = [
        seen.at
        for _, seen in run.history.about(TaintSeen, node)
        if seen.present and not seen.at_baseline and seen.taint.effect in _KEEPS_WORK_OFF
    ]
    closed += [seen.at for _, seen in run.history.about(CordonSeen, node) if seen.cordoned]
    fault = first_fault(run.history, node)
    if not closed:
        return None
    return min([*closed, *([fault[1].written_at] if fault else [])])


def _until(run: RunFolder, node: str, since: datetime) -> datetime | None:
    """Return when the node last took work again, given back by the run or by the cluster.

    If neither said so, as after an abort, it is when the last cordon or taint that kept work off was seen to go.
    """
    ends = [record.at for record, _ in run.history.about(NodeReturned, node)]
    ends += [seen.at for _, seen in run.history.about(RepairHopSeen, node) if seen.hop is RepairHop.RETURNED]
    return max((end for end in ends if end >= since), default=None) or _opened(run, node)


def _opened(run: RunFolder, node: str) -> datetime | None:
    """Return when the last cordon or taint that kept work off went; None while one is there."""
    opened: datetime | None = None
    closed: set[str] = set()
    for record in run.history.records:
        match record.event:
            case TaintSeen(node=where, taint=taint, present=there, at=at) if taint.effect in _KEEPS_WORK_OFF:
                what = str(taint)
            case CordonSeen(node=where, cordoned=there, at=at):
                what = "cordon"
            case _:
                continue
        if where == node:
            closed = closed | {what} if there else closed - {what}
            opened = None if closed else at
    return opened
