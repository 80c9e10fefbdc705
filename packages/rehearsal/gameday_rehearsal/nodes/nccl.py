"""The speed of an all-reduce among a virtual machine's GPUs: NCCL's path, and its bandwidth.

It follows NCCL's own order: the environment before /etc/nccl.conf; peer to peer over NVLink, else shared memory, else
the network, and there InfiniBand before sockets. Every communicator begins with a socket, also if the data take
another way. Ranks of one node that use sockets talk to their own address, which Linux carries over `lo`. No queue of
a real interface is on that way, so netem does not slow it, here or on a real node.
"""

from __future__ import annotations

from dataclasses import dataclass

from gameday_rehearsal.nodes.gpus import NVLINKS_GBS
from gameday_rehearsal.nodes.machine import Machine

CONF = "/etc/nccl.conf"
_NVSWITCH_GBS = 470.0
"""Bandwidth over NVSwitch: 460 to 480 measured with eight H100 SXM (docs/sources.md, H100 figures)."""
_NVLINK_GBS = 335.0
"""Bandwidth over NVLink peer to peer, with fewer than eight: the floor of Azure's H100 test (docs/sources.md, H100
figures)."""
_SHARED_MEMORY_GBS = 40.0
"""Bandwidth through host memory: an H100 without NVLink reaches 35 to 45 (docs/sources.md, H100 figures)."""
_INFINIBAND_GBS = 150.0
"""Bandwidth over looped-back adapters: NVSentinel's preflight default (docs/sources.md, NVSentinel)."""
SOCKET_GBS = 3.0
"""Bandwidth of some TCP streams over `lo`; our choice."""
_HALF = 0.5
"""Share of the bandwidth that is left without GPUDirect RDMA, or with the protocol LL; our choice."""
_TREE = 0.8
"""Share of the bandwidth that the tree reaches on one node, where a ring is the better algorithm; our choice."""
_CHANNELS = 16
_IB_WAIT_US = 4.096
_IB_ROUND_TRIP_US = 100.0
"""Time that a loaded adapter may need before it acknowledges; our choice."""
_GIDS = 4
_SMALLEST_RING = 2


@dataclass(frozen=True)
class Reduced:
    """A result: `gbs` is the bus bandwidth, GB/s; `path` in NCCL's own words. `error` says why there is none."""

    gbs: float = 0.0
    path: str = ""
    error: str = ""


def all_reduce(machine: Machine, gpus: list[int], environment: dict[str, str]) -> Reduced:
    settings = _conf(machine.extra_files.get(CONF, "")) | environment
    if socket_interface(machine, settings) is None:
        wanted = settings.get("NCCL_SOCKET_IFNAME", "any")
        return Reduced(error=f"Bootstrap : no socket interface found (NCCL_SOCKET_IFNAME={wanted}): internal error")
    if len(gpus) < _SMALLEST_RING:
        return Reduced()
    return narrowed(_carried(machine, gpus, settings), settings)


def _conf(text: str) -> dict[str, str]:
    """Parse the file. NCCL takes the first line of a variable: it sets only what is not set yet."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name.strip(), value.strip())
    return found


def _carried(machine: Machine, gpus: list[int], settings: dict[str, str]) -> Reduced:
    links_gbs = min(machine.fleet.nvlinks_gbs((machine.index, gpu)) for gpu in gpus)
    apart = settings.get("NCCL_P2P_DISABLE") == "1" or settings.get("NCCL_P2P_LEVEL") in ("LOC", "0")
    if links_gbs and not apart:
        full = _NVSWITCH_GBS if len(gpus) == len(machine.gpus) else _NVLINK_GBS
        return Reduced(full * links_gbs / NVLINKS_GBS, "P2P/CUMEM")
    if settings.get("NCCL_SHM_DISABLE") != "1":
        return Reduced(_SHARED_MEMORY_GBS, "SHM/direct")
    found = adapters(machine, settings)
    if not found:
        return Reduced(SOCKET_GBS, "NET/Socket")
    if error := infiniband_error(settings):
        return Reduced(error=error)
    near = 1.0 if settings.get("NCCL_NET_GDR_LEVEL") not in ("LOC", "0") else _HALF
    path = "NET/IB/0/GDRDMA" if near == 1.0 else "NET/IB/0"
    return Reduced(_INFINIBAND_GBS * near * min(1.0, len(found) / len(gpus)), path)


def infiniband_error(settings: dict[str, str]) -> str:
    if int(settings.get("NCCL_IB_GID_INDEX", "-1")) >= _GIDS:
        return "Call to ibv_modify_qp failed with error Invalid argument: unhandled system error"
    exponent, again = int(settings.get("NCCL_IB_TIMEOUT", "20")), int(settings.get("NCCL_IB_RETRY_CNT", "7"))
    finite = 0 < exponent < 32
    if finite and _IB_WAIT_US * 2**exponent * (again + 1) < _IB_ROUND_TRIP_US:
        return "NET/IB : Got completion with status=12 (transport retry counter exceeded): remote error"
    return ""


def narrowed(reduced: Reduced, settings: dict[str, str]) -> Reduced:
    """Return the path's result as algorithm, protocol and channels limit it."""
    share = 1.0
    if settings.get("NCCL_PROTO", "").upper() == "LL":
        share *= _HALF
    if settings.get("NCCL_ALGO", "").upper() == "TREE":
        share *= _TREE
    share *= min(1.0, int(settings.get("NCCL_MAX_NCHANNELS", _CHANNELS)) / _CHANNELS)
    return Reduced(reduced.gbs * share, reduced.path, reduced.error)


def adapters(machine: Machine, settings: dict[str, str]) -> list[str]:
    """Return the InfiniBand adapters that NCCL may use: one per rail with its port up, regardless of IP over it."""
    if settings.get("NCCL_IB_DISABLE") == "1":
        return []
    names = [f"mlx5_{name.removeprefix('ib')}" for name in machine.network.interfaces if name.startswith("ib")]
    return [name for name in names if _chosen(name, settings.get("NCCL_IB_HCA", ""))]


def socket_interface(machine: Machine, settings: dict[str, str]) -> str | None:
    """Return NCCL's interface: one that is up and has an address; `lo` and docker* only if there is no other."""
    wanted = settings.get("NCCL_SOCKET_IFNAME", "")
    up = [one.name for one in machine.network.interfaces.values() if one.up]
    return next((name for name in (*up, "lo") if _chosen(name, wanted)), None)


def _chosen(name: str, wanted: str) -> bool:
    """Match NCCL's lists: `a,b` are prefixes, `=a` is exact, `^a` is anything but; a port behind `:` is ignored."""
    if not wanted:
        return True
    without, exact = wanted.startswith("^"), wanted.lstrip("^").startswith("=")
    listed = [part.partition(":")[0] for part in wanted.lstrip("^").removeprefix("=").split(",")]
    found = name in listed if exact else name.startswith(tuple(listed))
    return found != without
