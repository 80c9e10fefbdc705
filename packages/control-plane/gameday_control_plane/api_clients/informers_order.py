"""The order for a process of clients that keep up with many objects, and the lines of its answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.process import Line
from gameday_control_plane.values.api_loads import Happening
from gameday_control_plane.values.api_requests import LoadModel


class InformersOrder(LoadModel):
    """The order for a process of such clients."""

    server: ApiServer
    path: str = Field(description="of the collection")
    clients: int = Field(ge=1)
    keep_up: Literal["watch", "list"]
    interval_s: float = Field(gt=0, description="between two LISTs, for clients without a watch")


class InformersLine(Line):
    """A line of such a process; one of its fields is set."""

    happened: Happening | None = None
    cpu_seconds: float | None = Field(default=None, description="user and system time; the last line")

    @property
    def is_last(self) -> bool:
        return self.cpu_seconds is not None
