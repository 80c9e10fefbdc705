"""The repair of a node, by the run or by the cluster, its QA, and its return."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.history.events.model import EventModel
from gameday.values.nodes import Taint
from gameday.values.results import RepairHop, RepairKind


class Remediated(EventModel):
    kind: Literal["remediated"] = "remediated"
    node: str
    action: str
    ok: bool
    detail: str
    seconds: float


class RepairAwaited(EventModel):
    """The game-day leaves this target alone from now on: the cluster repairs it. Written before the fault."""

    kind: Literal["repair_awaited"] = "repair_awaited"
    node: str


class RepairHopSeen(EventModel):
    """A hop of the cluster's repair, repeated when the cluster shows later who took it. The last record counts."""

    kind: Literal["repair_hop_seen"] = "repair_hop_seen"
    hop: RepairHop
    node: str = Field(description="the target's name, also after another node has taken its place")
    at: AwareDatetime = Field(description="by the clock of `source`, and not before the hop before")
    by: str = Field(description="field manager, Event's component, or resource that took the hop; or 'unknown'")
    source: str
    took_s: float = Field(description="seconds from the hop before; of the first hop from the fault")
    since: str = Field(description="the hop before, or 'fault written'")
    repair: RepairKind | None = Field(default=None, description="of the hop 'repaired'")


class NodeReplaced(EventModel):
    """Another node of the same pool has taken the target's place; the run goes on with it."""

    kind: Literal["node_replaced"] = "node_replaced"
    node: str = Field(description="the target's name, as it was chosen")
    successor: str = Field(description="the same name if a new machine took it over")
    pool: dict[str, str] = Field(description="labels that both nodes share")
    boot_id: str
    at: AwareDatetime


class RepairChainEnded(EventModel):
    """The game-day waits for no further hop of the cluster's repair."""

    kind: Literal["repair_chain_ended"] = "repair_chain_ended"
    node: str
    stopped_at: RepairHop | None = Field(description="the hop that did not come in time; None if all was as planned")
    why: str = ""
    missed: tuple[RepairHop, ...] = Field(default=(), description="hops before that which did not come in time either")
    left: tuple[str, ...] = Field(default=(), description="what the cluster left on the node: taints, cordon, labels")
    in_service: bool = Field(description="the node takes work again")


class QaLeftOut(EventModel):
    """The game-day does not prove a node good that the cluster repairs, because nobody asked for it or it may not."""

    kind: Literal["qa_left_out"] = "qa_left_out"
    node: str = Field(description="the node in the target's place")
    why: str


class QaChecked(EventModel):
    """A QA check of one GPU (or of the whole node if `gpu` is None) against its floor or ceiling."""

    kind: Literal["qa_checked"] = "qa_checked"
    node: str
    gpu: int | None
    check: str
    value: float | str | None = Field(description="None if it could not be measured")
    unit: str = ""
    bound: str = Field(description="as shown to people, e.g. '>= 650 TFLOP/s'; empty if there is none")
    ok: bool | None
    seconds: float | None = None
    detail: str = ""


class NodeReturned(EventModel):
    kind: Literal["node_returned"] = "node_returned"
    node: str
    removed_taints: tuple[Taint, ...]
    uncordoned: bool


class ApiServersRestarted(EventModel):
    """The run restarted the API servers of a lab one after the other, after the load was gone."""

    kind: Literal["api_servers_restarted"] = "api_servers_restarted"
    asked_at: AwareDatetime
    ready_at: AwareDatetime = Field(description="when the last of them answered /readyz with its caches filled")
