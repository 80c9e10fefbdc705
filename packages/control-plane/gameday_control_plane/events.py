"""Loads on the control plane: the limiter, the API canary, the load's own log, the servers, nodes and pods."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gameday.history.events.model import EventModel
from gameday.values.nodes import NodeReadiness
from gameday_control_plane.values.api_loads import Measured
from gameday_control_plane.values.api_requests import ApiCanarySample, ApiRequest, LoadStage
from gameday_control_plane.values.pod_steps import PodsPlaced, PodStep


class FlowControlSet(EventModel):
    """The priority level and the flow schema of the plan are in force."""

    kind: Literal["flow_control_set"] = "flow_control_set"
    name: str
    seats: int = Field(description="seats of the level on each API server, as the plan wants them")
    shares: int = Field(description="shares of the level")
    spare_shares: int = Field(description="shares of the level beside it that takes no requests and lends all it has")
    total_seats: int = Field(description="seats of an API server before, as computed from its metrics")


class SeatsRead(EventModel):
    """The nominal seats of our level on each API server, read from its own metrics."""

    kind: Literal["seats_read"] = "seats_read"
    phase: Literal["before", "after"] = Field(description="before the fault goes in, or after it")
    seats: dict[str, int] = Field(description="server -> nominal seats")


class FlowControlRead(EventModel):
    """The plan's flow schema and priority levels, read again after the load."""

    kind: Literal["flow_control_read"] = "flow_control_read"
    changes: tuple[str, ...] = Field(description="changes that somebody else made to them; empty: nobody changed them")


class ApiCanarySampled(EventModel):
    """The API canary's samples since the event before."""

    kind: Literal["api_canary_sampled"] = "api_canary_sampled"
    node: str = Field(description="where the canary runs")
    samples: tuple[ApiCanarySample, ...]


class LoadLogged(EventModel):
    """The requests of a fault that loads the API server, by its clients' own log."""

    kind: Literal["load_logged"] = "load_logged"
    node: str
    requests: tuple[ApiRequest, ...]
    levels: dict[str, str] = Field(
        default={}, description="names of the priority levels that answers name, by UID, as far as they could be read"
    )


class LoadStaged(EventModel):
    """The stages of a fault that loads the API server, and the LIST that each client asked for."""

    kind: Literal["load_staged"] = "load_staged"
    node: str
    list_bytes: int = Field(description="of one LIST as JSON, also if the clients ask for another form")
    form: str = Field(description="of the clients' LISTs")
    stages: tuple[LoadStage, ...] = Field(description="those that ended by themselves, in their order")


class LoadMeasured(EventModel):
    """The figures that a load on the API server measured itself, other than its list of requests."""

    kind: Literal["load_measured"] = "load_measured"
    node: str
    measured: Measured


class NodesAndPodsSeen(EventModel):
    """All nodes, and all pods on them, at one moment: a fault of the control plane must leave them alone."""

    kind: Literal["nodes_and_pods_seen"] = "nodes_and_pods_seen"
    phase: Literal["before", "after"] = Field(description="before the fault goes in, or at the end of the run")
    nodes: dict[str, NodeReadiness] = Field(description="by name")
    pods: dict[str, str] = Field(description="UID -> namespace/name; without those that are ended, or have failed")


class LoadEnded(EventModel):
    """The end of a fault that loads the API server, from its agent's last message."""

    kind: Literal["load_ended"] = "load_ended"
    node: str
    failed: str = Field(description="why it did not run to its end; empty if it did")


class HeldServersStarted(EventModel):
    """The API servers of a lab that were held back start while the fault is in."""

    kind: Literal["held_servers_started"] = "held_servers_started"
    servers: tuple[str, ...]


class PodStepsLogged(EventModel):
    """The pods that a fault created in steps, from its own log."""

    kind: Literal["pod_steps_logged"] = "pod_steps_logged"
    node: str = Field(description="where the fault's pod ran")
    steps: tuple[PodStep, ...]
    placed: PodsPlaced | None = Field(description="None if the fault ended before it looked")
