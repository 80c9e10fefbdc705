"""`ip` and `ss` on the model: links, routes, addresses and neighbours as JSON, and the few changes that faults make."""

from __future__ import annotations

import json
from typing import Any

from gameday_rehearsal.nodes.machine import KUBELET, Machine
from gameday_rehearsal.nodes.network import API_SERVER, UPLINK, Interface, Route
from gameday_rehearsal.nodes.programs.base import Printed, Refused

_FAILED, _USAGE = 2, 255


async def ip(args: list[str], machine: Machine) -> Printed:
    six = "-6" in args
    words = [arg for arg in args if arg not in ("-j", "-4", "-6")]
    if words[:1] == ["link"]:
        return _links(words[1:], machine)
    if words[:1] == ["route"]:
        return _routes(words[1:], machine, six=six)
    match words:
        case ["addr", "show", "dev", name, "scope", "global"]:
            return _json([{"ifname": name, "addr_info": _addresses(_interface(machine, name), six=six)}])
        case ["addr", "add", address, "dev", name]:
            _interface(machine, name).address6 = address.partition("/")[0]
            return Printed()
        case ["neigh", "show", "dev", name]:
            interface = _interface(machine, name)
            peer = {"dst": machine.network.neighbour(name), "lladdr": interface.mac, "state": ["REACHABLE"]}
            return _json([peer] if interface.up else [])
    raise _unknown(words)


async def ss(args: list[str], machine: Machine) -> Printed:
    """Run `ss -Htnp state established`, which shows only the kubelet's connection."""
    if not machine.is_active(KUBELET):
        return Printed()
    own = machine.network.interfaces[UPLINK].address
    return Printed(stdout=f'0 0 {own}:41872 {API_SERVER}:6443 users:(("kubelet",pid=1423,fd=12))\n')


def _links(words: list[str], machine: Machine) -> Printed:
    match words:
        case ["show", "dev", name]:
            return _json([_link(_interface(machine, name))])
        case ["show", "master", name]:
            _interface(machine, name)
            return _json([])
        case ["show", "type", "vlan"]:
            return _json([])
        case ["set", "dev", name, ("up" | "down") as state]:
            _interface(machine, name)
            if name == UPLINK:
                said = "RTNETLINK answers: Operation not supported: the virtual kubelet has no network of its own\n"
                raise Refused(Printed(stderr=said, exit_status=_FAILED))
            machine.network.set_link(name, up=state == "up")
            return Printed()
    raise _unknown(words)


def _routes(words: list[str], machine: Machine, *, six: bool) -> Printed:
    match words:
        case ["show", "default"]:
            routes = [] if six else machine.network.routes(UPLINK)
            return _json([_route(route) | {"dev": route.device} for route in routes if route.gateway])
        case ["show", "table", "all", "dev", name]:
            interface = _interface(machine, name)
            return _json(_routes6(interface) if six else _routes4(machine, interface))
        case ["get", address]:
            route = machine.network.route_to(address)
            if route is None:
                raise Refused(Printed(stderr="RTNETLINK answers: Network is unreachable\n", exit_status=_FAILED))
            return _json([{"dst": address, "dev": route.device, "flags": [], "uid": 0, "cache": []}])
        case ["replace", destination, "via", gateway, "dev", name, *rest]:
            if not _interface(machine, name).up:
                raise Refused(Printed(stderr="Error: Device for nexthop is not up.\n", exit_status=_FAILED))
            table = dict(zip(rest[::2], rest[1::2], strict=False)).get("table", "")
            machine.network.replace_route(Route(destination, name, gateway, table=table))
            return Printed()
    raise Refused(
        Printed(stderr=f'Object "{" ".join(words)[:60]}" is unknown to the virtual ip.\n', exit_status=_USAGE)
    )


def _unknown(words: list[str]) -> Refused:
    stderr = f'Object "{" ".join(words)[:60]}" is unknown to the virtual ip.\n'
    return Refused(Printed(stderr=stderr, exit_status=_USAGE))


def _interface(machine: Machine, name: str) -> Interface:
    if found := machine.network.interfaces.get(name):
        return found
    raise Refused(Printed(stderr=f'Device "{name}" does not exist.\n', exit_status=1))


def _link(one: Interface) -> dict[str, Any]:
    qdisc = one.qdiscs()[0]["kind"]
    return {
        "ifindex": one.index,
        "ifname": one.name,
        "flags": one.flags,
        "mtu": one.mtu,
        "qdisc": qdisc,
        "operstate": one.operstate,
        "linkmode": "DEFAULT",
        "group": "default",
        "txqlen": 1000,
        "link_type": one.link_type,
        "address": one.mac,
    }


def _addresses(one: Interface, *, six: bool) -> list[dict[str, Any]]:
    found = [("inet6", one.address6, 64)] if six else [("inet", one.address, one.prefix)]
    return [
        {"family": family, "local": local, "prefixlen": prefix, "scope": "global", "valid_life_time": 4294967295}
        for family, local, prefix in found
        if local
    ]


def _route(route: Route) -> dict[str, Any]:
    if route.source:
        own = {"dst": route.destination, "protocol": "kernel", "scope": "link", "prefsrc": route.source}
        return own | {"flags": []}
    table = {"table": route.table} if route.table else {}
    return {"dst": route.destination, "gateway": route.gateway, **table, "protocol": "static", "flags": []}


def _routes4(machine: Machine, one: Interface) -> list[dict[str, Any]]:
    local = {"type": "local", "dst": one.address, "table": "local", "protocol": "kernel", "scope": "host"}
    return [*map(_route, machine.network.routes(one.name)), local | {"prefsrc": one.address, "flags": []}]


def _routes6(one: Interface) -> list[dict[str, Any]]:
    networks = ["fe80::/64", *([f"{one.address6.partition('::')[0]}::/64"] if one.address6 else [])]
    shown = [{"dst": net, "protocol": "kernel", "metric": 256, "flags": [], "pref": "medium"} for net in networks]
    return shown if one.up else []


def _json(found: list[dict[str, Any]]) -> Printed:
    return Printed(stdout=json.dumps(found) + "\n")
