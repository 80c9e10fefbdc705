"""iputils' `ping -q` on the model: what the interface's queue does to each packet, summed up in ping's own words."""

from __future__ import annotations

import argparse
import asyncio
import statistics

from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.network import round_trips
from gameday_rehearsal.nodes.programs.base import Options, Printed, Refused

_NO_ANSWER, _FAILED = 1, 2
_HEADERS = 28  # of IPv4 and ICMP


async def ping(args: list[str], machine: Machine) -> Printed:
    options = _parsed(args)
    interface = machine.network.interfaces.get(options.interface)
    if interface is None:
        stderr = f"ping: unknown iface: {options.interface}\n"
        raise Refused(Printed(stderr=stderr, exit_status=_FAILED))
    size = options.size + _HEADERS
    trips = list(round_trips(interface, options.count, options.every, size))
    await asyncio.sleep(options.count * options.every)
    back = [trip for trip in trips if trip is not None]
    lost = 100 * (options.count - len(back)) / options.count
    said = (
        f"PING {options.peer} ({options.peer}) from {interface.address} {interface.name}: "
        f"{options.size}({size}) bytes of data.\n\n--- {options.peer} ping statistics ---\n"
        f"{options.count} packets transmitted, {len(back)} received, {lost:g}% packet loss, "
        f"time {round(options.count * options.every * 1000)}ms\n"
    )
    if not back:
        return Printed(stdout=said + "\n", exit_status=_NO_ANSWER)
    spread = f"{min(back):.3f}/{statistics.fmean(back):.3f}/{max(back):.3f}/{statistics.pstdev(back):.3f}"
    return Printed(stdout=f"{said}rtt min/avg/max/mdev = {spread} ms\n")


def _parsed(args: list[str]) -> argparse.Namespace:
    parser = Options("ping", _FAILED)
    parser.add_argument("-n", action="store_true")
    parser.add_argument("-q", action="store_true")
    parser.add_argument("-c", dest="count", type=int, required=True)
    parser.add_argument("-i", dest="every", type=float, default=1.0)
    parser.add_argument("-W", dest="patience", type=float)
    parser.add_argument("-s", dest="size", type=int, default=56)
    parser.add_argument("-I", dest="interface", required=True)
    parser.add_argument("peer")
    return parser.parse_args(args)
