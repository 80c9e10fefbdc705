"""The order for a process of steady clients, and the lines of its answer."""

from __future__ import annotations

from pydantic import Field

from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.process import Line
from gameday_control_plane.values.api_loads import Protocol, SteadySecond
from gameday_control_plane.values.api_requests import LoadModel


class SteadyOrder(LoadModel):
    """The order for a process of steady clients."""

    server: ApiServer
    path: str = Field(description="of the object that they ask for; of a collection, if they watch")
    clients: int = Field(ge=1)
    rate: float = Field(gt=0, description="requests a second of each")
    protocol: Protocol
    watch_only: bool


class SteadyLine(Line):
    """A line of a process of steady clients; one of its fields is set."""

    connected: bool = Field(default=False, description="every client has had an answer")
    second: SteadySecond | None = None
    cpu_seconds: float | None = Field(default=None, description="user and system time; the last line")

    @property
    def is_last(self) -> bool:
        return self.cpu_seconds is not None
