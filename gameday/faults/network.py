"""Functions that the faults on a node's network share: iproute2 as JSON, and the interfaces that the node needs.

Links are read by `ip` in the host's namespaces, not from /sys/class/net: a pod's sysfs shows the pod's own network.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from pydantic import Field

from gameday.errors import HostError
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.measures import INTERFACE_NAME

_TIMEOUT_S = 10.0
_OUTPUT_CHARACTERS = 300
_LOOPBACK = "lo"
_KUBELETS_PORT = "10250"
"""The port that others connect to (KubeletConfiguration's default for `port`)."""
_ALLOW = "set control_plane: true and allow the danger"


class InterfaceParameters(FaultParameters):
    """Base of the parameters of faults on one interface."""

    interface: str = Field(pattern=INTERFACE_NAME)
    """Name of the interface on the node, like ib0, bond0 or eth0."""
    control_plane: bool = False
    """Allow an interface that the node needs for its default route or its kubelet's way to the API server, and a
    node on which these cannot be found out."""

    def dangers(self) -> dict[str, str]:
        why = f"{self.interface} may carry the node's own way to the API server, and so the order to end the fault"
        return super().dangers() | ({self.type: why} if self.control_plane else {})


def query(host: Host, *argv: str) -> list[dict[str, Any]]:
    """Run a program of iproute2 with -j, and return its output. Raises HostError if that is not a list."""
    printed = run_program(host, *argv)
    try:
        found = json.loads(printed or "[]")
    except ValueError:
        raise HostError(f"{' '.join(argv)} printed no JSON: {printed[:80]!r}; iproute2 5 or newer is needed") from None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise HostError(f"{' '.join(argv)} printed no list of objects: {printed[:80]!r}")
    return [one for one in found if one]  # `ip -j link show master X` prints an empty object if there is none


def run_program(host: Host, *argv: str) -> str:
    """Run a program and return its standard output. Raises HostError with its output if it fails."""
    done = host.run(argv, _TIMEOUT_S)
    if done.exit_status:
        output = " ".join((done.stderr or done.stdout).split())[:_OUTPUT_CHARACTERS]
        raise HostError(f"{' '.join(argv)}: exit {done.exit_status}: {output}")
    return done.stdout


def read_link(host: Host, name: str) -> dict[str, Any]:
    """Return an interface's link as `ip` shows it. Raises HostError if there is no such interface."""
    found = query(host, "ip", "-j", "link", "show", "dev", name)
    if not found:
        raise HostError(f"ip shows no interface {name}")
    return found[0]


def target_link(parameters: InterfaceParameters, host: Host) -> dict[str, Any]:
    """Return the link of the plan's interface. Raises HostError if the node needs it, and says why."""
    found = read_link(host, parameters.interface)
    why = None if parameters.control_plane else essential_interfaces(host).get(parameters.interface)
    if why:
        raise HostError(
            f"{parameters.interface} is not touched: {why}, so the order to end the fault would come through it too; "
            f"choose another interface, or {_ALLOW}"
        )
    return found


def essential_interfaces(host: Host) -> dict[str, str]:
    """Return the interfaces that the node needs, with the reason: default route, kubelet, and those below them.

    Raises:
        HostError: They cannot be found out.
    """
    found = {_LOOPBACK: "the node connects to itself over it"}
    for family in ("-4", "-6"):
        for route in query(host, "ip", "-j", family, "route", "show", "default"):
            for hop in (route, *route.get("nexthops", ())):
                if "dev" in hop:
                    found.setdefault(str(hop["dev"]), "it carries the node's default route")
    for peer in _kubelets_peers(host):
        for route in query(host, "ip", "-j", "route", "get", peer):
            found.setdefault(str(route.get("dev")), f"it carries the kubelet's connection to {peer}")
    for top in [name for name in found if name != _LOOPBACK]:
        below = [top]
        for name in below:  # the list grows during the loop: a VLAN may be on a bond of two ports
            lower = [one for one in _directly_below(host, name) if one not in found]
            found |= dict.fromkeys(lower, f"{top} lies on it, and {found[top]}")
            below += lower
    return found


def _directly_below(host: Host, name: str) -> list[str]:
    """Return a VLAN's parent, and a bond's or bridge's members."""
    parent = read_link(host, name).get("link")
    members = query(host, "ip", "-j", "link", "show", "master", name)
    return [*([str(parent)] if parent else []), *(str(one.get("ifname")) for one in members)]


def _kubelets_peers(host: Host) -> list[str]:
    """Return the addresses that the kubelet is connected to, without the machine's own.

    Raises:
        HostError: There are none, so its way to the API server is unknown.
    """
    peers: dict[str, None] = {}
    connects = False
    for line in run_program(host, "ss", "-Htnp", "state", "established").splitlines():
        columns = line.split()
        if len(columns) < 5 or '"kubelet"' not in columns[4]:
            continue
        try:
            peer = ipaddress.ip_address(columns[3].rpartition(":")[0].strip("[]").partition("%")[0])
        except ValueError:
            raise HostError(f"ss shows a connection of the kubelet to {columns[3][:60]!r}, no address") from None
        mapped = getattr(peer, "ipv4_mapped", None) or peer
        if not mapped.is_loopback:
            peers[str(mapped)] = None
            connects = connects or columns[2].rpartition(":")[2] != _KUBELETS_PORT
    if not connects:
        raise HostError(
            "no connection of a process `kubelet` to the API server is seen (ss): it runs within another program, as "
            "k3s' does, or goes by way of a proxy on this node, so the interface that the node needs is not known; "
            f"if it is another than the plan's, {_ALLOW}"
        )
    return list(peers)
