"""API churn: the steady load of a busy cluster, under which an API server's memory and its collector are compared."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.api_clients.lists import NAMESPACE
from gameday.api_clients.memory import LEAST_FREE, MEMINFO, free_share
from gameday.api_clients.notes import request_notes
from gameday.api_clients.objects import LoadObjects
from gameday.documents.fields import Duration, conflict
from gameday.documents.sizes import Size, format_size
from gameday.errors import HostError
from gameday.faults.api_load import check_memory, make_counted, refuse_leftovers
from gameday.faults.base import NODE, Claim, Evidence, Fault, Layer
from gameday.host.base import Host
from gameday.host.privileges import API_CLIENT, PodSecurity
from gameday.plan.models import FaultParameters
from gameday.values.api_requests import percentile
from gameday.values.nodes import NodeRole

if TYPE_CHECKING:
    from gameday.api_clients.churn import Churn

LOAD = "api-churn"
"""The load's name: the value of its objects' label, and the start of their names."""
_RESOURCE = "configmaps"
# A request takes about 400 bytes of the pod's log, which kubelets turn over at 10 MiB.
_MOST_LOGGED = 25_000
_WATCHING_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.5


class ApiChurnParameters(FaultParameters):
    dangerous: ClassVar[str] = (
        "its writes compete with everybody's for etcd, and every watch that is open takes a share of the API server"
    )
    needs_api_canary: ClassVar[bool] = True
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=5)

    type: Literal["api_churn"] = "api_churn"
    objects: int = Field(default=500, ge=1, le=20_000)
    """ConfigMaps that are made first and stay until the end; they are updated in turn, and every LIST asks for them."""
    object_size: Size = Field(default=4000, ge=1, le=100_000)
    """Random bytes in each."""
    rate: float = Field(default=20, gt=0, le=200, allow_inf_nan=False)
    """Writes per second: a create, an update and a delete in turn."""
    watches: int = Field(default=10, ge=1, le=500)
    """Watches of the objects that stay open, as those of informers do; every write is sent to each."""
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


class ApiChurnFault(Fault[ApiChurnParameters]):
    """Makes ConfigMaps in namespace gameday-load, and creates, updates and deletes such at a steady rate.

    Beside the writes it keeps watches of them open, as informers do, and LISTs them all every few seconds: together
    what makes an API server's collector work. A write that comes late is not caught up on, so that the rate is the most
    there is; the log of requests shows what it was. Nothing is asked for twice. A watch that ends is opened again.
    `hold` begins before the objects are made, at about a hundred in a second.

    The load ends by itself where less than 15 % of its node's memory is free. Its objects carry the label
    gameday.dev/load=api-churn, and are deleted by it; they and the client are all that is to be undone.
    """

    parameters: ClassVar[type[FaultParameters]] = ApiChurnParameters
    layer: ClassVar[Layer] = Layer.CONTROL_PLANE
    api_account: ClassVar[str] = "gameday-api-client"
    security: ClassVar[PodSecurity] = API_CLIENT
    summary: ClassVar[str] = "Steady writes, watches and LISTs of small objects"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods; API servers that it was not balanced to"
    seen_by: ClassVar[tuple[str, ...]] = (
        "the API server's own metrics: memory, collections, requests by verb",
        "the API canary, where the server is short of CPU",
    )

    def __init__(self) -> None:
        # By the parameters' identity, as two parts of one compound fault share this instance.
        self._loads: dict[int, Churn] = {}

    def claims(self, parameters: ApiChurnParameters) -> tuple[Claim, ...]:
        return (Claim(parameters.type, cluster_wide=True), Claim(NODE, shared=True))

    def warnings(self, parameters: ApiChurnParameters) -> tuple[str, ...]:
        return (
            f"{parameters.rate:g} writes per second to etcd, each sent to {parameters.watches} watches, for "
            f"{parameters.hold.total_seconds():g} s",
        )

    def prior_state(self, parameters: ApiChurnParameters, gpu: int, host: Host) -> dict[str, str]:
        refuse_leftovers(_objects(host), _RESOURCE, LOAD)
        check_memory(MEMINFO, LOAD)
        return {}

    def inject(self, parameters: ApiChurnParameters, gpu: int, host: Host) -> Evidence:
        make_counted(_objects(host), parameters.objects, parameters.object_size)
        began_at = datetime.now(UTC)
        from gameday.api_clients.churn import Churn, ChurnOrder  # noqa: PLC0415 - httpx takes long to load

        order = ChurnOrder(
            server=host.api_server(),
            resource=_RESOURCE,
            load=LOAD,
            objects=parameters.objects,
            object_size=parameters.object_size,
            rate=parameters.rate,
            watches=parameters.watches,
            list_every_s=parameters.list_every.total_seconds(),
        )
        churn = self._loads[id(parameters)] = Churn(order)
        if not churn.wait_until_watching(_WATCHING_WITHIN_S):
            raise HostError(f"not every watch was answered within {_WATCHING_WITHIN_S:g} s")
        lines = (
            f"before: namespace {NAMESPACE} held no {_RESOURCE} of the load",
            f"made: {parameters.objects} of {format_size(parameters.object_size)}",
            f"after: {parameters.watches} watches are open, {parameters.rate:g} writes per second go on",
        )
        return Evidence(lines=lines, written_at=began_at)

    def hold(
        self, parameters: ApiChurnParameters, gpu: int, host: Host, ended: threading.Event
    ) -> tuple[str, ...] | None:
        return self.hold_and_tell(parameters, gpu, host, ended, lambda _: None)

    def hold_and_tell(
        self,
        parameters: ApiChurnParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        churn = self._loads[id(parameters)]
        short = False
        while not (ended.wait(_LOOK_EVERY_S) or short or churn.is_over):
            short = free_share(MEMINFO) < LEAST_FREE
            _tell_requests(churn, tell)
        died = churn.is_over
        churn.end()
        _tell_requests(churn, tell)
        lines = summary(churn)
        if short:
            raise HostError(f"less than {LEAST_FREE:.0%} of this node's memory is free: the load ended; {lines[0]}")
        if died:
            raise HostError(f"the load broke off; its own words are in this pod's log; {lines[0]}")
        return lines

    def undo(self, parameters: ApiChurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        churn = self._loads.pop(id(parameters), None)
        if churn:
            churn.end()
        deleted = _objects(host).delete()
        return Evidence(lines=(f"deleted {deleted} {_RESOURCE} from namespace {NAMESPACE}",))

    def verify_undone(self, parameters: ApiChurnParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not _objects(host).exist()


def summary(churn: Churn) -> tuple[str, ...]:
    """Return what a load did, as lines of evidence."""
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


def _objects(host: Host) -> LoadObjects:
    return LoadObjects(host.api_server(), _RESOURCE, LOAD)


def _tell_requests(churn: Churn, tell: Callable[[BaseModel], None]) -> None:
    for note in request_notes(churn.take()):
        tell(note)
