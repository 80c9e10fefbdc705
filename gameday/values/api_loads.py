"""The figures that a load on the API server takes of itself, in its injector's log and in the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.values.api_requests import LoadModel


class FollowMode(StrEnum):
    """The way in which a client keeps up with many objects."""

    POLL = "poll"
    POLL_CACHED = "poll-cached"
    PAGES = "pages"
    INFORMER = "informer"
    METADATA = "metadata"

    @property
    def watches(self) -> bool:
        """True of a client that asks for everything once, and hears of changes from then on."""
        return self in (FollowMode.INFORMER, FollowMode.METADATA)


class Traffic(LoadModel):
    """A client's requests and their cost, over some time."""

    lists: int = Field(default=0, description="requests; of one in pages each page")
    watches: int = 0
    gets: int = 0
    failed: int = Field(default=0, description="of these: without a whole answer, or with one that is no success")
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
    """The cost of following many objects to a client, and how soon it saw each change."""

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
    unseen: int = Field(description="writes whose change was never seen")


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

    A watch can bring a change before its writer has the answer: that is 0.
    """
    by_name: defaultdict[str, list[Sighting]] = defaultdict(list)
    for one in sorted(seen, key=lambda sighting: sighting.at):
        by_name[one.name].append(one)
    found = []
    for write in writes:
        first = next((one for one in by_name[write.name] if one.version >= write.version), None)
        found.append(max(0.0, first.at - write.at) if first else None)
    return found
