"""The class of each node by its slowest GPU, for schedulers: fast, typical or slow among nodes of the same model.

A synchronous job runs at the pace of the node's slowest GPU. So only a node with all GPUs measured gets a class.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import median

from gameday.values.gpu_class import GpuClass
from gameday.values.models import FrozenModel
from gameday_fleet.record import NodeLeftOut, ProbedGpu
from gameday_fleet.spread import FEWEST

FASTER_BY = 0.01
"""Distance from the middle of the nodes, as a share of it, from which a node is fast. Twice what one GPU's GEMM rate
differs by from one measurement to the next (`spread`), so that chance alone makes no node fast.
"""


class NodeClass(FrozenModel):
    """A node's class, and the figures behind it."""

    node: str
    gpu_class: GpuClass
    model: str
    gemm_tflops: float
    """The GEMM rate of its slowest GPU."""
    slowest: int
    """NVML's index of that GPU."""
    percent: float
    """Difference between that rate and the middle of the nodes, percent."""


def classes_of(
    gpus: Sequence[ProbedGpu], left_out: Sequence[NodeLeftOut], stragglers: Collection[str]
) -> tuple[NodeClass, ...]:
    """Return the class of every node that can have one, by the node's name.

    A model has no classes if fewer of its GPUs were measured than it takes to name a straggler. A node has none if it
    has GPUs of two models, or a GPU without a GEMM rate.

    Args:
        gpus: Everything that was measured.
        left_out: Everything that was not; a node among these has no class.
        stragglers: Names of the nodes that have a straggler, or are one by their all-reduce.
    """
    unknown = {one.node for one in left_out} | {gpu.node for gpu in gpus if not gpu.gemm_tflops}
    found: list[NodeClass] = []
    for model in sorted({gpu.model for gpu in gpus}):
        of_model = [gpu for gpu in gpus if gpu.model == model]
        others = {gpu.node for gpu in gpus if gpu.model != model}
        if len(of_model) < FEWEST:
            continue
        slowest: dict[str, ProbedGpu] = {}
        for gpu in sorted(of_model, key=lambda one: -(one.gemm_tflops or 0.0)):
            if gpu.node not in unknown | others:
                slowest[gpu.node] = gpu
        found += _classes(slowest, stragglers)
    return tuple(sorted(found, key=lambda one: one.node))


def _classes(slowest: dict[str, ProbedGpu], stragglers: Collection[str]) -> list[NodeClass]:
    """Return the classes of one model's nodes by their slowest GPUs."""
    if not slowest:
        return []
    middle = median(gpu.gemm_tflops or 0.0 for gpu in slowest.values())
    found = []
    for node, gpu in slowest.items():
        rate = gpu.gemm_tflops or 0.0
        away = rate / middle - 1
        ordinary = GpuClass.FAST if away >= FASTER_BY else GpuClass.TYPICAL
        found.append(
            NodeClass(
                node=node,
                gpu_class=GpuClass.SLOW if node in stragglers else ordinary,
                model=gpu.model,
                gemm_tflops=rate,
                slowest=gpu.gpu,
                percent=100 * away,
            )
        )
    return found
