"""The host boundary: the only way in which the agent reaches the machine it runs on.

`RealHost` is a GPU node; `VirtualHost` reaches the model of one in a rehearsal. Everything above this boundary is the
same program in both. The imports below are lazy because the agent starts once in each pod, and the virtual host needs
neither NVML nor CuPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gameday.host.base import Host

VIRTUAL_HOST_VARIABLE = "GAMEDAY_VIRTUAL_HOST"


def open_host(environment: Mapping[str, str]) -> Host:
    """Return the virtual host that GAMEDAY_VIRTUAL_HOST names, or the machine that this process runs on.

    Raises:
        HostError: The variable is set, but not to an http URL.
    """
    url = environment.get(VIRTUAL_HOST_VARIABLE, "")
    if url:
        from gameday.host.virtual import VirtualHost  # noqa: PLC0415

        return VirtualHost(url, environment)
    from gameday.host.real import RealHost  # noqa: PLC0415

    return RealHost(environment=environment)
