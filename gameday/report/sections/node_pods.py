"""The target node over time: its readiness, the GPUs that it offered, and its pods with their states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import target_nodes
from gameday.history.events import AllocatableSeen, ConditionSeen, NodeSeen
from gameday.report.charts import Drawing, counts, dodge
from gameday.report.run_folder import RunFolder
from gameday.report.sections.gpus import MOST_NODES, Moment, moments_of, scene_of

ORDER = 72
TITLE = "Node and pods"
GROUP = "GPUs, node and pods"

MOST_PODS = 60
_COUNTED = ("Running", "Pending")


class PodPhase(BaseModel):
    offset_s: float
    phase: str


class PodRow(BaseModel):
    """A pod of the node, with every state that the run's watch saw, in order of time."""

    pod: str
    gpus: int | None
    states: tuple[PodPhase, ...]


class Count(BaseModel):
    """A count over time; `changes` are (seconds since T+0, count from then on) per name."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    title: str
    unit: str
    source: str
    changes: dict[str, tuple[tuple[float, float], ...]]
    drawing: Drawing | None = Field(exclude=True)


class NodePods(BaseModel):
    """`not_ready` has stretches in seconds since T+0, the last one to the run's end if it never was Ready again."""

    node: str
    ready_known: bool
    not_ready: tuple[tuple[float, float], ...]
    counts: tuple[Count, ...]
    moments: tuple[Moment, ...]
    pods: tuple[PodRow, ...]
    pods_left_out: int


class NodesPods(BaseModel):
    nodes: tuple[NodePods, ...]
    nodes_left_out: int

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.nodes else "no target was chosen"


def build(run: RunFolder) -> NodesPods:
    nodes = [node for node in target_nodes(run.history) if node]
    return NodesPods(
        nodes=tuple(_node(run, node) for node in nodes[:MOST_NODES]), nodes_left_out=max(0, len(nodes) - MOST_NODES)
    )


def _node(run: RunFolder, node: str) -> NodePods:
    pods = _pods(run, node)
    found = moments_of(run, node)
    offsets = [run.offset_s(record.at) for record in run.history.records]
    scene = scene_of((min(offsets), max(offsets)), run.fault_window(node), found, None)
    series = [
        ("GPUs the kubelet offers", "GPUs", "the node's status.allocatable", _named("Offered", _offered(run, node))),
        ("Pods on the node", "pods", "the run's watch of the node's pods", _by_phase(pods)),
        ("GPUs asked for by running pods", "GPUs", "the same watch", _named("In use", _in_use(pods))),
    ]
    drawn = []
    for title, unit, source, changes in series:
        rows = [{"gpu": name, "t": t, "value": n} for name, steps in changes.items() for t, n in steps]
        drawing = counts(pd.DataFrame(rows), replace(scene, target_gpu=next(iter(changes)))) if rows else None
        drawn.append(Count(title=title, unit=unit, source=source, changes=changes, drawing=drawing))
    pods.sort(key=lambda pod: (-(pod.gpus or 0), pod.pod))
    return NodePods(
        node=node,
        ready_known=any(seen.snapshot.node == node for seen in run.history.of(NodeSeen)),
        not_ready=_not_ready(run, node, max(offsets)),
        counts=tuple(drawn),
        moments=tuple(Moment(letter=m.letter, label=m.label, offset_s=m.at_s) for m in dodge(found, scene.span)),
        pods=tuple(pods[:MOST_PODS]),
        pods_left_out=max(0, len(pods) - MOST_PODS),
    )


def _named(name: str, steps: tuple[tuple[float, float], ...]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Return the steps by name, or nothing if nothing was seen, which is not the same as none."""
    return {name: steps} if steps else {}


def _pods(run: RunFolder, node: str) -> list[PodRow]:
    frame = run.frames.pods
    rows = frame[(frame["node"] == node) & frame["time"].notna()].sort_values("time", kind="stable")
    states: dict[tuple[str, str], list[PodPhase]] = {}
    gpus: dict[tuple[str, str], int | None] = {}
    columns = (rows["time"], rows["namespace"], rows["pod"], rows["phase"], rows["gpus"])
    for time, namespace, pod, phase, held in zip(*columns, strict=True):
        at: datetime = time.to_pydatetime(warn=False)
        states.setdefault((namespace, pod), []).append(PodPhase(offset_s=run.offset_s(at), phase=str(phase)))
        gpus[namespace, pod] = None if pd.isna(held) else int(held)
    return [PodRow(pod=f"{of[0]}/{of[1]}", gpus=gpus[of], states=tuple(seen)) for of, seen in states.items()]


def _by_phase(pods: Iterable[PodRow]) -> dict[str, tuple[tuple[float, float], ...]]:
    """Return the count of pods in each phase worth counting at each change; empty if no pod was seen."""
    moves = sorted((state.offset_s, pod.pod, state.phase) for pod in pods for state in pod.states)
    phase_of: dict[str, str] = {}
    steps: dict[str, dict[float, float]] = {phase: {} for phase in _COUNTED}
    for t, pod, phase in moves:
        phase_of[pod] = phase
        now = Counter(phase_of.values())
        for counted in _COUNTED:
            steps[counted][t] = now[counted]
    return {phase: _changes(found) for phase, found in steps.items()} if moves else {}


def _in_use(pods: Iterable[PodRow]) -> tuple[tuple[float, float], ...]:
    """Return the GPUs of running pods, at each change."""
    moves = sorted((state.offset_s, pod.pod, pod.gpus or 0, state.phase) for pod in pods for state in pod.states)
    held: dict[str, int] = {}
    steps: dict[float, float] = {}
    for t, pod, gpus, phase in moves:
        held[pod] = gpus if phase == "Running" else 0
        steps[t] = sum(held.values())
    return _changes(steps)


def _offered(run: RunFolder, node: str) -> tuple[tuple[float, float], ...]:
    steps: dict[float, float] = {}
    for record, seen in run.history.with_times(NodeSeen):
        if seen.snapshot.node == node and seen.snapshot.allocatable_gpus is not None:
            steps[run.offset_s(record.at)] = seen.snapshot.allocatable_gpus
    for changed in run.history.of(AllocatableSeen):
        if changed.node == node and changed.gpus is not None:
            steps[run.offset_s(changed.at)] = changed.gpus
    return _changes(steps)


def _changes(steps: dict[float, float]) -> tuple[tuple[float, float], ...]:
    """Return the changes in order of time, without repeats of the same value."""
    found: list[tuple[float, float]] = []
    for t, value in sorted(steps.items()):
        if not found or found[-1][1] != value:
            found.append((t, value))
    return tuple(found)


def _not_ready(run: RunFolder, node: str, end_s: float) -> tuple[tuple[float, float], ...]:
    seen = [event for event in run.history.of(ConditionSeen) if event.node == node and event.condition == "Ready"]
    stretches: list[tuple[float, float]] = []
    since: float | None = None
    for event in sorted(seen, key=lambda event: event.at):
        t = run.offset_s(event.at)
        if event.status != "True":
            since = t if since is None else since
        elif since is not None:
            stretches.append((since, t))
            since = None
    return (*stretches, *([(since, max(since, end_s))] if since is not None else []))
