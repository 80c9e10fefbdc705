"""The changes that people made at the Prefect server since the last deploy; the next deploy keeps them.

For each deployment and automation a Prefect variable holds digests of what the files said at the last deploy. If a
value at the server equals neither that nor the files' present value, a person set it. Prefect itself remembers no
such thing: a second deploy replaces schedules, also paused ones by active ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import VariableCreate, VariableUpdate

from gameday.text import printable

TAG = "gpu-gameday"
"""Tag of every variable and automation of ours."""
Settings = Mapping[str, Any]
"""The JSON values of a deployment or an automation that a person may change, by name."""
_LONGEST_NAME = 255
"""The most characters of a Prefect variable's name (prefect.types.names)."""


@dataclass(frozen=True)
class Registered:
    """The result of a deploy."""

    names: list[str]
    """Names of the deployments, as Prefect has them (flow/deployment), and of the automations."""
    kept: list[str]
    """A line for each setting that people changed at the server, and that was kept."""

    def __add__(self, other: Registered) -> Registered:
        return Registered([*self.names, *other.names], [*self.kept, *other.kept])


def changed_by_people(files: Settings, there: Settings, last: Mapping[str, str]) -> list[str]:
    """Return the names of the settings that somebody changed, added or deleted at the server.

    Args:
        files: What the files say now.
        there: What the server has.
        last: Digests of what the files said at the last deploy.
    """
    wanted, found = digests_of(files), digests_of(there)
    return [name for name in {**files, **there} if found.get(name) not in (wanted.get(name), last.get(name))]


def digests_of(settings: Settings) -> dict[str, str]:
    """Return a digest of each setting; a Prefect variable takes no more than 5,000 characters."""
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
        for name, value in settings.items()
    }


def kept_lines(of: str, names: list[str], files: Settings, there: Settings) -> list[str]:
    """Return a line for each setting that is kept: the server's value and the files'."""

    def said(settings: Settings, name: str) -> str:
        return printable(json.dumps(settings[name], ensure_ascii=False, default=str)) if name in settings else "none"

    return [f"{of}: kept {name}: {said(there, name)} (the files say: {said(files, name)})" for name in names]


def read_last(client: SyncPrefectClient, of: str) -> dict[str, str] | None:
    """Return the digests of the last deploy, or None if there was none or Prefect's own command made it."""
    variable = client.read_variable_by_name(_variable(of))
    return variable.value if variable and isinstance(variable.value, dict) else None


def remember(client: SyncPrefectClient, of: str, files: Settings) -> None:
    """Store the digests of what the files say. Raises httpx.HTTPError."""
    name, value = _variable(of), digests_of(files)
    if client.read_variable_by_name(name):
        client.update_variable(VariableUpdate(name=name, value=value))
    else:
        client.create_variable(VariableCreate(name=name, value=value, tags=[TAG]))


def _variable(of: str) -> str:
    return f"gameday-deployed-{re.sub('[^a-z0-9]+', '-', of.lower())}"[:_LONGEST_NAME].strip("-")
