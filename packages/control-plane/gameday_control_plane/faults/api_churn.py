"""API churn: the steady load of a busy cluster, to compare an API server's memory and garbage collector under."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict
from gameday.documents.sizes import Size, format_size
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.notes import request_notes
from gameday_control_plane.faults.api_load import SHORT_OF_MEMORY, is_memory_short, make_counted
from gameday_control_plane.faults.base import ApiLoadFault, LoadParameters
from gameday_control_plane.values.api_requests import percentile

if TYPE_CHECKING:
    from gameday_control_plane.api_clients.churn import Churn

LOAD = "api-churn"
"""The load's name: the value of its objects' label, and the start of their names."""
# A request takes about 400 bytes of the pod's log, which kubelets rotate at 10 MiB.
_MOST_LOGGED = 25_000
_WATCHING_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.5


class ApiChurnParameters(LoadParameters):
    dangerous: ClassVar[str] = (
        "its writes compete with everybody's for etcd, and every watch that is open takes a share of the API server"
    )
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=5)

    type: Literal["api_churn"] = "api_churn"
    objects: int = Field(default=500, ge=1, le=20_000)
    """ConfigMaps that are made first, updated in turn, and returned by each LIST."""
    object_size: Size = Field(default=4000, ge=1, le=100_000)
    """Random bytes in each."""
    rate: float = Field(default=20, gt=0, le=200, allow_inf_nan=False)
    """Writes per second: a create, an update and a delete in turn."""
    watches: int = Field(default=10, ge=1, le=500)
    """Watches of the objects that stay open; every write goes to each of them."""
    list_every: Duration = Field(default=timedelta(seconds=5), ge=timedelta(milliseconds=100))
    """Pause between two LISTs of all the objects."""

    @model_validator(mode="after")
    def _can_be_logged(self) -> ApiChurnParameters:
        requests = self.hold.total_seconds() * (self.rate + 1 / self.list_every.total_seconds())
        if requests > _MOST_LOGGED:
            raise conflict(
                ("rate",),
                f"{requests:,.0f} requests in the hold, and a pod's log holds {_MOST_LOGGED:,}: a lower rate, or a "
                "shorter hold",
            )
        return self


class ApiChurnFault(ApiLoadFault[ApiChurnParameters, "Churn"]):
    """Makes ConfigMaps in namespace gameday-load, then creates, updates and deletes some at a steady rate.

    It also keeps watches of them open, as informers do, and LISTs them all every few seconds. A late write is not made
    up for, so `rate` is an upper bound. No request is repeated; a watch that ends is opened again.

    The load ends by itself if less than 15 % of its node's memory is free.
    """

    parameters: ClassVar[type[FaultParameters]] = ApiChurnParameters
    load: ClassVar[str] = LOAD
    resource: ClassVar[str] = "configmaps"
    summary: ClassVar[str] = "Steady writes, watches and LISTs of small objects"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods; API servers that it was not balanced to"
    seen_by: ClassVar[tuple[str, ...]] = (
        "the API server's own metrics: memory, collections, requests by verb",
        "the API canary, if the server is short of CPU",
    )

    def warnings(self, parameters: ApiChurnParameters) -> tuple[str, ...]:
        return (
            f"{parameters.rate:g} writes per second to etcd, each sent to {parameters.watches} watches, for "
            f"{parameters.hold.total_seconds():g} s",
        )

    def inject(self, parameters: ApiChurnParameters, gpu: int, host: Host) -> Evidence:
        make_counted(self.objects(host), parameters.objects, parameters.object_size)
        began_at = datetime.now(UTC)
        from gameday_control_plane.api_clients.churn import Churn, ChurnOrder  # noqa: PLC0415 - httpx takes long to load

        order = ChurnOrder(
            server=host.api_server(),
            resource=self.resource,
            load=LOAD,
            objects=parameters.objects,
            object_size=parameters.object_size,
            rate=parameters.rate,
            watches=parameters.watches,
            list_every_s=parameters.list_every.total_seconds(),
        )
        churn = self.begun(parameters, Churn(order))
        if not churn.wait_until_watching(_WATCHING_WITHIN_S):
            raise HostError(f"not every watch was answered within {_WATCHING_WITHIN_S:g} s")
        lines = (
            f"before: namespace {NAMESPACE} held no {self.resource} of the load",
            f"made: {parameters.objects} of {format_size(parameters.object_size)}",
            f"after: {parameters.watches} watches are open, {parameters.rate:g} writes per second go on",
        )
        return Evidence(lines=lines, written_at=began_at)

    def hold_and_tell(
        self,
        parameters: ApiChurnParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        churn = self.load_of(parameters)
        short = False
        while not (ended.wait(_LOOK_EVERY_S) or short or churn.is_over):
            short = is_memory_short()
            _tell_requests(churn, tell)
        died = churn.is_over
        churn.end()
        _tell_requests(churn, tell)
        lines = summary(churn)
        if short:
            raise HostError(f"{SHORT_OF_MEMORY}: the load ended; {lines[0]}")
        if died:
            raise HostError(f"the load broke off; its own output is in this pod's log; {lines[0]}")
        return lines


def summary(churn: Churn) -> tuple[str, ...]:
    """Return the load's results as lines of evidence."""
    requests = churn.requests
    by_verb = Counter(request.verb for request in requests if request.is_served)
    failed = sum(not request.is_served for request in requests)
    lists = [request.seconds for request in requests if request.verb == "list" and request.is_served]
    middle = percentile(lists, 0.5)
    return (
        f"{len(requests)} requests: {', '.join(f'{count} {verb}s' for verb, count in sorted(by_verb.items()))}, "
        f"{failed} failed",
        f"{churn.ended_watches} watches ended early" + (f"; a LIST took {middle:.2f} s" if middle else ""),
    )


def _tell_requests(churn: Churn, tell: Callable[[BaseModel], None]) -> None:
    for note in request_notes(churn.take()):
        tell(note)
