"""node_exporter's metrics of network interfaces that the shipped rules read, for all nodes together.

One server stands for the exporters of all nodes, so each series names its node itself. In a real cluster the scrape
configuration does that by relabelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import Interface

_METRICS: dict[str, tuple[str, str, Callable[[Interface], int]]] = {
    "node_network_up": ("gauge", "Value is 1 if operstate is 'up', 0 otherwise.", lambda one: int(one.up)),
    "node_network_transmit_bytes_total": (
        "counter",
        "Network device statistic transmit_bytes.",
        lambda one: one.packets * one.mtu,
    ),
    "node_network_carrier_down_changes_total": (
        "counter",
        "Number of times that the carrier went down.",
        lambda one: one.carrier_changes // 2,
    ),
}


def render(machines: Iterable[Machine]) -> Iterator[bytes]:
    """Yield a piece per metric. A machine that is down answers no scrape."""
    powered = [machine for machine in machines if machine.powered]
    for name, (kind, help_text, value) in _METRICS.items():
        lines = [
            f'{name}{{node="{machine.name}",device="{one.name}"}} {value(one)}'
            for machine in powered
            for one in machine.network.interfaces.values()
        ]
        yield (f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n" + "\n".join(lines) + "\n").encode()
