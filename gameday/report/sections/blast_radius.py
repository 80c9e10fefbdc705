"""The limits of what the game-day might touch, what it did touch, and what else changed meanwhile."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.checks.facts import first_few, seconds_text
from gameday.checks.fault_state import FaultState, fault_state
from gameday.checks.node_diff import node_snapshot
from gameday.history.events import (
    AlertSeen,
    AllocatableSeen,
    ConditionSeen,
    FaultInjected,
    GpuIdentity,
    GpusIdentified,
    IntentRecorded,
    RunEnded,
    TaintSeen,
    TargetsChosen,
    WorkloadSeen,
)
from gameday.report.run_folder import RunFolder
from gameday.values.nodes import NODE_LIFECYCLE_DOMAIN

ORDER = 85
TITLE = "Blast radius"
GROUP = "GPUs, node and pods"

PRODUCT_LABELS = {
    "nvidia.com/gpu.product": "GPU model",
    "nvidia.com/cuda.driver-version.full": "driver",
    "nvidia.com/cuda.runtime-version.full": "CUDA",
    "nvidia.com/mig.strategy": "MIG strategy",
}
"""Labels of NVIDIA's GPU feature discovery that say what was broken."""


class BoundedRow(BaseModel):
    """`planned` is the most that the plan allows; empty if it sets no limit. `over` None: not measured."""

    what: str
    planned: str
    actual: str | None
    over: bool | None
    note: str = ""


class Hardware(BaseModel):
    node: str
    facts: dict[str, str]
    gpus: tuple[GpuIdentity, ...] = Field(description="by dcgm-exporter's labels; those a fault was aimed at first")
    aimed: tuple[str, ...] = Field(description="indices of the GPUs a fault was aimed at")


class Collateral(BaseModel):
    node: str
    what: tuple[str, ...]


class BlastRadius(BaseModel):
    rows: tuple[BoundedRow, ...]
    hardware: tuple[Hardware, ...]
    pods: tuple[WorkloadSeen, ...]
    made: tuple[str, ...] = Field(description="pods and jobs of the run itself")
    collateral: tuple[Collateral, ...]


def build(run: RunFolder) -> BlastRadius:
    intents = run.history.of(IntentRecorded)
    return BlastRadius(
        rows=(_nodes(run), _gpus(run), _duration(run), _pods(run)),
        hardware=tuple(_hardware(run, node) for node in run.target_names),
        pods=tuple(run.history.of(WorkloadSeen)),
        made=tuple(intent.object for intent in intents if intent.object.lower().startswith(("pod/", "job/"))),
        collateral=_collateral(run),
    )


def _nodes(run: RunFolder) -> BoundedRow:
    broken = list(dict.fromkeys(fault.target.node for fault in run.history.of(FaultInjected)))
    limit = run.plan.targets.nodes if run.plan else None
    if (chosen := run.history.last(TargetsChosen)) and chosen.domain:
        limit = len(chosen.targets)  # the plan names a share of a domain, and not a number
    return BoundedRow(
        what="Nodes with a fault",
        planned=str(limit) if limit is not None else "",
        actual=_so_far(run, str(len(broken))),
        over=len(broken) > limit if limit is not None else None,
        note=first_few(broken, 8),
    )


def _gpus(run: RunFolder) -> BoundedRow:
    """Count the GPUs: a quarantine takes all of a node's GPUs out of work, even if only one was broken."""
    limit = run.plan.guardrails.max_gpus if run.plan else None
    out = [(node, gpus) for node in _quarantined(run) if (gpus := _offered(run, node)) is not None]
    count = sum(gpus for _, gpus in out)
    aimed = [fault.target for fault in run.history.of(FaultInjected) if fault.target.gpu is not None]
    broken = [f"GPU {target.gpu} of {target.node}" for target in aimed]
    known = len(out) == len(_quarantined(run))
    return BoundedRow(
        what="GPUs taken out of work",
        planned=str(limit) if limit is not None else "",
        actual=_so_far(run, str(count)) if known else None,
        over=count > limit if limit is not None and known else None,
        note=f"broken: {first_few(broken, 8)}" if broken else "",
    )


def _duration(run: RunFolder) -> BoundedRow:
    records = run.history.records
    limit = run.plan.guardrails.max_duration.total_seconds() if run.plan else None
    took = (records[-1].at - records[0].at).total_seconds() if records else None
    return BoundedRow(
        what="The whole run",
        planned=f"{limit:g} s" if limit is not None else "",
        actual=seconds_text(took) if took is not None and took >= 0 else None,
        over=took > limit if took is not None and limit is not None else None,
    )


def _so_far(run: RunFolder, count: str) -> str | None:
    """Return a note for an incomplete count: the run has no start, was cut off, or did not hear of its fault."""
    if run.started is None:
        return None
    return (
        count
        if run.history.last(RunEnded) and fault_state(run.history) is not FaultState.POSSIBLE
        else f"at least {count}"
    )


def _pods(run: RunFolder) -> BoundedRow:
    """Return the other workload on the targets: what the plan wants kept of it, and what happened to it."""
    running = [seen for seen in run.history.of(WorkloadSeen) if seen.purpose == "running"]
    wanted = run.plan.expect.workloads.running_pods if run.plan else ""
    kept = sum(seen.phase == "Running" for seen in running)
    namespaces = sorted({seen.pod.partition("/")[0] for seen in running if "/" in seen.pod})
    return BoundedRow(
        what="GPU pods of others on the targets",
        planned=wanted,
        actual=f"{kept} of {len(running)} still running when recovery began" if running else None,
        over=None,
        note=f"namespaces: {first_few(namespaces, 6)}" if namespaces else "",
    )


def _quarantined(run: RunFolder) -> dict[str, datetime]:
    """Return the targets that got somebody's taint, and since when."""
    since: dict[str, datetime] = {}
    for seen in run.history.of(TaintSeen):
        lifecycle = seen.taint.key.startswith(NODE_LIFECYCLE_DOMAIN)
        if seen.present and not lifecycle and seen.node in run.target_names:
            since[seen.node] = min(seen.at, since.get(seen.node, seen.at))
    return since


def _offered(run: RunFolder, node: str) -> int | None:
    before = node_snapshot(run.history, node, "before")
    return before.allocatable_gpus if before else None


def _hardware(run: RunFolder, node: str) -> Hardware:
    before = node_snapshot(run.history, node, "before")
    labels = before.labels if before else {}
    facts = {word: labels[label] for label, word in PRODUCT_LABELS.items() if label in labels}
    if before and before.allocatable_gpus is not None:
        facts["GPUs offered"] = str(before.allocatable_gpus)
    aimed = {str(fault.target.gpu) for fault in run.history.of(FaultInjected) if fault.target.node == node}
    seen = next((event.gpus for event in run.history.of(GpusIdentified) if event.node == node), ())
    gpus = tuple(sorted(seen, key=lambda gpu: gpu.gpu not in aimed))
    return Hardware(node=node, facts=facts, gpus=gpus, aimed=tuple(sorted(aimed - {"None"})))


def _collateral(run: RunFolder) -> tuple[Collateral, ...]:
    """Return the nodes that were no target but showed something new during the run."""
    found: dict[str, dict[str, None]] = {}

    def note(node: str | None, what: str) -> None:
        if node and node not in run.target_names:
            found.setdefault(node, {})[what] = None

    for alert in run.history.of(AlertSeen):
        if not alert.at_baseline and alert.state == "firing":
            note(alert.node, f"alert {alert.alert}")
    for taint in run.history.of(TaintSeen):
        note(taint.node, f"taint {taint.taint} {'put on' if taint.present else 'taken off'}")
    for condition in run.history.of(ConditionSeen):
        note(condition.node, f"condition {condition.condition} {condition.status or 'gone'}")
    for offered in run.history.of(AllocatableSeen):
        note(offered.node, f"{'no' if offered.gpus is None else offered.gpus} GPUs offered")
    return tuple(Collateral(node=node, what=tuple(what)) for node, what in found.items())
