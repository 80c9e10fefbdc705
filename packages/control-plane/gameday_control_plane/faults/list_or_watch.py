"""A client that keeps up with many Secrets, by LISTs or by a watch, while somebody changes some of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict
from gameday.documents.sizes import Size, format_size
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.follower import FollowOrder
from gameday_control_plane.api_clients.following import Following
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.api_clients.writer import Writer
from gameday_control_plane.faults.api_load import (
    SHORT_OF_MEMORY,
    check_memory,
    is_memory_short,
    make_counted,
    refuse_too_much,
)
from gameday_control_plane.faults.base import ApiLoadFault, LoadParameters
from gameday_control_plane.values.api_loads import Followed, FollowMode
from gameday_control_plane.values.api_requests import percentile

LOAD = "list-or-watch"
"""The load's name: the value of its objects' label, and the start of their names."""
_SYNCED_WITHIN_S = 60.0
_SEEN_WITHIN_S = 5.0
"""Time for the last change to be seen, besides two intervals of a client that polls."""
_LOOK_EVERY_S = 0.1
_MAKES_A_SECOND = 50
"""The fewest objects made per second, half of what the lab takes."""

_MOST_CHANGES = 5000
"""The most changes with times that fit one line of a pod's log: 40 KB."""

_DETAILS = """\
| `mode` | what the client does | what it holds |
|---|---|---|
| `poll` | LIST of all every `interval`, as fresh as etcd | every object |
| `poll-cached` | the same out of the server's cache (`resourceVersion=0`) | every object |
| `pages` | the same as `poll` in pages of 500 | every object |
| `informer` | one LIST, then a watch with bookmarks | every object |
| `metadata` | one LIST and a watch of metadata, and a GET of what changed | metadata, and what has changed |

To have the same bytes in fewer objects, take a third of `objects` and three times the `object_size`.
"""


class ListOrWatchParameters(LoadParameters):
    dangerous: ClassVar[str] = (
        "etcd grows by the objects and their changes, and a client that polls takes all of them off the API server "
        "each time"
    )
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=5)

    type: Literal["list_or_watch"] = "list_or_watch"
    mode: FollowMode = FollowMode.POLL
    """The way in which the client keeps up, see below."""
    interval: Duration = timedelta(seconds=10)
    """Time from the start of one LIST to the start of the next, if the client polls."""
    objects: int = Field(default=1000, ge=1, le=20_000)
    """Objects that are made first, and that the client follows."""
    object_size: Size = Field(default=20_000, ge=1, le=1 << 20)
    """Random bytes in each, which JSON makes a third larger; at most 1.2GB all together."""
    resource: Literal["secrets"] = "secrets"
    """Kind of the objects."""
    changes_per_second: float = Field(default=2.0, gt=0, le=100)
    """Objects that another client changes each second."""
    follows_for: Duration = timedelta(seconds=60)
    """Time for which the objects change and the client is measured, from its first view of them all."""

    @model_validator(mode="after")
    def _can_be_measured(self) -> ListOrWatchParameters:
        refuse_too_much(self.objects, self.object_size)
        longest = self.follows_for + timedelta(seconds=self.objects / _MAKES_A_SECOND) + _tail(self)
        if self.hold < longest:
            raise conflict(
                ("hold",),
                f"making {self.objects} objects, following them and seeing the last change takes up to "
                f"{longest.total_seconds():.0f} s: hold it for longer, or follow for a shorter time",
            )
        changes = self.changes_per_second * self.follows_for.total_seconds()
        if not 1 <= changes <= _MOST_CHANGES:
            raise conflict(
                ("follows_for",), f"{changes:.0f} objects would change in this time: make it 1 to {_MOST_CHANGES:,}"
            )
        return self


class ListOrWatchFault(ApiLoadFault[ListOrWatchParameters, Following]):
    """Makes objects in namespace gameday-load, and measures what it costs one client to follow them.

    The client sends each request once, asks for uncompressed JSON and holds what a controller would hold. The fault is
    in when it has seen every object once. From then on another client changes objects at a steady rate. Each change is
    timed from its answer until the following client has it, or a later one of the same object.
    """

    parameters: ClassVar[type[FaultParameters]] = ListOrWatchParameters
    load: ClassVar[str] = LOAD
    resource: ClassVar[str] = "secrets"
    summary: ClassVar[str] = "A client follows many Secrets, by polling LISTs or by a watch"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods; API servers that the client is not on"
    seen_by: ClassVar[tuple[str, ...]] = (
        "the API server's own metrics: its CPU, LISTs by resource, bytes of answers",
        "the API canary, if the server has no CPU to spare",
    )
    details: ClassVar[str] = _DETAILS

    def warnings(self, parameters: ListOrWatchParameters) -> tuple[str, ...]:
        total = parameters.objects * parameters.object_size
        often = "once" if parameters.mode.watches else f"every {parameters.interval.total_seconds():g} s"
        return (f"a client LISTs {total / 1e6:.0f} MB of {parameters.resource} {often}, and etcd grows by as much",)

    def inject(self, parameters: ListOrWatchParameters, gpu: int, host: Host) -> Evidence:
        make_counted(self.objects(host), parameters.objects, parameters.object_size)
        check_memory(LOAD)
        following = Following(
            FollowOrder(
                server=host.api_server(),
                resource=parameters.resource,
                mode=parameters.mode,
                interval_s=parameters.interval.total_seconds(),
            )
        )
        self.begun(parameters, following)
        following.begin()
        if not following.wait_synced(_SYNCED_WITHIN_S):
            raise HostError(f"the client could not read every object within {_SYNCED_WITHIN_S:g} s")
        first = following.to_sync
        lines = (
            f"before: no {parameters.resource} of this load",
            f"made: {parameters.objects} of {format_size(parameters.object_size)}",
            f"after: a client has read them all, {first.bytes} bytes in {first.requests} requests",
        )
        return Evidence(lines=lines, written_at=following.began_at)

    def hold_and_tell(
        self,
        parameters: ListOrWatchParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        following = self.load_of(parameters)
        writer = Writer(host.api_server(), parameters.resource, LOAD, parameters.objects, parameters.changes_per_second)
        thread = threading.Thread(target=writer.run, args=(parameters.follows_for.total_seconds(),))
        thread.start()
        try:
            while thread.is_alive() and not following.is_over and not ended.wait(_LOOK_EVERY_S):
                if is_memory_short():
                    raise HostError(f"{SHORT_OF_MEMORY}: the load ended")
        finally:
            writer.end()
            thread.join()
        following.wait_seen(writer.writes, _tail(parameters).total_seconds(), ended)
        following.end()
        measured = following.measured(parameters.objects, writer.writes, writer.failed)
        tell(MeasuredNote(measured=measured))
        if following.has_failed:
            raise HostError("the client's process died; its own output is in this pod's log")
        return summary(measured)


def summary(measured: Followed) -> tuple[str, ...]:
    """Return the client's work and what it saw, as lines of evidence."""
    after, times = measured.to_follow, [percentile(measured.lags, share) for share in (0.5, 0.99)]
    lags = ", ".join(f"p{share} {value:.3f} s" for share, value in zip((50, 99), times, strict=True) if value)
    return (
        f"{after.lists} LISTs, {after.watches} watches and {after.gets} GETs after the first view, {after.failed} of "
        f"them failed: {after.bytes} bytes, {after.cpu_seconds:.2f} s of the client's CPU",
        f"{measured.writes} changes ({measured.failed_writes} failed), {measured.unseen} of them never seen; "
        f"seen after {lags or 'no time that could be measured'}",
    )


def _tail(parameters: ListOrWatchParameters) -> timedelta:
    """Return the time in which the last change has to be seen."""
    polled = timedelta() if parameters.mode.watches else 2 * parameters.interval
    return polled + timedelta(seconds=_SEEN_WITHIN_S)
