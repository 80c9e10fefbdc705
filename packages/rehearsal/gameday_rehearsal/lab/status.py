"""The state of a lab's components, asked from outside: the supervisor's file, and the components' answers."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gameday_rehearsal.lab.supervisor import COMPONENTS_FILE

# The metrics of 1,000 virtual nodes take seconds.
_ANSWERS_WITHIN_S = 5.0


@dataclass(frozen=True)
class ComponentStatus:
    name: str
    pid: int | None
    """The component's process id; None between a crash and the next start."""
    version: str
    ready: bool
    restarts: int
    uptime_s: float
    log: str


def ask(folder: Path) -> list[ComponentStatus]:
    """Return the components' states in their order of start; empty if nothing was started.

    `folder` is the control plane's.
    """
    try:
        components: Mapping[str, Any] = json.loads((folder / COMPONENTS_FILE).read_text(encoding="utf-8"))
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except (OSError, ValueError):  # it is starting or ending just now
        return []
    with (
        httpx.Client(verify=tls, trust_env=False, timeout=_ANSWERS_WITHIN_S) as http,
        ThreadPoolExecutor(max(1, len(components))) as pool,
    ):
        return list(pool.map(lambda name: _ask(http, name, components[name]), components))


def ready_urls(folder: Path) -> dict[str, str]:
    """Return by component name the URL that answers 200 once it serves.

    `folder` is that of a started control plane. Raises OSError.
    """
    components = json.loads((folder / COMPONENTS_FILE).read_text(encoding="utf-8"))
    return {name: component["ready_url"] for name, component in components.items()}


def _ask(http: httpx.Client, name: str, component: Mapping[str, Any]) -> ComponentStatus:
    return ComponentStatus(
        name,
        component["pid"],
        component["version"],
        component["pid"] is not None and _answers(http, component["ready_url"]),
        component["restarts"],
        round(time.time() - component["started_at"], 1) if component["pid"] is not None else 0.0,
        component["log"],
    )


def _answers(http: httpx.Client, url: str) -> bool:
    try:
        return http.get(url).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
