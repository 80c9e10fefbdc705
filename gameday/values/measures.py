"""The quantities that a canary measures, and the names that it measures them by."""

from __future__ import annotations

from enum import StrEnum

INTERFACE_NAME = r"^[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,14}$"
"""The kernel takes up to 15 bytes; a name that begins with `-` would be an option to every tool."""
HCA_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"
"""The kernel takes up to 63 bytes (IB_DEVICE_NAME_MAX). `^`, `=`, `,` and `:` are NCCL's syntax, and in no name."""


class Measure(StrEnum):
    """The quantities that a canary can measure."""

    ALL_REDUCE = "all-reduce bus bandwidth"
    COPY = "copy to the GPU"
    ROUND_TRIP = "round-trip time"
    ANSWERED = "answered pings"
    ALL_REDUCE_NODES = "all-reduce over nodes"
    LARGEST_BLOCK = "largest block of free memory"

    @property
    def unit(self) -> str:
        """The unit of the values."""
        return _UNITS[self]

    @property
    def uses_ping(self) -> bool:
        """True if the canary sends pings."""
        return self in (Measure.ROUND_TRIP, Measure.ANSWERED)

    @property
    def owns_gpus(self) -> bool:
        """True if the canary's pod asks for GPUs, as a job does."""
        return self in (Measure.ALL_REDUCE, Measure.COPY)


_UNITS = {
    Measure.ALL_REDUCE: "GB/s",
    Measure.COPY: "GB/s",
    Measure.ROUND_TRIP: "ms",
    Measure.ANSWERED: "%",
    Measure.ALL_REDUCE_NODES: "GB/s",
    Measure.LARGEST_BLOCK: "%",
}


class Backend(StrEnum):
    """The library that carries an all-reduce over nodes, by torch.distributed's word for it."""

    TCP = "tcp"
    NCCL = "nccl"
