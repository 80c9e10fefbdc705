"""The temporary changes of the cluster: intents, faults and their undo."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.history.events.model import EventModel
from gameday.values.memory import MemoryBlocks
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness


class IntentRecorded(EventModel):
    """Written to the ledger before the act it announces."""

    kind: Literal["intent_recorded"] = "intent_recorded"
    intent: str = Field(description="id, unique within the run")
    act: str
    undo: str
    object: str = Field(description="kind/namespace/name, or a node's name for host state")
    node: str | None = None
    expires: AwareDatetime


class FaultInjected(EventModel):
    kind: Literal["fault_injected"] = "fault_injected"
    intent: str
    target: Target
    fault: str
    layer: str
    written_at: AwareDatetime = Field(description="as the agent on the node read its clock")
    evidence: tuple[str, ...]
    does_not_reach: str = Field(default="", description="the fault's own word, so that a report needs no fault code")
    seen_by: tuple[str, ...] = Field(default=(), description="detectors that could see it; the fault's own word")
    memory: MemoryBlocks | None = Field(default=None, description="of a fault that holds a GPU's memory")


class FaultUndone(EventModel):
    kind: Literal["fault_undone"] = "fault_undone"
    intent: str
    node: str | None
    by: Literal["flow", "deadline", "reaper"]
    cleanliness: Cleanliness
    evidence: tuple[str, ...] = Field(description="what was read before, written and read after")
    attempts: int = 1
    went_in: bool | None = Field(
        default=None, description="of a fault, by its injector's own report; None if it left none that says so"
    )


class RecoveryDisturbed(EventModel):
    """A second fault that should be in while the node is repaired; its effect shows in the next `Remediated`."""

    kind: Literal["recovery_disturbed"] = "recovery_disturbed"
    intent: str
    target: Target
    fault: str
    layer: str
    written_at: AwareDatetime | None = Field(description="by the node's clock; None if it did not go in")
    evidence: tuple[str, ...]
