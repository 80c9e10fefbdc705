"""An incident's own facts: its node and window, and how reading each server went.

A silent server and one that saw nothing look alike in the data and mean the opposite. So every source records how
reading it went.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gameday.plain_file import read_plain

INCIDENT_FILE = "incident.json"


class SourceState(StrEnum):
    READ = "read"
    EMPTY = "empty"
    """The source answered but has nothing of this window: expired, or never recorded. Proves nothing."""
    FAILED = "failed"


class SourceReading(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="what was read from which server, e.g. 'alerts (Prometheus)'")
    state: SourceState
    detail: str = ""


class Elsewhere(BaseModel):
    """Signals of other nodes in the window, which show whether the node was alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    count: int = Field(description="nodes for GPU lines, series for alerts")
    unit: str
    examples: tuple[str, ...] = ()


class SilenceSeen(BaseModel):
    """A silence of the window that matches an alert that fired for the node, even if at another time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alert: str
    created_by: str
    comment: str
    start: AwareDatetime
    end: AwareDatetime


class Incident(BaseModel):
    """The content of incident.json. Times are UTC; `sources` are in the order of reading."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    node: str
    start: AwareDatetime
    end: AwareDatetime
    collected_at: AwareDatetime
    operator: str
    cluster: str = Field(description="profile's name and server, without credentials")
    cluster_uid: str | None = Field(description="of the kube-system namespace; None if it could not be read")
    cluster_id: str = Field(default="", description="the same for runs of this cluster; empty if it could not be read")
    virtual: bool = Field(default=False, description="no machine is behind the node")
    server_version: str | None
    gameday_version: str
    command: str
    quarantine_keys: tuple[str, ...] = Field(description="taints that mean quarantine on this cluster")
    sources: tuple[SourceReading, ...]
    elsewhere: tuple[Elsewhere, ...] = ()
    silences: tuple[SilenceSeen, ...] = ()

    def source(self, name: str) -> SourceReading | None:
        return next((source for source in self.sources if source.name == name), None)


def read_incident(folder: Path) -> Incident:
    """Read the folder's incident. Raises OSError, and ValueError for a damaged file."""
    return Incident.model_validate_json(read_plain(folder / INCIDENT_FILE))


def command_line(node: str, start: datetime, end: datetime, profile: str | None) -> str:
    """Return the shell line that collects this window, with instants, because `2h ago` means another one tomorrow."""
    words = ["gameday", "post-mortem", "--node", node, "--from", f"{start:%Y-%m-%dT%H:%M:%SZ}"]
    words += ["--to", f"{end:%Y-%m-%dT%H:%M:%SZ}", *(["--profile", profile] if profile else [])]
    return shlex.join(words)
