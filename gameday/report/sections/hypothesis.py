"""The hypothesis, the fault that tests it, and how far into the machine the fault reaches."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from gameday.checks.fault_state import FaultState, fault_state
from gameday.history.events import FaultInjected, RecoveryDisturbed
from gameday.plan.purpose import Purpose
from gameday.report.run_folder import RunFolder

ORDER = 20
TITLE = "Purpose, hypothesis and fault"
GROUP = "Fault and signals"


class HypothesisAndFault(BaseModel):
    title: str | None
    hypothesis: str | None
    purpose: Purpose
    fault: dict[str, Any]
    went_in: FaultState
    injected: tuple[FaultInjected, ...]
    during: tuple[RecoveryDisturbed, ...]


def build(run: RunFolder) -> HypothesisAndFault:
    return HypothesisAndFault(
        title=run.plan.title if run.plan else None,
        hypothesis=run.plan.hypothesis if run.plan else None,
        purpose=run.plan.purpose if run.plan else Purpose(),
        fault=run.plan.fault.model_dump(mode="json") if run.plan else {},
        went_in=fault_state(run.history),
        injected=tuple(run.history.of(FaultInjected)),
        during=tuple(run.history.of(RecoveryDisturbed)),
    )
