"""Power-cycle a node by its BMC, over Redfish (DMTF DSP0266; the action is ComputerSystem.Reset)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from gameday.cluster.http import HttpServer
from gameday.errors import AdapterError
from gameday_health.episodes.policy import Bmc

# A path only: our credentials must not follow an answer to another address.
_Path = Annotated[str, Field(pattern=r"^/redfish/v1/[A-Za-z0-9._~/-]+$", max_length=500)]
_SYSTEMS = "/redfish/v1/Systems"
# The first that the BMC allows. PowerCycle takes the power away, ForceRestart resets the board. Both help a GPU that a
# boot of the operating system leaves as it is, and the first one does so more often.
_RESETS = ("PowerCycle", "ForceRestart")


class _Link(BaseModel):
    path: _Path = Field(alias="@odata.id")


class _Systems(BaseModel):
    members: list[_Link] = Field(alias="Members", max_length=100)


class _Reset(BaseModel):
    target: _Path
    allowed: list[str] = Field(default=list(_RESETS[1:]), alias="ResetType@Redfish.AllowableValues", max_length=50)


class _Actions(BaseModel):
    reset: _Reset = Field(alias="#ComputerSystem.Reset")


class _System(BaseModel):
    power: str = Field(default="", alias="PowerState")
    actions: _Actions = Field(alias="Actions")


def power_cycle(bmc: Bmc, node: str) -> str:
    """Order a power cycle of the node, once; return in words what was ordered.

    The BMC's acceptance proves nothing: only another boot of the node does.

    Raises:
        AdapterError: The BMC does not answer, refuses, or has no such machine.
    """
    endpoint = bmc.endpoint_of(node)
    server = HttpServer(endpoint)
    try:
        path = bmc.system or _only_system(server, endpoint.url)
        system = server.get_as(_System, path)
        kind = _kind_of(system, endpoint.url)
        server.post(system.actions.reset.target, {"ResetType": kind})
    finally:
        server.close()
    return f"{kind} ordered of {endpoint.url}{path}"


def _only_system(server: HttpServer, url: str) -> str:
    members = server.get_as(_Systems, _SYSTEMS).members
    if len(members) != 1:
        raise AdapterError(url, f"it has {len(members)} systems", "name one in the policy's bmc.system")
    return members[0].path


def _kind_of(system: _System, url: str) -> str:
    if system.power == "Off":
        return "On"
    allowed = system.actions.reset.allowed
    kind = next((kind for kind in _RESETS if kind in allowed), None)
    if kind is None:
        raise AdapterError(url, f"its system takes neither of {', '.join(_RESETS)}")
    return kind
