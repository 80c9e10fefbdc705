"""Requests to the API server as our own clients measured them: the load's and the API canary's."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.api_clients.connection import ErrorWord

RequestVerb = Literal["list", "create", "update", "delete"]
"""The verb of a client's request, as in Kubernetes' rights."""

CanaryCall = Literal["readyz", "get", "put", "list"]
"""The API canary's calls: /readyz, GET a ConfigMap, PUT a Lease, LIST one object."""

HAND_OVER_S = 0.2
"""Longest time for which a client still reads what the server has already written: the kernel's socket buffers hold
some megabytes. On a real API server limited to two LISTs of 27 MB, three overlapped for 0.09 s at most."""


def api_canary_lease(run_id: str) -> str:
    """Return the name of the Lease that a run's API canary writes."""
    return f"api-canary-{run_id}"


class LoadModel(BaseModel):
    """Base of the messages between the agent and its client processes, and of their notes; takes no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ApiRequest(LoadModel):
    """A request of a client.

    `start`, `first_byte` and `end` are seconds of the machine's monotonic clock, which all its processes share.
    """

    client: int = Field(description="from 0")
    round: int = Field(description="the client's LIST, from 0; a repeated one keeps its number")
    attempt: int = Field(description="from 1")
    verb: RequestVerb = "list"
    sent_at: AwareDatetime = Field(description="wall clock at `start`")
    start: float
    first_byte: float | None = Field(description="None: no answer began")
    end: float
    status: int = Field(description="0: no answer began")
    bytes: int = Field(description="of the body, as they came over the wire")
    retry_after_s: float | None = None
    flow_schema: str = Field(default="", max_length=64, description="UID, from X-Kubernetes-PF-FlowSchema-UID")
    priority_level: str = Field(default="", max_length=64, description="UID, from X-Kubernetes-PF-PriorityLevel-UID")
    error: ErrorWord = ""

    @property
    def seconds(self) -> float:
        """Time from the request's start to the end of its answer."""
        return self.end - self.start

    @property
    def is_served(self) -> bool:
        """True if the whole answer came, and is a success."""
        return 200 <= self.status < 300 and not self.error

    @property
    def ended_at(self) -> datetime:
        """The end of the answer, by the wall clock of the request's start."""
        return self.sent_at + timedelta(seconds=self.seconds)


class LoadStage(LoadModel):
    """A finished stage of a load."""

    clients: int = Field(description="that asked at the same time")
    began_at: AwareDatetime
    ended_at: AwareDatetime = Field(description="the last answer's end")
    until: AwareDatetime = Field(description="the end of the pause after it: what was scraped up to here is its own")


class ApiCanarySample(LoadModel):
    """The sample of an API canary's request, or of one that it could not send in time."""

    kind: CanaryCall
    sent_at: AwareDatetime = Field(description="wall clock; of a missed one, the moment it was due")
    seconds: float = Field(description="until the whole answer was read, or the request was given up")
    status: int = Field(description="0: no answer")
    error: ErrorWord = Field(default="", description="why there is no whole answer; empty: there is one")
    missed: bool = Field(
        default=False,
        description="due while the request before it was under way, and never sent: it would have waited for that one "
        "at least, so its seconds are from its moment to that one's end, with that one's kind, status and error",
    )

    @property
    def is_served(self) -> bool:
        """True if the whole answer came, and is a success."""
        return 200 <= self.status < 300 and not self.error

    @property
    def ended_at(self) -> datetime:
        """The end of the answer, by the wall clock of the request's start."""
        return self.sent_at + timedelta(seconds=self.seconds)


def max_overlap(requests: Iterable[ApiRequest], longer_than_s: float = 0.0) -> int:
    """Return the largest number of answers that were under way at the same time, from first byte to end.

    A streamed answer begins when the server begins to work on it, so this is how many it worked on. An answer that is
    encoded as a whole (YAML, Table) begins when most of the work is done, so this is the least that it worked on. Only
    answers of status 200 count, because a refusal is no work. An answer that ends at the moment when another begins no
    longer counts.

    Args:
        requests: The log, in any order.
        longer_than_s: Shorter spells do not count; `HAND_OVER_S` leaves out what the server had already done.
    """
    changes = []
    for request in requests:
        if request.first_byte is not None and request.status == 200 and request.first_byte < request.end:
            changes += [(request.first_byte, 1), (request.end, -1)]
    most = 0
    rose_at: list[float] = []  # the moments at which the number under way rose to 1, 2, 3 ...
    for moment, change in sorted(changes):
        if change > 0:
            rose_at.append(moment)
        elif moment - rose_at.pop() > longer_than_s:
            most = max(most, len(rose_at) + 1)
    return most


def busy_seconds(requests: Iterable[ApiRequest]) -> float:
    """Return the time in which at least one of the requests was under way, from its start to its end."""
    busy, reached = 0.0, float("-inf")
    for start, end in sorted((request.start, request.end) for request in requests):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return busy


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least `share` (0 to 1) of all values do not exceed; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = -(-len(ordered) * round(share * 100) // 100)
    return ordered[max(0, rank - 1)]
