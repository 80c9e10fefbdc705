"""The figures that a load on the API server measures itself, in its injector's log and in the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from gameday_control_plane.values.api_requests import LoadModel

Protocol = Literal["http2", "http1"]
"""The HTTP version of a client's connection."""


class FollowMode(StrEnum):
    """The way in which a client keeps up with many objects."""

    POLL = "poll"
    POLL_CACHED = "poll-cached"
    PAGES = "pages"
    INFORMER = "informer"
    METADATA = "metadata"

    @property
    def watches(self) -> bool:
        """True for a client that asks for everything once and then gets the changes."""
        return self in (FollowMode.INFORMER, FollowMode.METADATA)


class Traffic(LoadModel):
    """A client's requests and their cost, over some time."""

    lists: int = Field(default=0, description="requests; of one in pages each page")
    watches: int = 0
    gets: int = 0
    failed: int = Field(default=0, description="of these: without a whole answer, or with one that is not a success")
    bytes: int = Field(default=0, description="of all answers' bodies")
    cpu_seconds: float = Field(default=0.0, description="user and system time of the client's process")

    @property
    def requests(self) -> int:
        return self.lists + self.watches + self.gets

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            lists=self.lists - earlier.lists,
            watches=self.watches - earlier.watches,
            gets=self.gets - earlier.gets,
            failed=self.failed - earlier.failed,
            bytes=self.bytes - earlier.bytes,
            cpu_seconds=round(self.cpu_seconds - earlier.cpu_seconds, 3),
        )


class Followed(LoadModel):
    """The cost of following many objects, and how soon the client saw each change."""

    load: Literal["list_or_watch"] = "list_or_watch"
    mode: FollowMode
    objects: int
    began_at: AwareDatetime
    synced_at: AwareDatetime = Field(description="the client had seen every object once")
    ended_at: AwareDatetime
    to_sync: Traffic = Field(description="until then")
    to_follow: Traffic = Field(description="from then on")
    writes: int = Field(description="answered with a success")
    failed_writes: int
    lags: tuple[float, ...] = Field(description="seconds from a write's answer to its change in the client's view")
    unseen: int = Field(description="writes that were never seen")


class Write(LoadModel):
    """A change of an object. `at` is the end of its answer, by the machine's monotonic clock."""

    name: str = Field(max_length=253)
    version: int = Field(description="the object's resourceVersion after it")
    at: float


class Sighting(LoadModel):
    """A version of an object in a client's view. `at` is by the machine's monotonic clock."""

    name: str = Field(max_length=253)
    version: int
    at: float


def lags(writes: Iterable[Write], seen: Iterable[Sighting]) -> list[float | None]:
    """Return for each write the seconds until its change, or a later one of the object, was seen; None: never.

    A watch can show a change before its writer gets the answer; that counts as 0.
    """
    by_name: defaultdict[str, list[Sighting]] = defaultdict(list)
    for one in sorted(seen, key=lambda sighting: sighting.at):
        by_name[one.name].append(one)
    found = []
    for write in writes:
        first = next((one for one in by_name[write.name] if one.version >= write.version), None)
        found.append(max(0.0, first.at - write.at) if first else None)
    return found


class SteadySecond(LoadModel):
    """The requests of steady clients that were answered in one second."""

    at: AwareDatetime = Field(description="its begin")
    requests: int = Field(default=0, description="asked for; one that was sent again counts once")
    refused: int = Field(default=0, description="of these: answered with no success")
    lost: int = Field(default=0, description="of these: without an answer, although it was sent twice")
    cut: int = Field(default=0, description="connections that ended under a request, which was then sent again")
    reconnects: int = Field(default=0, description="answers over another connection than the client's answer before")


class SteadyLoad(LoadModel):
    """The figures of many clients that each ask at a steady rate over one connection."""

    load: Literal["steady_clients"] = "steady_clients"
    clients: int
    rate: float = Field(description="requests a second of each client")
    protocol: Protocol
    watch_only: bool
    began_at: AwareDatetime
    ended_at: AwareDatetime
    cpu_seconds: float = Field(description="user and system time of the clients' process")
    seconds: tuple[SteadySecond, ...]

    @property
    def requests(self) -> int:
        return sum(second.requests for second in self.seconds)

    @property
    def failed(self) -> int:
        """Requests that the server refused, or that got no answer."""
        return sum(second.refused + second.lost for second in self.seconds)


WriteOutcome = Literal["admitted", "refused", "failed"]
"""`refused`: because a webhook could not be asked, as the API server's answer says; `failed`: for any other reason."""


class MatchedWrite(LoadModel):
    """A write that an admission webhook matches."""

    sent_at: AwareDatetime
    seconds: float = Field(description="up to the end of the answer, or until the request was given up")
    outcome: WriteOutcome


class NodeLeases(LoadModel):
    """The renewals of the nodes' Leases, as LISTs every few seconds showed them."""

    nodes: int
    longest_s: float = Field(description="longest time in which a Lease was seen unchanged")
    node: str = Field(max_length=253, description="the Lease's node")


class WebhookOutage(LoadModel):
    """The writes around an admission webhook without a working endpoint."""

    load: Literal["webhook_unreachable"] = "webhook_unreachable"
    failure_policy: Literal["fail", "ignore"]
    began_at: AwareDatetime = Field(description="the webhook was in")
    ended_at: AwareDatetime = Field(description="its deletion was sent")
    before: tuple[float, ...] = Field(description="seconds of the same writes before it was in")
    writes: tuple[MatchedWrite, ...] = Field(description="while it was in")
    leases: NodeLeases | None = Field(description="None: they could not be listed")
    out_after_s: float | None = Field(
        description="from its deletion to the answer of the first write that was admitted; None: none was, or with "
        "policy ignore, which admits all"
    )


class Paused(LoadModel):
    """A program of the control plane that was stopped for a time (SIGSTOP)."""

    load: Literal["etcd_paused"] = "etcd_paused"
    component: str = Field(max_length=63)
    paused_at: AwareDatetime
    resumed_at: AwareDatetime = Field(description="it was seen to run again")
    ended_at: AwareDatetime = Field(description="of the time after that which still counts as the fault's")


class Outcome(StrEnum):
    """The outcome of one request of a client that follows many objects, or the end of its watch."""

    LISTED = "listed"
    WATCHING = "watching"
    ENDED = "watch ended"
    GONE = "410"
    THROTTLED = "429"
    UNAVAILABLE = "5xx"
    REFUSED = "other refusal"
    NO_CONNECTION = "no connection"
    TIMEOUT = "time-out"

    @property
    def is_connected(self) -> bool:
        """True if the client now has what it needs."""
        return self in (Outcome.LISTED, Outcome.WATCHING)


class Happening(LoadModel):
    """A request of a client, or the end of its watch. `at` is by the machine's monotonic clock."""

    client: int = Field(description="from 0")
    at: float
    outcome: Outcome


class Reconnected(LoadModel):
    """The return of many clients to an API server that was restarted."""

    load: Literal["api_server_restarted"] = "api_server_restarted"
    server: str = Field(max_length=63)
    keep_up: Literal["watch", "list"]
    clients: int
    objects: int
    began_at: AwareDatetime
    restarted_at: AwareDatetime
    ended_at: AwareDatetime
    lists: tuple[int, ...] = Field(description="successful LISTs of each client after the restart")
    back_after_s: tuple[float | None, ...] = Field(
        description="by client, from the restart until it was connected and stayed so; None: it never was; 0: it was "
        "never cut off"
    )
    outcomes: dict[Outcome, int] = Field(description="of all clients' requests after the restart")
    cpu_seconds: float = Field(description="user and system time of the clients' process")


def back_after(happenings: Sequence[Happening], restarted: float) -> float | None:
    """Return the seconds from a restart until a client was connected for good; None if it was not, at the end.

    Args:
        happenings: The client's requests after the restart, in order.
        restarted: The restart, by the machine's monotonic clock.
    """
    back: float | None = 0.0
    for one in happenings:
        if not one.outcome.is_connected:
            back = None
        elif back is None:
            back = one.at - restarted
    return back


Measured = Annotated[Followed | SteadyLoad | WebhookOutage | Paused | Reconnected, Field(discriminator="load")]
"""The figures of a load."""
