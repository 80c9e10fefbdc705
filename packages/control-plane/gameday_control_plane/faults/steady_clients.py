"""Many clients with one connection each, like agents of nodes: a load that stays on the server it connected to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.measured_clients import MeasuredClients
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.api_clients.objects import object_name
from gameday_control_plane.api_clients.steady_order import SteadyLine, SteadyOrder
from gameday_control_plane.faults.api_load import make_counted
from gameday_control_plane.faults.base import ApiLoadFault, LoadParameters
from gameday_control_plane.values.api_loads import Protocol, SteadyLoad, SteadySecond

LOAD = "steady-clients"
"""The load's name: the value of its object's label, and the start of its name."""
_SIZE = 100
_CONNECTED_WITHIN_S = 60.0
_ENDS_WITHIN = timedelta(seconds=15)


class SteadyClientsParameters(LoadParameters):
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=2)

    type: Literal["steady_clients"] = "steady_clients"
    clients: int = Field(default=60, ge=1, le=200)
    """Clients, each with one connection."""
    rate: float = Field(default=2.0, gt=0, le=20)
    """Requests a second of each client, one at a time."""
    protocol: Protocol = "http2"
    """HTTP version; `--goaway-chance` does not close connections of `http1`."""
    watch_only: bool = False
    """If true, each client holds a watch and asks for nothing else."""
    runs_for: Duration = timedelta(seconds=90)
    """Time for which they send requests once all of them are connected."""

    @model_validator(mode="after")
    def _ends_by_itself(self) -> SteadyClientsParameters:
        longest = self.runs_for + timedelta(seconds=_CONNECTED_WITHIN_S) + _ENDS_WITHIN
        if self.hold < longest:
            raise conflict(
                ("hold",),
                f"connecting and asking takes up to {longest.total_seconds():.0f} s: hold it for longer, or let it run "
                "for a shorter time",
            )
        return self


class SteadyClientsFault(ApiLoadFault[SteadyClientsParameters, "_Load"]):
    """Connects many clients that each ask for a small object at a steady rate over a single connection.

    A request is sent once more if its connection ends; this is counted separately from refusals. The fault is in when
    every client has had an answer.

    The load makes one Secret in namespace gameday-load. `hold` begins before the clients connect.
    """

    parameters: ClassVar[type[FaultParameters]] = SteadyClientsParameters
    load: ClassVar[str] = LOAD
    resource: ClassVar[str] = "secrets"
    summary: ClassVar[str] = "Many clients ask at a steady rate, each over one connection"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods; API servers that no client is connected to"
    seen_by: ClassVar[tuple[str, ...]] = ("the API servers' own metrics: requests a second of each of them",)

    def inject(self, parameters: SteadyClientsParameters, gpu: int, host: Host) -> Evidence:
        make_counted(self.objects(host), 1, _SIZE)
        collection = f"/api/v1/namespaces/{NAMESPACE}/{self.resource}"
        load = _Load(
            SteadyOrder(
                server=host.api_server(),
                path=collection if parameters.watch_only else f"{collection}/{object_name(LOAD, 0)}",
                clients=parameters.clients,
                rate=parameters.rate,
                protocol=parameters.protocol,
                watch_only=parameters.watch_only,
            )
        )
        self.begun(parameters, load)
        load.begin()
        if not load.wait_connected(_CONNECTED_WITHIN_S):
            raise HostError(f"not every client had an answer within {_CONNECTED_WITHIN_S:g} s")
        return Evidence(
            lines=("before: no object of this load", f"after: {parameters.clients} clients have had an answer"),
            written_at=load.began_at,
        )

    def hold_and_tell(
        self,
        parameters: SteadyClientsParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        load = self.load_of(parameters)
        load.wait_until(time.monotonic() + parameters.runs_for.total_seconds(), ended)
        load.end()
        measured = load.measured()
        tell(MeasuredNote(measured=measured))
        if load.has_failed:
            raise HostError("the clients' process died; its own output is in this pod's log")
        cut, reconnects = (sum(getattr(s, name) for s in measured.seconds) for name in ("cut", "reconnects"))
        return (
            f"{measured.requests} requests of {measured.clients} clients, {measured.failed} failed",
            f"{cut} connections ended under a request, {reconnects} reconnects; {measured.cpu_seconds:.1f} s of CPU",
        )


class _Load(MeasuredClients[SteadyLine]):
    """The clients' process and its messages."""

    def __init__(self, order: SteadyOrder) -> None:
        self._order = order
        self._connected = threading.Event()
        self._seconds: list[SteadySecond] = []
        self._cpu_seconds = 0.0
        super().__init__("gameday_control_plane.api_clients.steady", order, SteadyLine)

    def wait_connected(self, timeout_s: float) -> bool:
        return self.wait_for(self._connected, timeout_s)

    def measured(self) -> SteadyLoad:
        return SteadyLoad(
            clients=self._order.clients,
            rate=self._order.rate,
            protocol=self._order.protocol,
            watch_only=self._order.watch_only,
            began_at=self.began_at,
            ended_at=self.ended_at,
            cpu_seconds=self._cpu_seconds,
            seconds=tuple(self._seconds),
        )

    def _hear(self, line: SteadyLine) -> None:
        if line.connected:
            self._connected.set()
        if line.second:
            self._seconds.append(line.second)
        if line.cpu_seconds is not None:
            self._cpu_seconds = line.cpu_seconds
