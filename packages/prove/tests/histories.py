"""Histories of proofs, built in code."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.detectors.load import load_detector
from gameday.history.events import ConditionSeen, CordonSeen, Event, KubernetesEventSeen, Record, TaintSeen
from gameday.history.journal import History
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness
from gameday_prove.events import ProveAlertSeen, ProveEnded, ProveLinePlayed, ProveLooked
from gameday_prove.lines import lines_for
from gameday_prove.values import Installed, LoadedRule, Monitoring, NodeFound, Posture, Surroundings

START = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
NODE = "gpu-1"
CONDITION_RULE = LoadedRule(
    name="GPUBroken", query='kube_node_status_condition{condition="GPUXidFault",status="true"} == 1'
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def monitoring(*rules: LoadedRule) -> Monitoring:
    return Monitoring(path="/p", service="monitoring/prometheus", rules=rules, all_rules=90)


def history(
    *events: Event,
    detectors: Sequence[str] = ("node-problem-detector",),
    blind: Sequence[str] = (),
    posture: Posture = Posture.QUIET,
    prometheus: Monitoring | None = None,
    played: int = 3,
    ended: bool = True,
    **end: Any,
) -> History:
    """Return a proof in which a line is played every 100 s, the first at 0 s, and these events come."""
    lines = tuple(lines_for(posture, [load_detector(name) for name in detectors]))
    around = Surroundings(
        server="https://c.example",
        version="v1.37.1",
        nodes=(NodeFound(name=NODE, gpus="8 gpu"),),
        node=NODE,
        image="busybox:1",
        detectors=tuple(
            Installed(detector=name, title=name, found_by=f"DaemonSet ns/{name}", blind=tuple(blind))
            for name in detectors
        ),
        prometheus=prometheus,
    )
    whole: list[tuple[datetime, Event]] = [(at(-1), ProveLooked(posture=posture, surroundings=around, lines=lines))]
    for line in lines[:played]:
        record = f"<3>kernel: NVRM: Xid (PCI:0000:1b:00): {line.xid}, x"
        when = at(100.0 * (line.number - 1))
        note = ProveLinePlayed(line=line.number, at=when, record=record, gpu="0000:1b:00", missing=False)
        whole.append((when, note))
    whole += [(event.at, event) for event in events if hasattr(event, "at")]
    if ended:
        gone = {"cleanliness": Cleanliness.CLEAN, "evidence": ("namespace gameday-prove is gone",)} | end
        whole.append((at(400), ProveEnded(**gone)))
    whole.sort(key=lambda one: one[0])
    records = [
        Record(seq=number, at=when, monotonic=(when - START).total_seconds() + 10, boot="b", event=event)
        for number, (when, event) in enumerate(whole)
    ]
    return History(tuple(records))


def condition(seconds: float, status: str = "True", name: str = "GPUXidFault") -> ConditionSeen:
    return ConditionSeen(node=NODE, condition=name, status=status, reason="GPUXidHardware", at=at(seconds))


def event(seconds: float, reason: str = "GPUXidHardware", source: str = "kernel-monitor") -> KubernetesEventSeen:
    return KubernetesEventSeen(node=NODE, reason=reason, type="Warning", source=source, message="m", at=at(seconds))


def taint(seconds: float, key: str = "trainy.konduktor.ai/faulty", *, present: bool = True) -> TaintSeen:
    found = Taint(key=key, value="true", effect="NoSchedule")
    return TaintSeen(node=NODE, taint=found, present=present, manager="some-controller", at=at(seconds))


def cordon(seconds: float, manager: str = "kubectl") -> CordonSeen:
    return CordonSeen(node=NODE, cordoned=True, manager=manager, at=at(seconds))


def alert(seconds: float, name: str = "GPUBroken", state: Any = "firing") -> ProveAlertSeen:
    return ProveAlertSeen(alert=name, state=state, at=at(seconds))
