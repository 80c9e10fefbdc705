"""Stored runs for the matrix: the report's passing run, under plans and with signals of one's choice."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gameday.checks.outcome import fold_outcome
from gameday.checks.run import run_checks
from gameday.faults.registry import parameter_models
from gameday.history.events import Event, FaultInjected, HopSeen, RunStarted
from gameday.history.frames import Frames
from gameday.plan.load import parse_plan
from gameday.plan.models import Plan
from gameday.report.run_folder import RunFolder
from gameday.values.results import Hop
from tests.report.run_builder import FAULT_AT, NODE, Timed, at, history_of, passing, replacing, write

TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule", "within": "15s"}


def plan(name: str = "lost", fault: dict[str, Any] | None = None, **expect: Any) -> Plan:
    content: dict[str, Any] = {
        "apiVersion": "gameday/v1",
        "name": name,
        "title": f"The fault {name}",
        "hypothesis": "Somebody notices.",
        "fault": fault or {"type": "xid", "xid": 79},
        "expect": expect or {"alerts": [{"name": "GpuXidCritical", "within": "30s"}], "taints": [TAINT]},
    }
    return parse_plan(json.dumps(content).encode(), "plan.yaml", parameter_models()).plan


def stored(
    plan: Plan, timed: Iterable[Timed] | None = None, frames: Frames | None = None, run_id: str = "r1"
) -> RunFolder:
    """A run as `load_run` gives it."""
    events = replacing(timed if timed is not None else passing(), lambda e: isinstance(e, RunStarted), run_id=run_id)
    history, kept = history_of(events), frames or Frames()
    verdicts = tuple(run_checks(plan, history, kept))
    return RunFolder(
        plan=plan,
        plan_text="",
        history=history,
        frames=kept,
        verdicts=verdicts,
        result=fold_outcome(history, verdicts),
        files=(),
        problems=(),
    )


def seen(seconds: float, event: Event) -> Timed:
    """An event so many seconds after the fault went in."""
    return Timed(FAULT_AT + seconds, event)


def hop(which: Hop, seconds: float) -> Timed:
    return seen(seconds, HopSeen(hop=which, node=NODE, at=at(FAULT_AT + seconds), source="test"))


def no_fault(event: Event) -> bool:
    return isinstance(event, FaultInjected)


def run_named(folder: Path, id: str, events: list[Timed] | None = None) -> Path:
    """Write a run of this id into a folder of its own, and return that."""
    timed = replacing(events or passing(), lambda e: isinstance(e, RunStarted), run_id=id)
    return write(folder / id, timed)
