"""An incident's folder as the collector leaves it: an Xid 95, an alert, a taint, and what each server said."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gameday.history.events import RECORD, AlertSeen, Event, KernelLineSeen, NodeSeen, Record, TaintSeen, TargetsChosen
from gameday.history.frames import Frames, conform
from gameday.post_mortem.incident import Incident, SilenceSeen, SourceReading, SourceState
from gameday.values.nodes import Taint, Target
from tests.report.run_builder import NODE, START, TAINT, snapshot

LINE = "NVRM: Xid (PCI:0000:61:00): 95, pid='<unknown>', name=<unknown>, Uncontained: FBHUB"
READ = {
    "kernel log (Loki)": SourceState.READ,
    "alerts (Prometheus)": SourceState.READ,
    "taint history (kube-state-metrics)": SourceState.READ,
    "the node (Kubernetes)": SourceState.READ,
}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def xid(seconds: float = 10.0, code: int = 95, decision: str = "quarantine", line: str = LINE) -> KernelLineSeen:
    return KernelLineSeen(
        node=NODE, family="xid", code=code, pci="0000:61:00", decision=decision, reason="Uncontained", line=line,
        at=at(seconds),
    )  # fmt: skip


def alert(seconds: float = 12.0, state: str = "firing", **more: object) -> AlertSeen:
    labels = {"alertname": "GPUXidCritical", "severity": "critical", "node": NODE}
    return AlertSeen(
        alert="GPUXidCritical", state=state, labels=labels, node=NODE, expected=True, at=at(seconds), **more
    )


def taint(seconds: float = 11.0, present: bool = True, key: str = TAINT.key) -> TaintSeen:
    which = Taint(key=key, value="true", effect="NoSchedule")
    return TaintSeen(node=NODE, taint=which, present=present, manager="gameday-health", at=at(seconds))


def incident(sources: dict[str, SourceState] | None = None, silences: Sequence[SilenceSeen] = ()) -> Incident:
    return Incident(
        id="incident-x", node=NODE, start=START, end=at(600), collected_at=at(700), operator="ada",
        cluster="prod (https://k8s.example)", cluster_uid="u", server_version="v1.37.1", gameday_version="0.1.0",
        command="gameday post-mortem", quarantine_keys=(TAINT.key,),
        sources=tuple(SourceReading(name=n, state=s, detail="d") for n, s in (READ | (sources or {})).items()),
        silences=tuple(silences),
    )  # fmt: skip


def write_incident(folder: Path, events: Sequence[Event], which: Incident | None = None) -> Path:
    folder.mkdir(parents=True)
    which = which or incident()
    recorded = [TargetsChosen(targets=(Target(node=NODE),), candidates=1, rule="named by hand", seed=0), *events]
    dated = sorted(((getattr(event, "at", which.start), event) for event in recorded), key=lambda pair: pair[0])
    records = [
        Record(seq=i, at=when, monotonic=(when - which.start).total_seconds(), boot="post-mortem", event=event)
        for i, (when, event) in enumerate(dated)
    ]
    (folder / "history.jsonl").write_bytes(b"".join(RECORD.dump_json(record) + b"\n" for record in records))
    (folder / "incident.json").write_text(which.model_dump_json())
    Frames(pods=pods()).save(folder / "frames")
    return folder


def pods() -> object:
    row = {"time": START, "namespace": "training", "pod": "llm-0", "node": NODE, "phase": "Running", "gpus": 8}
    return conform("pods", [row])


USUAL: tuple[Event, ...] = (
    xid(), alert(), taint(), alert(60, "resolved"), taint(50, present=False),
    NodeSeen(phase="after", snapshot=snapshot()),
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_incident(tmp_path / "reports" / "incident-x", USUAL)
