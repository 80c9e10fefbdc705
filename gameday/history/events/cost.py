"""The sources that a run read, and what it cost them and its own machine."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.history.events.model import EventModel


class ApiCost(EventModel):
    """The run's cost to one server, cumulated since the run started."""

    kind: Literal["api_cost"] = "api_cost"
    server: Literal["kubernetes", "prometheus", "alertmanager", "loki"]
    requests: int
    bytes_received: int
    bytes_sent: int
    by_call: dict[str, int] = Field(description="'VERB resource' -> requests")


class FrameRead(EventModel):
    """The source of a frame's rows, so that every number has its source."""

    kind: Literal["frame_read"] = "frame_read"
    frame: str
    server: str = Field(description="the server that answered")
    query: str = Field(description="as it was asked; for a watch what it selects")
    start: AwareDatetime
    end: AwareDatetime
    step_s: float | None = Field(description="one sample per so many seconds; None: every one there is")
    rows: int


class OwnCost(EventModel):
    """The run's cost to the machine it ran on, from its start to the closing of its frames."""

    kind: Literal["own_cost"] = "own_cost"
    cpu_s: float = Field(description="seconds of processor of the run's process, and of its children that ended")
    peak_rss_bytes: int = Field(description="the most memory that process ever held")
