"""What the faults on a node's network share: iproute2 as JSON, and which interfaces the node lives by.

Links are asked of `ip` in the host's namespaces and not of /sys/class/net: a
pod's sysfs shows the interfaces of the pod's own network.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from gameday.host.base import Host, HostError
from gameday.plan.canary import INTERFACE_NAME
from gameday.plan.models import FaultParameters

_WITHIN_S = 10.0
_SAID_CHARACTERS = 300
_LOOPBACK = "lo"


class InterfaceParameters(FaultParameters):
    interface: str = Field(pattern=INTERFACE_NAME)
    """Name of the interface on the node, like ib0, bond0 or eth0."""
    control_plane: bool = False
    """Also if the node lives by this interface: its default route or its kubelet's way to the API server."""

    def dangers(self) -> dict[str, str]:
        why = f"{self.interface} may carry the node's own way to the API server, and so the order to end the fault"
        return super().dangers() | ({self.type: why} if self.control_plane else {})


def ask(host: Host, *argv: str) -> list[dict[str, Any]]:
    """What a program of iproute2 with -j printed. Raises HostError for a refusal, and for what is no list."""
    printed = run(host, *argv)
    try:
        found = json.loads(printed or "[]")
    except ValueError:
        raise HostError(f"{' '.join(argv)} printed no JSON: {printed[:80]!r}; iproute2 5 or newer is needed") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise HostError(f"{' '.join(argv)} printed no list of objects: {printed[:80]!r}")
    return [one for one in found if one]  # `ip -j link show master X` prints an empty object where there is none


def run(host: Host, *argv: str) -> str:
    """Its standard output. Raises HostError, in the program's own words, when it refuses."""
    done = host.run(argv, _WITHIN_S)
    if done.exit_status:
        said = " ".join((done.stderr or done.stdout).split())[:_SAID_CHARACTERS]
        raise HostError(f"{' '.join(argv)}: exit {done.exit_status}: {said}")
    return done.stdout


def link(host: Host, name: str) -> dict[str, Any]:
    """Raises HostError where there is no such interface, naming it."""
    found = ask(host, "ip", "-j", "link", "show", "dev", name)
    if not found:
        raise HostError(f"ip tells nothing of an interface {name}")
    return found[0]


def target(parameters: InterfaceParameters, host: Host) -> dict[str, Any]:
    """The interface's link, where the fault may go in. Raises HostError where the node lives by it, and says why."""
    found = link(host, parameters.interface)
    why = lifelines(host).get(parameters.interface)
    if why and not parameters.control_plane:
        raise HostError(
            f"{parameters.interface} is not touched: {why}, so the order to end the fault would come through it too; "
            "choose another interface, or set control_plane: true and allow the danger"
        )
    return found


def lifelines(host: Host) -> dict[str, str]:
    """The interfaces that the node lives by, and why: default route, kubelet's connections, and what lies below them.

    Raises HostError where that cannot be told.
    """
    found = {_LOOPBACK: "the node talks to itself over it"}
    for family in ("-4", "-6"):
        for route in ask(host, "ip", "-j", family, "route", "show", "default"):
            for hop in (route, *route.get("nexthops", ())):
                if "dev" in hop:
                    found.setdefault(str(hop["dev"]), "it carries the node's default route")
    for peer in _kubelets_peers(host):
        for route in ask(host, "ip", "-j", "route", "get", peer):
            found.setdefault(str(route.get("dev")), f"it carries the kubelet's connection to {peer}")
    for name in [name for name in found if name != _LOOPBACK]:
        below = [link(host, name).get("link"), *_members(host, name)]
        for lower in filter(None, below):
            found.setdefault(str(lower), f"{name} lies on it, and {found[name]}")
    return found


def _members(host: Host, name: str) -> list[str]:
    return [str(one.get("ifname")) for one in ask(host, "ip", "-j", "link", "show", "master", name)]


def _kubelets_peers(host: Host) -> Iterator[str]:
    """Addresses that the kubelet is connected to, but for the machine's own."""
    seen: set[str] = set()
    for line in run(host, "ss", "-Htnp", "state", "established").splitlines():
        columns = line.split()
        if len(columns) < 5 or '"kubelet"' not in columns[4]:
            continue
        try:
            peer = ipaddress.ip_address(columns[3].rpartition(":")[0].strip("[]").partition("%")[0])
        except ValueError:
            raise HostError(f"ss tells of a connection of the kubelet to {columns[3][:60]!r}, no address") from None
        mapped = getattr(peer, "ipv4_mapped", None) or peer
        if not mapped.is_loopback and str(mapped) not in seen:
            seen.add(str(mapped))
            yield str(mapped)
