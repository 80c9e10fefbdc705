"""Histories and run folders built in code: one complete passing game-day with realistic times, and its variants.

`python -m tests.report.run_builder FOLDER [VARIANT]` writes one for looking at.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from gameday.history.events import (
    RECORD,
    AlertSeen,
    ApiCost,
    Event,
    FaultInjected,
    FaultUndone,
    HopSeen,
    IntentRecorded,
    NodeReturned,
    NodeSeen,
    QaChecked,
    Record,
    Remediated,
    RunEnded,
    RunStarted,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TaintSeen,
    TargetsChosen,
    WaitStarted,
    WorkloadSeen,
)
from gameday.history.frames import SCHEMAS, Frames, conform
from gameday.history.journal import History
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan
from gameday.values.nodes import NodeSnapshot, Taint, Target
from gameday.values.results import Cleanliness, Hop, Step, StepOutcome

START = datetime(2026, 3, 3, 9, 0, 0, tzinfo=UTC)
FAULT_AT = 9.4
NODE, GPU = "gpu-node-03", 5
TARGET = Target(node=NODE, gpu=GPU)
TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")
ALERT = "GpuXidCritical"

PLAN_YAML = """\
apiVersion: gameday/v1
name: gpu-fell-off-the-bus
title: A GPU falls off the bus
hypothesis: >
  When a GPU falls off the bus (Xid 79), GpuXidCritical fires for its node within 30 s, the node is tainted within
  15 s so that no new GPU work lands there, and after a reboot and QA it takes work again.
fault:
  type: xid
  xid: 79
  hold: 60s
targets:
  nodes: 1
  seed: 7
baseline:
  window: 60s
expect:
  alerts:
    - name: GpuXidCritical
      within: 30s
      labels: {severity: critical}
      resolves_within: 30s
  taints:
    - key: trainy.konduktor.ai/faulty
      value: "true"
      effect: NoSchedule
      within: 15s
  workloads:
    running_pods: kept
recover:
  remediation: reboot
  within: 2m
"""

PLAN = Plan.model_validate(
    {
        "apiVersion": "gameday/v1",
        "name": "gpu-fell-off-the-bus",
        "title": "A GPU falls off the bus",
        "hypothesis": (
            "When a GPU falls off the bus (Xid 79), GpuXidCritical fires for its node within 30 s, the node is tainted "
            "within 15 s so that no new GPU work lands there, and after a reboot and QA it takes work again."
        ),
        "fault": {"type": "xid", "hold": "60s"},
        "targets": {"nodes": 1, "seed": 7},
        "baseline": {"window": "60s"},
        "expect": {
            "alerts": [
                {"name": ALERT, "within": "30s", "labels": {"severity": "critical"}, "resolves_within": "30s"},
            ],
            "taints": [{"key": TAINT.key, "value": TAINT.value, "effect": TAINT.effect, "within": "15s"}],
            "workloads": {"running_pods": "kept"},
        },
        "recover": {"remediation": "reboot", "within": "2m"},
    },
    context={"faults": {"xid": FaultParameters}},
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@dataclasses.dataclass(frozen=True)
class Timed:
    """An event and the run's second it was written down at."""

    seconds: float
    event: Event


def history_of(timed: Iterable[Timed], boot: str = "boot-a") -> History:
    ordered = sorted(timed, key=lambda t: t.seconds)
    return History(
        tuple(
            Record(seq=seq, at=at(t.seconds), monotonic=1000 + t.seconds, boot=boot, event=t.event)
            for seq, t in enumerate(ordered)
        )
    )


def snapshot(*, tainted: bool = False, boot: str = "c0ffee-1", cordoned: bool = False, **labels: str) -> NodeSnapshot:
    return NodeSnapshot(
        node=NODE,
        resource_version="4711",
        unschedulable=cordoned,
        taints=(TAINT,) if tainted else (),
        labels={"nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "8", "gameday.dev/opt-in": "true", **labels},
        annotations={"node.alpha.kubernetes.io/ttl": "0"},
        conditions={"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"},
        boot_id=boot,
        allocatable_gpus=8,
    )


def qa_events(bad: dict[tuple[str, int | None], bool | None] | None = None) -> list[QaChecked]:
    """152-odd results as an agent prints them; `bad` overrides `ok` of some."""
    bad = bad or {}
    rng = random.Random(3)
    rows = [
        QaChecked(node=NODE, gpu=None, check="gpu count", value=8.0, bound="= 8", ok=True, seconds=0.1),
        QaChecked(node=NODE, gpu=None, check="driver", value="570.86.15", bound="", ok=True, seconds=0.1),
        QaChecked(node=NODE, gpu=None, check="kernel log", value="no Xid since boot", bound="no Xid", ok=True),
    ]
    table: list[tuple[str, str, str, Callable[[], float | str]]] = [
        ("ECC double-bit", "", "= 0", lambda: 0.0),
        ("row remap pending", "", "no", lambda: "no"),
        ("row remap failure", "", "no", lambda: "no"),
        ("NVLinks active", "", ">= 18", lambda: 18.0),
        ("PCIe generation", "", ">= 5", lambda: 5.0),
        ("PCIe width", "lanes", ">= 16", lambda: 16.0),
        ("SM clock", "MHz", ">= 1700", lambda: float(rng.randrange(1755, 1981, 15))),
        ("temperature", "°C", "<= 93", lambda: float(rng.randint(34, 41))),
        ("GEMM BF16", "TFLOP/s", ">= 650", lambda: rng.uniform(688, 731)),
        ("memory bandwidth", "GB/s", ">= 2600", lambda: rng.uniform(2780, 2930)),
    ]
    for check, unit, bound, value in table:
        for gpu in range(8):
            rows.append(QaChecked(node=NODE, gpu=gpu, check=check, value=value(), unit=unit, bound=bound, ok=True))
    return [
        row.model_copy(
            update={"ok": bad[row.check, row.gpu], **({"value": None} if bad[row.check, row.gpu] is None else {})}
        )
        if (row.check, row.gpu) in bad
        else row
        for row in rows
    ]


def _alert(state: str, seconds: float, **more: object) -> Timed:
    event = AlertSeen(
        alert=ALERT,
        state=state,
        labels={"alertname": ALERT, "severity": "critical", "node": NODE, "xid": "79"},
        annotations={"summary": f"Xid 79 on {NODE}: GPU has fallen off the bus"},
        node=NODE,
        expected=True,
        at=at(seconds),
        **more,
    )
    return Timed(seconds + 0.3, event)


def _steps() -> list[Timed]:
    bounds = [
        (Step.BASELINE, 0.4, 7.9, 60.0),
        (Step.INJECT, 8.0, 9.9, 60.0),
        (Step.AWAIT_ALERT, 10.0, 16.2, 30.0),
        (Step.VERIFY_TAINT, 16.3, 21.0, 30.0),
        (Step.RECOVER, 21.1, 34.6, 120.0),
        (Step.QA_NODE, 34.7, 46.2, 600.0),
    ]
    return [
        timed
        for step, start, end, deadline in bounds
        for timed in (
            Timed(start, StepStarted(step=step, deadline_s=deadline)),
            Timed(end, StepEnded(step=step, outcome=StepOutcome.DONE)),
        )
    ]


def _intents() -> list[Timed]:
    expires = at(600)
    made = [
        ("i1", 8.1, "run the injector pod", "delete the pod", "Pod/gameday/inject-7f3a", NODE),
        ("i2", 8.2, "write Xid 79 to the kernel log", "nothing stays in on the host", NODE, NODE),
        ("i3", 16.5, "ask for a canary GPU pod on the node", "delete the pod", "Pod/gameday/canary-7f3a", None),
        ("i4", 16.6, "resubmit a GPU job", "delete the job", "Job/gameday/resubmit-7f3a", None),
    ]
    undone = [
        ("i1", 22.4, "pod is gone: 404 on reading back"),
        ("i2", 22.3, "before: 0 such records; written: 1; after: 1, expected to stay until reboot"),
        ("i3", 46.0, "pod is gone: 404 on reading back"),
        ("i4", 46.1, "job is gone: 404 on reading back"),
    ]
    return [
        Timed(s, IntentRecorded(intent=i, act=act, undo=undo, object=obj, node=node, expires=expires))
        for i, s, act, undo, obj, node in made
    ] + [
        Timed(
            s,
            FaultUndone(
                intent=i,
                node=NODE if i in ("i1", "i2") else None,
                by="flow",
                cleanliness=Cleanliness.CLEAN,
                evidence=(line,),
            ),
        )
        for i, s, line in undone
    ]


def _chain() -> list[Timed]:
    hops = [
        (Hop.WRITTEN, 0.0, "agent"),
        (Hop.IN_LOG_STORE, 0.61, "loki"),
        (Hop.DECIDED, 0.83, "gameday-health"),
        (Hop.SAMPLED, 1.92, "prometheus"),
        (Hop.RULE_PENDING, 2.4, "prometheus"),
        (Hop.RULE_FIRING, 5.4, "prometheus"),
        (Hop.NOTIFIED, 6.13, "alertmanager"),
        (Hop.TAINTED, 0.97, "gameday-health"),
    ]
    return [
        Timed(FAULT_AT + s + 0.2, HopSeen(hop=hop, node=NODE, at=at(FAULT_AT + s), source=source))
        for hop, s, source in hops
    ]


def passing() -> list[Timed]:
    """Every event of a run in which all held."""
    evidence = (
        "before: 0 such record(s) in the kernel log",
        "written x1: <3>NVRM: Xid (PCI:0000:ab:00): 79, pid=<unknown>, name=<unknown>, GPU has fallen off the bus.",
        "after: 1 such record(s) in the kernel log",
    )
    gates = [
        ("node Ready", "Ready=True, 8 of 8 GPUs allocatable", None),
        ("no unexpected taint", "no taint", None),
        ("alert rule exists", f"{ALERT} is loaded and healthy", None),
        ("alert is silent", "not firing, not pending", None),
        ("log path", "marker found in the log store", 0.58),
    ]
    returned = "running on the node, 1 GPU"
    return [
        Timed(
            0.0,
            RunStarted(
                run_id="20260303-090000-7f3a",
                plan_name=PLAN.name,
                plan_sha256=hashlib.sha256(PLAN_YAML.encode()).hexdigest(),
                gameday_version="0.1.0",
                trigger="rehearsal",
                operator="ada",
                cluster="rehearsal",
                cluster_uid="5b0e9c3e-8a1f-4f2c-9f0e-2d6f1f0f7a11",
                server_version="v1.33.1",
                flow_run_id="0f5c2a5e-6f0d-4a53-9a39-2f0f4a3f1f10",
                command="gameday rehearse plans/gpu-fell-off-the-bus.yaml",
            ),
        ),
        *_steps(),
        Timed(0.9, TargetsChosen(targets=(TARGET,), candidates=8, rule="from 8 opted-in nodes (seed 7)", seed=7)),
        *(
            Timed(1.2 + i, SteadyStateChecked(name=name, ok=True, detail=detail, node=NODE, seconds=seconds))
            for i, (name, detail, seconds) in enumerate(gates)
        ),
        Timed(7.0, NodeSeen(phase="before", snapshot=snapshot())),
        *_intents(),
        Timed(
            9.7,
            FaultInjected(
                intent="i2",
                target=TARGET,
                fault="xid",
                layer="kernel log",
                written_at=at(FAULT_AT),
                evidence=evidence,
                does_not_reach="NVML, DCGM's counters and dcgm-exporter's metrics: only the log says the GPU is lost",
                seen_by=("gameday node-health controller", "Konduktor (dmesg -w to Loki)", "gpud (/dev/kmsg)"),
            ),
        ),
        *_chain(),
        Timed(10.1, WaitStarted(step=Step.AWAIT_ALERT, what=f"{ALERT} for {NODE}", deadline_s=30)),
        _alert("pending", FAULT_AT + 2.4),
        _alert("firing", FAULT_AT + 5.4, receivers=("gameday",)),
        Timed(
            2.0,
            AlertSeen(
                alert="Watchdog", state="firing", labels={"alertname": "Watchdog", "severity": "none"}, node=None,
                expected=False, at=at(-300), at_baseline=True,
            ),
        ),
        Timed(10.6, TaintSeen(node=NODE, taint=TAINT, present=True, manager="gameday-health", at=at(FAULT_AT + 0.97))),
        Timed(16.4, NodeSeen(phase="during", snapshot=snapshot(tainted=True))),
        Timed(19.9, _pod("canary", "canary-7f3a", None, "Pending", "unscheduled", "FailedScheduling: taint")),
        Timed(20.4, _pod("resubmitted", "resubmit-7f3a-0", "gpu-node-06", "Running", "runs elsewhere", "after 2.1 s")),
        Timed(20.8, _pod("running", "train-llm-0", NODE, "Running", "kept", "still running")),
        Timed(31.2, Remediated(node=NODE, action="reboot", ok=True, detail="new boot id, node Ready", seconds=8.7)),
        _alert("resolved", 34.0),
        *(Timed(35.6 + i * 0.09, event) for i, event in enumerate(qa_events())),
        Timed(44.0, NodeReturned(node=NODE, removed_taints=(TAINT,), uncordoned=False)),
        Timed(44.1, TaintSeen(node=NODE, taint=TAINT, present=False, manager="gameday", at=at(44.05))),
        Timed(45.6, _pod("return", "return-7f3a", NODE, "Succeeded", "runs on the node", returned)),
        Timed(45.9, NodeSeen(phase="after", snapshot=snapshot(boot="c0ffee-2"))),
        *_costs(),
        Timed(46.4, RunEnded(cleanliness=Cleanliness.CLEAN)),
    ]  # fmt: skip


def _costs() -> list[Timed]:
    kube = {"GET nodes": 4, "WATCH pods": 1, "WATCH nodes": 1, "POST pods": 5, "DELETE pods": 5, "PATCH nodes": 1}
    kube |= {"GET pods/log": 4, "PATCH configmaps": 8, "PUT leases": 2}
    costs = [
        ("kubernetes", 214_330, 18_204, kube),
        ("prometheus", 91_204, 6_100, {"GET query": 14, "GET query_range": 6, "GET rules": 2}),
        ("alertmanager", 5_120, 1_020, {"GET alerts": 4, "GET silences": 1}),
        ("loki", 8_800, 1_300, {"GET query_range": 6}),
    ]
    return [
        Timed(46.3, ApiCost(server=s, requests=sum(by.values()), bytes_received=got, bytes_sent=sent, by_call=by))
        for s, got, sent, by in costs
    ]


def _pod(purpose: str, pod: str, node: str | None, phase: str, wanted: str, detail: str) -> WorkloadSeen:
    return WorkloadSeen(purpose=purpose, pod=pod, node=node, phase=phase, wanted=wanted, ok=True, detail=detail)


def without(timed: Iterable[Timed], *unwanted: Callable[[Event], bool]) -> list[Timed]:
    return [t for t in timed if not any(test(t.event) for test in unwanted)]


def replacing(timed: Iterable[Timed], test: Callable[[Event], bool], **update: object) -> list[Timed]:
    """The same events, those that pass the test with some fields changed."""
    return [Timed(t.seconds, t.event.model_copy(update=update)) if test(t.event) else t for t in timed]


def cut_off(timed: Iterable[Timed], seconds: float) -> list[Timed]:
    """What a run killed at this second has left."""
    return [t for t in timed if t.seconds <= seconds]


def ended(timed: Iterable[Timed], step: Step, outcome: StepOutcome, why: str = "") -> list[Timed]:
    return replacing(timed, lambda e: isinstance(e, StepEnded) and e.step == step, outcome=outcome, why=why)


def detector_off() -> list[Timed]:
    """The controller is switched off: the line reaches the log store, and nothing follows."""
    timed = without(
        passing(),
        lambda e: isinstance(e, (AlertSeen, TaintSeen)) and not getattr(e, "at_baseline", False),
        lambda e: isinstance(e, HopSeen) and e.hop not in (Hop.WRITTEN, Hop.IN_LOG_STORE),
        lambda e: isinstance(e, WorkloadSeen) and e.purpose == "canary",
        lambda e: isinstance(e, NodeSeen) and e.phase == "during",
        lambda e: isinstance(e, NodeReturned),
    )
    timed.append(Timed(16.4, NodeSeen(phase="during", snapshot=snapshot())))
    landed = _pod("canary", "canary-7f3a", NODE, "Running", "stays unscheduled", "it was scheduled")
    timed.append(Timed(19.9, landed.model_copy(update={"ok": False})))
    timed = ended(timed, Step.AWAIT_ALERT, StepOutcome.BROKEN, f"{ALERT} did not fire for {NODE} within 30 s")
    return ended(timed, Step.VERIFY_TAINT, StepOutcome.BROKEN, "no taint within 15 s")


def frames(seconds: float = 46.4, every: float = 1.0) -> Frames:
    """A living node: training on eight GPUs; the target cools and idles from the fault to the job's return."""
    return Frames(metrics=_metrics(seconds, every).copy())


@cache
def _metrics(seconds: float, every: float) -> pd.DataFrame:
    rng = random.Random(11)
    rows: list[dict[str, object]] = []
    t = -60.0
    while t < seconds:
        for gpu in range(8):
            if 22.5 < t <= 31.0:
                continue  # rebooting: no samples
            idle = t > 31.0
            lost = gpu == GPU and t > FAULT_AT + 1
            busy = 0.0 if idle or lost else 0.92 + 0.06 * math.sin(t / 5 + gpu)
            since = max(0.0, t - (31.0 if idle else FAULT_AT + 1)) if idle or lost else 0.0
            heat = 31 + gpu * 0.8 + 37 * (busy or (0.2 if idle else 1) * math.exp(-since / 14))
            values = {
                "DCGM_FI_DEV_GPU_TEMP": round(heat + rng.gauss(0, 0.4)),
                "DCGM_FI_DEV_POWER_USAGE": 88 + 560 * busy + rng.gauss(0, 7),
                "DCGM_FI_DEV_GPU_UTIL": round(100 * busy),
                "DCGM_FI_DEV_SM_CLOCK": 1980 if busy > 0.9 else 1965 if busy else 345,
                "DCGM_FI_DEV_FB_USED": 71_300 + gpu * 12 + rng.gauss(0, 60) if not idle else 480 + gpu,
                "DCGM_FI_DEV_XID_ERRORS": 79 if gpu == GPU and FAULT_AT + 1 < t < 31 else 0,
                "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
            }
            rows += [
                {"time": pd.Timestamp(at(t)), "node": NODE, "gpu": str(gpu), "metric": name, "value": float(value)}
                for name, value in values.items()
            ]
        t += every
    return conform("metrics", rows)


def write(folder: Path, timed: Iterable[Timed], frames_: Frames | None = None, plan: Plan | None = PLAN) -> Path:
    """A run folder as a run leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.yaml").write_text(PLAN_YAML)
    if plan:
        (folder / "plan.json").write_text(plan.model_dump_json())
    lines = [RECORD.dump_json(record) for record in history_of(timed).records]
    (folder / "history.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    if frames_ is not None:
        _save(frames_, folder / "frames")
    return folder


def _save(frames_: Frames, folder: Path) -> None:
    """Save the frames; those of a run that measured nothing are encoded once for all tests."""
    if any(len(getattr(frames_, name)) for name in SCHEMAS):
        frames_.save(folder)
        return
    folder.mkdir(exist_ok=True)
    for name, content in _empty_frames().items():
        (folder / name).write_bytes(content)


@cache
def _empty_frames() -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        Frames().save(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


VARIANTS: dict[str, Callable[[], list[Timed]]] = {
    "passing": passing,
    "detector-off": detector_off,
    "killed": lambda: cut_off(passing(), 12.5),
}

if __name__ == "__main__":
    write(Path(sys.argv[1]), VARIANTS[sys.argv[2] if len(sys.argv) > 2 else "passing"](), frames())
