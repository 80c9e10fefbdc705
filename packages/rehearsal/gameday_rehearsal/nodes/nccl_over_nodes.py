"""A communicator of NCCL over several virtual machines: who has joined, and what the network between them carries.

Each machine has one GPU in it, so it is a ring over the network. Sockets are TCP over an interface, and feel its
queue; RDMA bypasses queues and IP. A path that carries nothing hangs, as in NCCL. The agent's container does not have
the node's /etc/nccl.conf.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from gameday.host.base import AllReduceOverNodes
from gameday.host.nccl_over_nodes import variables
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.nccl import (
    SOCKET_GBS,
    Reduced,
    adapters,
    infiniband_error,
    narrowed,
    socket_interface,
)
from gameday_rehearsal.nodes.network import WIRE_S, lost_share, one_way_delay, tcp_rate

_RDMA_GBS = 48.0
"""Bandwidth of one adapter of 400 Gbit/s, 50 GB/s, without its headers; our choice."""
_RDMA_S = 0.00001
"""Time that RDMA takes from GPU to GPU; our choice, of the order of what perftest shows."""
_ROUND_S = 0.02  # as gameday.host.nccl_over_nodes, which stops doubling the bytes there
_SMALLEST_BYTES, _LARGEST_BYTES = 64 << 10, 1 << 30


@dataclass
class Communicator:
    """The ranks that have joined; one that leaves is gone for good."""

    ranks: int
    members: dict[int, tuple[Machine, AllReduceOverNodes]] = field(default_factory=dict)
    has_lost_one: bool = False
    figures: dict[str, Any] = field(default_factory=dict)
    """The last report's fields, once there is one; what happens later changes nothing."""


_ALL: WeakKeyDictionary[GpuFleet, dict[str, Communicator]] = WeakKeyDictionary()
"""Each fleet's communicators by their unique id. Machines of one fleet reach one another."""


def joined(machine: Machine, order: AllReduceOverNodes) -> tuple[str, Communicator]:
    """Return the id and the communicator, with this machine in it; for an unknown id, one that nobody else joins."""
    unique_id = order.unique_id or secrets.token_hex(128)
    communicator = _ALL.setdefault(machine.fleet, {}).setdefault(unique_id, Communicator(order.ranks))
    communicator.members[order.rank] = (machine, order)
    return unique_id, communicator


def leave(machine: Machine, unique_id: str, rank: int) -> None:
    """Leave a communicator, which ends with its last rank. Idempotent."""
    communicators = _ALL.get(machine.fleet, {})
    communicator = communicators.get(unique_id)
    if communicator and communicator.members.pop(rank, None):
        communicator.has_lost_one = True
        if not communicator.members:
            del communicators[unique_id]


def start_error(machine: Machine, order: AllReduceOverNodes) -> str:
    """Return NCCL's error if it finds no interface or no adapter on this machine; empty if it can begin."""
    settings = variables(order)
    if socket_interface(machine, settings) is None:
        return _error("NCCL_ERROR_INVALID_USAGE: invalid usage", "Bootstrap : no socket interface found")
    if _over_rdma(settings) and not adapters(machine, settings):
        return _error("NCCL_ERROR_INVALID_USAGE: invalid usage", "Failed to initialize any NET plugin")
    return ""


def progress(communicator: Communicator) -> tuple[dict[str, Any], str]:
    """Return the fields of a report so far, and NCCL's error; empty if it goes on, or waits."""
    if communicator.figures or (len(communicator.members) < communicator.ranks and not communicator.has_lost_one):
        return communicator.figures, ""
    if communicator.has_lost_one:
        return {}, _error("NCCL_ERROR_REMOTE_ERROR: remote process exited", "Connection closed by remote peer")
    ring = [communicator.members[rank] for rank in sorted(communicator.members)]
    settings = [variables(order) for _, order in ring]
    if any(_over_rdma(one) for one in settings):
        if error := next(filter(None, map(infiniband_error, settings)), ""):
            return {}, _error("NCCL_ERROR_REMOTE_ERROR: remote process exited", error)
        gbs, latency_s = _RDMA_GBS, _RDMA_S * 2 * (len(ring) - 1)
    else:
        gbs, latency_s = _over_sockets([machine for machine, _ in ring], settings)
    gbs = min(narrowed(Reduced(gbs), one).gbs for one in settings)
    if gbs:
        communicator.figures = _figures(ring[0][1], gbs, latency_s)
    return communicator.figures, ""


def _figures(order: AllReduceOverNodes, gbs: float, latency_s: float) -> dict[str, Any]:
    size = _SMALLEST_BYTES
    share = 2 * (order.ranks - 1) / order.ranks
    while size < _LARGEST_BYTES and latency_s + share * size / gbs / 1e9 < _ROUND_S:
        size *= 2
    size = order.bytes or size
    seconds = latency_s + share * size / gbs / 1e9
    return {
        "bus_gbs": share * size / seconds / 1e9,
        "latency_ms": 1000 * latency_s,
        "round_bytes": size,
        "finished": True,
    }


def _over_sockets(machines: list[Machine], settings: list[dict[str, str]]) -> tuple[float, float]:
    """Return the rate of the ring's slowest connection, GB/s, and the latency in seconds."""
    names = [socket_interface(machine, own) for machine, own in zip(machines, settings, strict=True)]
    ends = [machine.network.interfaces[name] for machine, name in zip(machines, names, strict=True) if name]
    if len(ends) < len(machines) or not all(end.up and lost_share(end) < 1 for end in ends):
        return 0.0, 0.0
    pairs = list(zip(ends, [*ends[1:], ends[0]], strict=True))
    rate = min(tcp_rate(near, far) for near, far in pairs) / 1e9
    return min(SOCKET_GBS, rate), max(one_way_delay(end)[0] for end in ends) + 2 * (len(ends) - 1) * WIRE_S / 2


def _over_rdma(settings: dict[str, str]) -> bool:
    return settings.get("NCCL_NET") == "IB"


def _error(status: str, warning: str) -> str:
    return f"NcclError: {status}: {warning}"
