"""An API server restarts while many clients follow a large store: who reconnects, and at what cost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict, format_duration
from gameday.documents.sizes import Size, format_size
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host import lab_program as lab_component
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.informers_order import InformersLine, InformersOrder
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.measured_clients import MeasuredClients
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.api_load import make_counted, refuse_too_much
from gameday_control_plane.faults.base import ApiLoadFault, LoadParameters
from gameday_control_plane.values.api_loads import Happening, Outcome, Reconnected, back_after

LOAD = "api-server-restarted"
"""The load's name: the value of its objects' label, and the start of their names."""
_CONNECTED_WITHIN_S = 60.0
_MAKES_A_SECOND = 50
"""The fewest objects made per second, half of what the lab takes."""
_ENDS_WITHIN = timedelta(seconds=15)


class ApiServerRestartedParameters(LoadParameters):
    needs_lab: ClassVar[bool] = True
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=5)

    type: Literal["api_server_restarted"] = "api_server_restarted"
    server: str = Field(default="kube-apiserver", pattern=r"^kube-apiserver(-[2-5])?$")
    """Name of the API server, as `gameday lab status` shows it."""
    clients: int = Field(default=20, ge=1, le=200)
    """Clients that follow all the objects, each over a connection of its own."""
    keep_up: Literal["watch", "list"] = "watch"
    """`watch`: like an informer. `list`: with a LIST of everything at each interval."""
    interval: Duration = Field(default=timedelta(seconds=5), ge=timedelta(milliseconds=100))
    """Time from the end of one LIST to the next, for clients that keep up by LISTs."""
    objects: int = Field(default=2000, ge=1, le=20_000)
    """Secrets that are made first, and that the clients follow."""
    object_size: Size = Field(default=2000, ge=1, le=1 << 20)
    """Random bytes in each, which JSON makes a third larger; at most 1.2GB all together."""
    begins_after: Duration = timedelta(seconds=5)
    """Time from the last client's connection to the restart."""
    watched_for: Duration = timedelta(seconds=75)
    """Time after the restart for which the clients are followed."""

    @property
    def api_server_away_for(self) -> timedelta:
        return self.watched_for

    @model_validator(mode="after")
    def _ends_by_itself(self) -> ApiServerRestartedParameters:
        refuse_too_much(self.objects, self.object_size)
        longest = timedelta(seconds=self.objects / _MAKES_A_SECOND + _CONNECTED_WITHIN_S)
        longest += self.begins_after + self.watched_for + _ENDS_WITHIN
        if self.hold < longest:
            raise conflict(("hold",), f"all of it takes up to {format_duration(longest)}: hold it for as long")
        return self


class ApiServerRestartedFault(ApiLoadFault[ApiServerRestartedParameters, "_Clients"]):
    """Restarts an API server while clients follow many Secrets in namespace gameday-load, as informers do.

    Its watch caches are empty then, while all clients ask at once. Only a lab can do the restart, by its control
    socket; elsewhere the run is refused. The lab ends the server, after 2 s by force, and starts it again at once,
    even if the game-day and its agent are dead by then.

    The fault is in when every client is connected; the restart comes `begins_after` later.
    """

    parameters: ClassVar[type[FaultParameters]] = ApiServerRestartedParameters
    load: ClassVar[str] = LOAD
    resource: ClassVar[str] = "secrets"
    summary: ClassVar[str] = "Restarts an API server that many clients follow (lab only)"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods; other API servers"
    seen_by: ClassVar[tuple[str, ...]] = (
        "every client of that server: its connection ends, and it comes again",
        "the API server's own metrics: process_start_time_seconds, apiserver_watch_cache_initializations_total",
    )

    def warnings(self, parameters: ApiServerRestartedParameters) -> tuple[str, ...]:
        return (f"{parameters.server} is restarted, and answers nobody for some seconds",)

    def prior_state(self, parameters: ApiServerRestartedParameters, gpu: int, host: Host) -> dict[str, str]:
        if lab_component.look(host, parameters.server).pid is None:
            raise HostError(f"{parameters.server} does not run: gameday lab status")
        return super().prior_state(parameters, gpu, host)

    def inject(self, parameters: ApiServerRestartedParameters, gpu: int, host: Host) -> Evidence:
        make_counted(self.objects(host), parameters.objects, parameters.object_size)
        clients = _Clients(
            InformersOrder(
                server=host.api_server(),
                path=f"/api/v1/namespaces/{NAMESPACE}/{self.resource}",
                clients=parameters.clients,
                keep_up=parameters.keep_up,
                interval_s=parameters.interval.total_seconds(),
            )
        )
        self.begun(parameters, clients)
        clients.begin()
        if not clients.wait_connected(_CONNECTED_WITHIN_S):
            raise HostError(f"not every client was connected within {_CONNECTED_WITHIN_S:g} s")
        lines = (
            "before: no object of this load",
            f"made: {parameters.objects} {self.resource} of {format_size(parameters.object_size)}",
            f"after: {parameters.clients} clients follow them; {parameters.server} is restarted "
            f"{format_duration(parameters.begins_after)} from now",
        )
        return Evidence(lines=lines, written_at=clients.began_at)

    def hold_and_tell(
        self,
        parameters: ApiServerRestartedParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        clients = self.load_of(parameters)
        if ended.wait(parameters.begins_after.total_seconds()):
            return ("ended before the restart",)
        before = lab_component.look(host, parameters.server)
        restarted_at, restarted = datetime.now(UTC), time.monotonic()
        after = lab_component.restart(host, parameters.server)
        if after.pid in (None, before.pid):
            raise HostError(f"{parameters.server} was not started again: process {before.pid}, then {after.pid}")
        clients.wait_until(restarted + parameters.watched_for.total_seconds(), ended)
        clients.end()
        measured = clients.measured(parameters, restarted_at, restarted)
        tell(MeasuredNote(measured=measured))
        if clients.has_failed:
            raise HostError("the clients' process died; its own output is in this pod's log")
        return (f"{parameters.server} was restarted: process {before.pid}, then {after.pid}", *_summary(measured))


def _summary(measured: Reconnected) -> tuple[str, ...]:
    back = [seconds for seconds in measured.back_after_s if seconds is not None]
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(measured.outcomes.items()))
    last = f", the last after {max(back):.1f} s" if back else ""
    return (f"{len(back)} of {measured.clients} clients are back{last}", f"after the restart: {counts or 'nothing'}")


class _Clients(MeasuredClients[InformersLine]):
    """The clients' process and what happens to it."""

    def __init__(self, order: InformersOrder) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._happened: list[Happening] = []
        self._connected: set[int] = set()
        self._all_connected = threading.Event()
        self._cpu_seconds = 0.0
        super().__init__("gameday_control_plane.api_clients.informers", order, InformersLine)

    def wait_connected(self, timeout_s: float) -> bool:
        return self.wait_for(self._all_connected, timeout_s)

    def measured(
        self, parameters: ApiServerRestartedParameters, restarted_at: datetime, restarted: float
    ) -> Reconnected:
        with self._lock:
            after = [one for one in self._happened if one.at >= restarted]
        by_client = [[one for one in after if one.client == number] for number in range(self._order.clients)]
        return Reconnected(
            server=parameters.server,
            keep_up=self._order.keep_up,
            clients=self._order.clients,
            objects=parameters.objects,
            began_at=self.began_at,
            restarted_at=restarted_at,
            ended_at=self.ended_at,
            lists=tuple(sum(one.outcome is Outcome.LISTED for one in mine) for mine in by_client),
            back_after_s=tuple(back_after(mine, restarted) for mine in by_client),
            outcomes=dict(Counter(one.outcome for one in after)),
            cpu_seconds=self._cpu_seconds,
        )

    def _hear(self, line: InformersLine) -> None:
        happened, last = line.happened, Outcome.LISTED if self._order.keep_up == "list" else Outcome.WATCHING
        with self._lock:
            if happened:
                self._happened.append(happened)
                self._connected |= {happened.client} if happened.outcome is last else set()
                if len(self._connected) == self._order.clients:
                    self._all_connected.set()
            if line.cpu_seconds is not None:
                self._cpu_seconds = line.cpu_seconds
