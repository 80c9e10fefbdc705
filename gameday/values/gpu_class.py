"""The classes of nodes by their slowest GPU, and the label by which schedulers know them."""

from __future__ import annotations

from enum import StrEnum

GPU_CLASS_LABEL = "gameday.dev/gpu-class"
"""Key of the label; its values are those of GpuClass."""


class GpuClass(StrEnum):
    """The class of a node by its slowest GPU, among the nodes of the same model."""

    FAST = "fast"
    """The slowest GPU is at least 1 % above the median of the nodes' slowest GPUs."""
    TYPICAL = "typical"
    """Every other node."""
    SLOW = "slow"
    """The node has a straggler."""
