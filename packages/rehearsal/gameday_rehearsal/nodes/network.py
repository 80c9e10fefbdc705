"""The network of a virtual machine: interfaces, their queues and routes, and what happens to a packet on its way.

It has one Ethernet interface for the node, and an InfiniBand rail for each GPU with IP over it, like an HGX host. Only
the effects of traffic control and links on the IP stack are modelled. RDMA does not pass here, and the virtual
kubelet does not use this network, so a slow `eth0` does not slow it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gameday.errors import HostError

UPLINK = "eth0"
API_SERVER = "10.64.255.10"
"""The address of the kubelet's connections, as `ss` lists them."""
_GATEWAY = "10.64.255.254"
WIRE_S = 0.00008
"""Round trip to a neighbour: our choice, of the order of an idle data-centre network."""
WINDOW_BYTES = 6 << 20
"""Bytes of a TCP connection that are under way at once."""
_FQ_CODEL = {
    "limit": 10240,
    "flows": 1024,
    "quantum": 1514,
    "target": 4999,
    "interval": 99999,
    "memory_limit": 33554432,
    "ecn": True,
    "drop_batch": 64,
}
_UPLINK_QUEUES = 4


@dataclass
class Qdisc:
    """A root qdisc that somebody set; `options` in the form of `tc -j`: seconds, shares of one, bytes a second."""

    kind: str
    handle: str
    options: dict[str, Any]


@dataclass(frozen=True, order=True)
class Route:
    """A route. `source` is set on the kernel's own route to the interface's network; `table` is empty for main."""

    destination: str
    device: str
    gateway: str = ""
    source: str = ""
    table: str = ""


@dataclass
class Interface:
    name: str
    index: int
    link_type: str
    mac: str
    address: str
    prefix: int
    mtu: int
    address6: str = ""
    up: bool = True
    qdisc: Qdisc | None = None  # None: the kernel's own default
    carrier_changes: int = 1
    packets: int = 1_000_000
    busy_until: float = 0.0  # monotonic seconds at which the queue has sent the last byte of the connections through it

    @property
    def operstate(self) -> str:
        return "UP" if self.up else "DOWN"

    @property
    def flags(self) -> list[str]:
        return ["BROADCAST", "MULTICAST", *(["UP", "LOWER_UP"] if self.up else [])]

    @property
    def network(self) -> str:
        return f"{self.address.rsplit('.', 2)[0]}.0.0/{self.prefix}"

    def qdiscs(self) -> list[dict[str, Any]]:
        """Return the queueing disciplines as `tc -j qdisc show dev NAME` lists them."""
        if self.qdisc:
            own = {"kind": self.qdisc.kind, "handle": self.qdisc.handle, "root": True, "refcnt": 2}
            return [own | {"options": self.qdisc.options}]
        if self.name != UPLINK:
            return [{"kind": "fq_codel", "handle": "0:", "root": True, "refcnt": 2, "options": _FQ_CODEL}]
        children = [
            {"kind": "fq_codel", "handle": "0:", "parent": f":{queue}", "options": _FQ_CODEL}
            for queue in range(_UPLINK_QUEUES, 0, -1)
        ]
        return [{"kind": "mq", "handle": "0:", "root": True, "options": {}}, *children]


@dataclass
class Network:
    """A machine's network, as after a boot: everything up, only the kernel's defaults in the queues."""

    interfaces: dict[str, Interface]
    static: list[Route] = field(default_factory=list)

    @classmethod
    def booted(cls, machine: int, gpus: int) -> Network:
        """Return it after a boot; `machine` gives the addresses: 10.64.x.y (Ethernet), 10.(128+rail).x.y (rails)."""
        high, low = divmod(machine, 250)
        host = f"{high}.{low + 1}"
        mac = f"{high:02x}:{low + 1:02x}"
        uplink = Interface(UPLINK, 2, "ether", f"02:42:0a:40:{mac}", f"10.64.{host}", 16, 1500)
        rails = [
            Interface(
                f"ib{rail}",
                3 + rail,
                "infiniband",
                f"00:00:10:49:fe:80:00:00:00:00:00:00:b8:59:9f:03:00:{rail:02x}:{mac}",
                f"10.{128 + rail}.{host}",
                16,
                4092,
                f"fd00:{128 + rail:x}::{high * 250 + low + 1:x}",
            )
            for rail in range(gpus)
        ]
        # Routes that go with the link and do not come back with it: storage behind the first rail, and what leaves from
        # a rail's own address, by a table of its own, as hosts with several rails are set up.
        storage = [Route("10.200.0.0/16", rails[0].name, "10.128.255.254")] if rails else []
        own = [
            Route("default", one.name, f"10.{128 + rail}.255.254", table=f"{100 + rail}")
            for rail, one in enumerate(rails)
        ]
        return cls({one.name: one for one in (uplink, *rails)}, sorted([*storage, *own]))

    def routes(self, device: str) -> list[Route]:
        """Return the IPv4 routes of every table except `local`, the interface's own first; none while it is down."""
        interface = self.interfaces[device]
        if not interface.up:
            return []
        own = Route(interface.network, device, source=interface.address)
        default = [Route("default", device, _GATEWAY)] if device == UPLINK else []
        return [*default, own, *(route for route in self.static if route.device == device)]

    def route_to(self, address: str) -> Route | None:
        """Return the most specific route, or None if the network is unreachable."""
        routes = [route for name in self.interfaces for route in self.routes(name) if not route.table]
        fitting = [route for route in routes if route.destination == "default" or _within(address, route.destination)]
        return max(fitting, key=lambda route: route.destination != "default", default=None)

    def replace_route(self, route: Route) -> None:
        """Replace a route; each table keeps its own order."""
        self.static = sorted({*self.static, route})

    def neighbour(self, device: str) -> str:
        """Return an address next to ours that answers."""
        head, low = self.interfaces[device].address.rsplit(".", 1)
        return f"{head}.{int(low) + 1}"

    def set_link(self, device: str, *, up: bool) -> None:
        """Set the link; down removes added routes and IPv6 addresses for good, as on a real kernel."""
        interface = self.interfaces[device]
        if interface.up == up:
            return
        interface.up = up
        interface.carrier_changes += 1
        if not up:
            self.static = [route for route in self.static if route.device != device]
            interface.address6 = ""


def address_of(network: Network, interface: str) -> str:
    """Return an interface's address. Raises HostError if there is no such interface."""
    if interface not in network.interfaces:
        raise HostError(f"no socket can be bound to the interface {interface}: No such device")
    return network.interfaces[interface].address


def one_way_delay(interface: Interface) -> tuple[float, float]:
    """Return the delay of what leaves through the interface, and the most that it may differ, seconds."""
    delay = interface.qdisc.options.get("delay", {}) if interface.qdisc else {}
    return float(delay.get("delay", 0.0)), float(delay.get("jitter", 0.0))


def lost_share(interface: Interface) -> float:
    """Return the share of packets that leave through the interface and do not arrive intact."""
    options = interface.qdisc.options if interface.qdisc else {}
    lost = float(options.get("loss-random", {}).get("loss", 0.0))
    broken = float(options.get("corrupt", {}).get("corrupt", 0.0))
    return 1 - (1 - lost) * (1 - broken)


def limited_rate(interface: Interface) -> float:
    """Return the interface's rate limit, bytes a second; infinite without one."""
    return _shaping(interface, interface.mtu)[0] or math.inf


def tcp_rate(sender: Interface, receiver: Interface) -> float:
    """Return the highest rate of one TCP connection, bytes a second: Mathis' formula and the window bound it.

    The window is 6 MiB, the default of the largest receive buffer (tcp_rmem, Linux' ip-sysctl).
    """
    round_trip = WIRE_S + one_way_delay(sender)[0] + one_way_delay(receiver)[0]
    lost = lost_share(sender)
    by_loss = sender.mtu / round_trip / math.sqrt(lost) if lost else math.inf
    return min(limited_rate(sender), by_loss, WINDOW_BYTES / round_trip)


def round_trips(interface: Interface, count: int, every_s: float, size: int) -> Iterator[float | None]:
    """Yield the milliseconds of each ping through the interface's queue, or None if lost; only the way out queues."""
    options = interface.qdisc.options if interface.qdisc else {}
    dice = random.Random(f"{interface.mac}/{interface.packets}")  # noqa: S311 - a model's noise, not a secret
    interface.packets += count
    rate, burst_s, most_s = _shaping(interface, size)
    free_at = -burst_s
    for number in range(count):
        sent = number * every_s
        start = max(free_at, sent - burst_s)
        queued = max(0.0, start - sent)
        if queued > most_s:
            yield None
            continue
        if rate:
            free_at = start + size / rate
        waited = max(0.0, free_at - sent) if rate else 0.0
        delay = options.get("delay", {})
        jitter = float(delay.get("jitter", 0.0))
        held = max(0.0, float(delay.get("delay", 0.0)) + dice.uniform(-jitter, jitter))
        lost = float(options.get("loss-random", {}).get("loss", 0.0))
        broken = float(options.get("corrupt", {}).get("corrupt", 0.0))
        if not interface.up or dice.random() < lost or dice.random() < broken:
            yield None
        else:
            yield 1000 * WIRE_S * dice.uniform(0.8, 1.4) + (waited + held) * 1000


def _shaping(interface: Interface, size: int) -> tuple[float, float, float]:
    """Return bytes a second, seconds that a burst may be ahead, and the longest wait before a packet is dropped."""
    qdisc = interface.qdisc
    if qdisc and qdisc.kind == "tbf":
        rate = float(qdisc.options["rate"])
        return rate, qdisc.options["burst"] / rate, qdisc.options["lat"] / 1e6
    if qdisc and "rate" in qdisc.options:
        rate = float(qdisc.options["rate"]["rate"])
        return rate, 0.0, qdisc.options["limit"] * size / rate
    return 0.0, 0.0, math.inf


def _within(address: str, network: str) -> bool:
    """Return True if the address is in the network; all networks here are /16."""
    return address.split(".")[:2] == network.split(".")[:2]
