"""Ports for servers of the tests."""

from __future__ import annotations

from gameday.processes.ports import HeldPorts

_HELD: list[HeldPorts] = []


def free_ports(count: int) -> tuple[int, ...]:
    """Return ports that nobody else is given for as long as the test process lives."""
    _HELD.append(HeldPorts(count))
    return _HELD[-1].numbers
