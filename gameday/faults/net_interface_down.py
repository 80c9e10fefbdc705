"""An interface that is down: `ip link set down`, and the routes and addresses that the kernel drops with it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.network import InterfaceParameters, query, read_link, run_program, target_link
from gameday.host.base import Host
from gameday.host.privileges import HOST_NETWORK, PodSecurity
from gameday.plan.fault import FaultParameters

_CARRIER_TIMEOUT_S = 20.0
"""Links train and the subnet manager answers within seconds. A switch port with spanning tree needs longer, and the
next of the agent's three attempts finds it up."""
_POLL_S = 0.2
_KNOWN_ROUTE = {"dst", "gateway", "table", "protocol", "scope", "prefsrc", "metric", "flags", "pref", "type"}
_KERNEL_PROTOCOLS = ("kernel", "ra")
"""Routes of these protocols come back by themselves: with the address, or with the router's next advertisement."""
_ADDRESS_TYPES = ("local", "broadcast", "multicast", "anycast")
"""Types of route that come with an address, even if an older kernel names no protocol for them."""


class InterfaceDownParameters(InterfaceParameters):
    dangerous: ClassVar[str] = "everything that talks over the interface loses its connections"

    type: Literal["net_interface_down"] = "net_interface_down"


class InterfaceDownFault(Fault[InterfaceDownParameters]):
    """Takes one interface down with `ip link set`, and up again with the routes and addresses that it had.

    It refuses an interface that is down already, that has VLANs on it, that the node needs to reach its API server, or
    that has a route that could not be written again.
    """

    parameters: ClassVar[type[FaultParameters]] = InterfaceDownParameters
    layer: ClassVar[Layer] = Layer.NETWORK
    security: ClassVar[PodSecurity] = HOST_NETWORK
    summary: ClassVar[str] = "Takes one interface down"
    does_not_reach: ClassVar[str] = (
        "the InfiniBand port: without IP over InfiniBand RDMA goes on (docs/sources.md, Networks); the other end of "
        "an Ethernet cable, if the driver keeps the light on; DCGM"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "NetworkInterfaceDown (node_exporter)",
        "Azure's cyclecloud-healthagent (IPoIB operstate, a warning)",
        "NVSentinel's nic-health-monitor, for RoCE and InfiniBand ports only",
        "the canary's pings and the all-reduce over nodes, through the interface",
    )

    def claims(self, parameters: InterfaceDownParameters) -> tuple[Claim, ...]:
        return (Claim(f"the link of {parameters.interface}"),)

    def prior_state(self, parameters: InterfaceDownParameters, gpu: int, host: Host) -> dict[str, str]:
        name = parameters.interface
        found = target_link(parameters, host)
        if not _is_up(found):
            raise HostError(f"{name} is down already ({found.get('operstate')}): there is nothing to take down")
        vlans = [str(vlan.get("ifname")) for vlan in query(host, "ip", "-j", "link", "show", "type", "vlan")]
        if dependent := [vlan for vlan in vlans if read_link(host, vlan).get("link") == name]:
            raise HostError(f"{', '.join(dependent)} lie(s) on {name} and would lose routes; choose that instead")
        routes = {family: _routes(host, name, family) for family in ("-4", "-6")}
        unknown = [route for listed in routes.values() for route in listed if set(route) - _KNOWN_ROUTE]
        if unknown:
            raise HostError(f"{name} has a route that could not be put back exactly: {json.dumps(unknown[0])[:200]}")
        state = {"operstate": found.get("operstate"), "routes": routes, "addresses": _addresses6(host, name)}
        return {"before": json.dumps(state, separators=(",", ":"))}

    def inject(self, parameters: InterfaceDownParameters, gpu: int, host: Host) -> Evidence:
        name, undo_state = parameters.interface, self.prior_state(parameters, gpu, host)
        before = json.loads(undo_state["before"])
        written_at = datetime.now(UTC)
        run_program(host, "ip", "link", "set", "dev", name, "down")
        now = read_link(host, name)
        if _is_up(now):
            raise HostError(f"`ip link set dev {name} down` reported no error, and {name} is still up")
        lines = (
            f"before: {name} {before['operstate']}, {_counted(before)}",
            f"ip link set dev {name} down",
            f"after: {name} {now.get('operstate')}",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=undo_state)

    def undo(self, parameters: InterfaceDownParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        name, before = parameters.interface, json.loads(undo_state.get("before", "{}"))
        run_program(host, "ip", "link", "set", "dev", name, "up")
        self._await_carrier(host, name, before.get("operstate"))
        lines = [f"ip link set dev {name} up: {read_link(host, name).get('operstate')}"]
        for argv in _missing(host, name, before):
            run_program(host, *argv)
            lines.append(" ".join(argv))
        return Evidence(lines=tuple(lines))

    def verify_undone(
        self, parameters: InterfaceDownParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        found, before = read_link(host, parameters.interface), json.loads(undo_state.get("before", "{}"))
        same = not before or found.get("operstate") == before["operstate"]
        return _is_up(found) and same and not _missing(host, parameters.interface, before)

    def _await_carrier(self, host: Host, name: str, operstate: str | None) -> None:
        deadline = time.monotonic() + _CARRIER_TIMEOUT_S
        while operstate and read_link(host, name).get("operstate") != operstate and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _is_up(found: dict[str, Any]) -> bool:
    """Return True if an administrator set the link up, with or without a carrier."""
    return "UP" in found.get("flags", ())


def _routes(host: Host, name: str, family: str) -> list[dict[str, Any]]:
    """Return the routes that somebody added, from every table; the kernel's own come with the addresses.

    Routes to a neighbour come first, because a gateway has to be reachable before a route may name it.
    """
    shown = query(host, "ip", "-j", family, "route", "show", "table", "all", "dev", name)
    added = [
        route
        for route in shown
        if route.get("protocol") not in _KERNEL_PROTOCOLS
        and route.get("type") not in _ADDRESS_TYPES
        and route.get("table") != "local"
    ]
    return sorted(added, key=lambda route: "gateway" in route)


def _addresses6(host: Host, name: str) -> list[str]:
    """Return the global IPv6 addresses that the kernel drops with the link, without a router's, which come back."""
    shown = query(host, "ip", "-j", "-6", "addr", "show", "dev", name, "scope", "global")
    infos = [info for one in shown for info in one.get("addr_info", ()) if info]
    return [f"{info['local']}/{info['prefixlen']}" for info in infos if not info.get("dynamic")]


def _missing(host: Host, name: str, before: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the commands that bring back the addresses and routes that are missing now."""
    now = _addresses6(host, name)
    commands: list[tuple[str, ...]] = [
        ("ip", "-6", "addr", "add", one, "dev", name) for one in before.get("addresses", ()) if one not in now
    ]
    for family, routes in before.get("routes", {}).items():
        present = [_identity(route) for route in _routes(host, name, family)]
        commands += [
            ("ip", family, "route", "replace", *_arguments(route, name))
            for route in routes
            if _identity(route) not in present
        ]
    return commands


def _identity(route: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(route.get(key) for key in ("table", "dst", "gateway", "metric"))


def _arguments(route: dict[str, Any], name: str) -> tuple[str, ...]:
    """Return the arguments of the `ip route replace` that writes the route again."""
    kind = (str(route["type"]),) if "type" in route else ()
    via = ("via", str(route["gateway"])) if "gateway" in route else ()
    keys = {"table": "table", "proto": "protocol", "scope": "scope", "src": "prefsrc"}
    keys |= {"metric": "metric", "pref": "pref"}
    rest = [word for option, key in keys.items() if key in route for word in (option, str(route[key]))]
    onlink = ("onlink",) if "onlink" in route.get("flags", ()) else ()
    return (*kind, str(route["dst"]), *via, "dev", name, *rest, *onlink)


def _counted(before: dict[str, Any]) -> str:
    routes = sum(map(len, before["routes"].values()))
    return f"{routes} route(s) and {len(before['addresses'])} IPv6 address(es) of somebody's own"
