"""A LIST storm: many clients ask the API server for everything at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict
from gameday.documents.sizes import Size, format_size
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.lists import NAMESPACE, Form, Read
from gameday_control_plane.api_clients.notes import StageNote, StormEnding, StormEndNote, StormNote, request_notes
from gameday_control_plane.api_clients.order import ListOrder, OwnCost, one_after_another
from gameday_control_plane.api_clients.storm import Storm, wait_until_sent
from gameday_control_plane.faults.api_load import (
    SHORT_OF_MEMORY,
    check_memory,
    is_memory_short,
    make_counted,
    refuse_too_much,
)
from gameday_control_plane.faults.base import ApiLoadFault, LoadParameters
from gameday_control_plane.values.api_requests import HAND_OVER_S, ApiRequest, LoadStage, max_overlap, percentile

LOAD = "list-storm"
"""The load's name: the value of its objects' label, and the start of their names."""
_MASTERS = (
    ("Impersonate-User", "gameday-master"),
    ("Impersonate-Group", "system:masters"),
)
_IN_FLIGHT_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.5
STAGE_PAUSE_S = 12.0
"""The pause after each of several stages. Two scrapes of a Prometheus that asks every five seconds then see the
memory that the stage has left, which Go gives back to the kernel only over minutes, and requests still under way
end."""


class ListStormParameters(LoadParameters):
    dangerous: ClassVar[str] = (
        "each LIST takes memory of its API server, in some forms many times the size of the answer; a server that runs "
        "out of memory is killed, and the cluster is without that server"
    )
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=5)

    type: Literal["list_storm"] = "list_storm"
    clients: int = Field(default=30, ge=1, le=200)
    """Clients that LIST at the same time, each over a connection of its own."""
    stages: tuple[Annotated[int, Field(ge=1, le=200)], ...] = Field(default=(), max_length=10)
    """Counts of clients, for several storms, each larger than the one before, such as `[1, 2, 4, 8]`.

    Each begins twelve seconds after the end of the one before. An API server does not give memory back in between:
    a stage shows the cost of its LISTs only if the memory rises above all earlier peaks."""
    objects: int = Field(default=1000, ge=1, le=20_000)
    """Objects that are made first, and that every LIST returns."""
    object_size: Size = Field(default=20_000, ge=1, le=1 << 20)
    """Random bytes in each, which JSON makes a third larger; at most 1.2GB all together."""
    resource: Literal["secrets"] = "secrets"
    """Kind of the objects."""
    form: Form = Form.JSON
    """Encoding of the answers; `table` holds whole objects, `metadata` nothing of their content.

    From 1.33 on a server streams `json` and `protobuf` at little cost, and builds `yaml` and `table` as a whole. A
    built answer begins when most of the work is done, so the request log shows too few under way: there trust the
    server's own `apiserver_flowcontrol_current_executing_requests`."""
    read: Read = Read.LATEST
    """Freshness of the answers, and the way to read them.

    `latest`: as fresh as etcd; `any`: the server's cache (`resourceVersion=0`); `exact`: the state right before the
    storm, from etcd if the server keeps no snapshot; `watch-list`: a watch up to the bookmark after its first
    events, as informers read from client-go 1.35 on."""
    rounds: int = Field(default=1, ge=1, le=1000)
    """LISTs of each client, one after the other."""
    starts_over: Duration = Field(default=timedelta(), le=timedelta(minutes=4))
    """Time over which the clients' first LISTs are spread at random."""
    act_as: Literal["account", "system-masters"] = "account"
    """The user of the LISTs: the service account gameday-api-client, or a user of the group system:masters.

    `system-masters` is the negative control: the API server's limits do not apply to it. Outside the lab every such
    LIST is refused with 403."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of clients of each stage; without stages there is one."""
        return self.stages or (self.clients,)

    @model_validator(mode="after")
    def _stages_rise(self) -> ListStormParameters:
        # The agent gets every field, so a field that the plan wrote cannot be told from the default.
        if self.stages and self.clients != type(self).model_fields["clients"].default:
            raise conflict(("clients",), "the stages say how many clients there are: leave out one of the two")
        if any(later <= earlier for earlier, later in zip(self.stages, self.stages[1:], strict=False)):
            raise conflict(("stages",), "each stage has more clients than the one before, like [1, 2, 4, 8]")
        return self

    @model_validator(mode="after")
    def _can_be_served(self) -> ListStormParameters:
        refuse_too_much(self.objects, self.object_size)
        if self.read is Read.WATCH_LIST and self.form is Form.YAML:
            raise conflict(("form",), "the API server sends no events in YAML: json, protobuf, table or metadata")
        return self


@dataclass
class _Begun:
    """A storm that has begun, with the stages that have started."""

    order: ListOrder
    note: StormNote
    storms: list[Storm]

    @property
    def requests(self) -> list[ApiRequest]:
        return [request for storm in self.storms for request in storm.requests]

    @property
    def cost(self) -> OwnCost:
        return one_after_another([storm.cost for storm in self.storms])

    @property
    def failed(self) -> int:
        return sum(storm.failed for storm in self.storms)

    def end(self) -> None:
        for storm in self.storms:
            storm.end()


class ListStormFault(ApiLoadFault[ListStormParameters, _Begun]):
    """Makes objects in namespace gameday-load, and lets many clients LIST them all at the same time.

    The clients send each request once, read its uncompressed answer to the end and drop it, and log its times, status,
    bytes, Retry-After, flow schema and priority level. A LIST that is refused with a Retry-After is sent again after
    that pause, up to ten times, as client-go does. The fault is in when every client has a request on its way, and
    ends with the last round or the hold.

    The API server prices LISTs by counts and sizes that it reads once a minute, so a storm that begins sooner after
    its objects were made may be admitted more cheaply.

    The storm ends by itself if less than 15 % of its node's memory is free.
    """

    parameters: ClassVar[type[FaultParameters]] = ListStormParameters
    load: ClassVar[str] = LOAD
    resource: ClassVar[str] = "secrets"
    summary: ClassVar[str] = "Many clients LIST large Secrets at the same time"
    does_not_reach: ClassVar[str] = (
        "the GPUs, their nodes and running pods; API servers that no connection of the storm was balanced to; watches "
        "that are open already, until a server is killed"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the API canary: its requests wait or fail",
        "the API server's own metrics: memory, requests in flight, and seats, queues and rejections by priority level",
        "every client of a server that is killed for its memory",
    )

    def warnings(self, parameters: ListStormParameters) -> tuple[str, ...]:
        total = parameters.objects * parameters.object_size
        most = max(parameters.counts)
        served = 0 if parameters.form is Form.METADATA else most * total
        return (
            f"{most} clients LIST {total / 1e6:.0f} MB of {parameters.resource} at the same time"
            f" ({served / 1e9:.1f} GB of content in all), and etcd grows by as much",
        )

    def inject(self, parameters: ListStormParameters, gpu: int, host: Host) -> Evidence:
        objects = self.objects(host)
        version = make_counted(objects, parameters.objects, parameters.object_size)
        list_bytes = objects.list_bytes()
        check_memory(LOAD)
        order = ListOrder(
            server=host.api_server(),
            resource=parameters.resource,
            form=parameters.form,
            read=parameters.read,
            resource_version=version,
            rounds=parameters.rounds,
            starts_over_s=parameters.starts_over.total_seconds(),
            headers=_MASTERS if parameters.act_as == "system-masters" else (),
        )
        storm = Storm(order, parameters.counts[0])
        began_at = datetime.now(UTC)
        note = StormNote(
            began_at=began_at,
            clients=max(parameters.counts),
            rounds=parameters.rounds,
            resource=parameters.resource,
            form=parameters.form,
            read=parameters.read,
            act_as=parameters.act_as,
            objects=parameters.objects,
            list_bytes=list_bytes,
        )
        self.begun(parameters, _Begun(order, note, [storm]))
        storm.begin()
        within_s = order.starts_over_s + _IN_FLIGHT_WITHIN_S
        if not wait_until_sent(storm, within_s):
            raise HostError(f"not every client could send its request within {within_s:g} s")
        lines = (
            f"before: namespace {NAMESPACE} held no {parameters.resource} of a storm",
            f"made: {parameters.objects} of {format_size(parameters.object_size)}; "
            f"one LIST of them is {list_bytes} bytes",
            f"after: {parameters.counts[0]} clients have sent their LIST",
        )
        return Evidence(lines=lines, written_at=began_at)

    def hold_and_tell(
        self,
        parameters: ListStormParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        begun = self.load_of(parameters)
        tell(begun.note)
        reason = _play_stages(begun, parameters.counts, ended, tell)
        tell(StormEndNote(ended_at=datetime.now(UTC), reason=reason, cost=begun.cost))
        lines = summary(begun.requests, begun.cost)
        if reason == "host short of memory":
            raise HostError(f"{SHORT_OF_MEMORY}: the storm ended; {lines[0]}")
        if begun.failed:
            raise HostError(f"{begun.failed} client process(es) died; {lines[0]}")
        return lines


def summary(requests: Sequence[ApiRequest], cost: OwnCost) -> tuple[str, ...]:
    """Return the storm's results as lines of evidence."""
    served = [request for request in requests if request.is_served]
    throttled = sum(request.status == 429 for request in requests)
    others = len(requests) - len(served) - throttled
    took = [percentile((request.seconds for request in served), share) for share in (0.5, 0.99)]
    times = ", ".join(f"p{share} {value:.2f} s" for share, value in zip((50, 99), took, strict=True) if value)
    return (
        f"{len(requests)} requests: {len(served)} answered, {throttled} told to come later (429), {others} failed",
        f"at most {max_overlap(requests)} answers under way at the same time, "
        f"{max_overlap(requests, HAND_OVER_S)} for longer than {HAND_OVER_S} s; {times or 'none answered'}",
        f"own cost: {cost.cpu_seconds:.1f} s of CPU, {cost.rss_bytes / 1e6:.0f} MB of memory",
    )


def _play_stages(
    begun: _Begun, counts: Sequence[int], ended: threading.Event, tell: Callable[[BaseModel], None]
) -> StormEnding:
    """Follow the first stage, which runs already, and play the others. Raises HostError if one cannot begin."""
    began_at = begun.note.began_at
    for number, clients in enumerate(counts):
        if number:
            storm = Storm(begun.order, clients)
            begun.storms.append(storm)
            began_at = datetime.now(UTC)
            storm.begin()
        storm = begun.storms[-1]
        reason = _follow(storm, ended, tell)
        storm.end()
        _tell_requests(storm, tell)
        if reason != "rounds done":
            return reason
        ended_at = datetime.now(UTC)
        if len(counts) > 1 and ended.wait(STAGE_PAUSE_S):
            return "told to end"
        stage = LoadStage(clients=clients, began_at=began_at, ended_at=ended_at, until=datetime.now(UTC))
        tell(StageNote(stage=stage))
    return "rounds done"


def _follow(storm: Storm, ended: threading.Event, tell: Callable[[BaseModel], None]) -> StormEnding:
    """Report what comes, until the storm is over or has to end."""
    while not storm.is_over:
        if ended.wait(_LOOK_EVERY_S):
            return "told to end"
        if is_memory_short():
            return "host short of memory"
        _tell_requests(storm, tell)
    return "rounds done"


def _tell_requests(storm: Storm, tell: Callable[[BaseModel], None]) -> None:
    for note in request_notes(storm.take()):
        tell(note)
