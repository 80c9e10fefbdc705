"""The contract between the agent and its client processes: an order, and lines."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import Form, Read
from gameday_control_plane.api_clients.process import Line
from gameday_control_plane.values.api_requests import ApiRequest, LoadModel


class ListOrder(LoadModel):
    """The LIST of a storm, who sends it, and how often."""

    server: ApiServer
    resource: str
    form: Form
    read: Read
    resource_version: str = Field(default="", description="for Read.EXACT")
    rounds: int = Field(ge=1, description="LISTs of each client")
    starts_over_s: float = Field(default=0.0, ge=0, description="time over which the clients' first LISTs are spread")
    headers: tuple[tuple[str, str], ...] = Field(default=(), description="beside the client's own")


class ClientsOrder(LoadModel):
    """The order for one client process."""

    lists: ListOrder
    clients: tuple[int, ...] = Field(min_length=1, description="their numbers")


class OwnCost(LoadModel):
    """The cost of the load's own processes."""

    cpu_seconds: float = Field(description="user and system time")
    rss_bytes: int = Field(description="the most resident memory, of all processes together")

    def __add__(self, other: OwnCost) -> OwnCost:
        return OwnCost(
            cpu_seconds=round(self.cpu_seconds + other.cpu_seconds, 3), rss_bytes=self.rss_bytes + other.rss_bytes
        )


def one_after_another(costs: Sequence[OwnCost]) -> OwnCost:
    """Return the cost of groups of processes that ran one after the other; at least one."""
    return OwnCost(
        cpu_seconds=round(sum(cost.cpu_seconds for cost in costs), 3), rss_bytes=max(cost.rss_bytes for cost in costs)
    )


class ClientsLine(Line):
    """A line of a process with some clients of a storm; one of its fields is set."""

    sent: int | None = Field(default=None, description="a client that has fully sent its request")
    request: ApiRequest | None = None
    cost: OwnCost | None = Field(default=None, description="the last line")

    @property
    def is_last(self) -> bool:
        return self.cost is not None
