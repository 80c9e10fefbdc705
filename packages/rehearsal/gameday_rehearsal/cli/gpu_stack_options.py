"""Options for NVIDIA's part of a rehearsal and for its metrics: GPU operator, dcgm-exporter, kube-state-metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.errors import CommandError

if TYPE_CHECKING:
    from gameday.plan.fault import FaultParameters
    from gameday.plan.models import Plan
    from gameday_rehearsal.nodes.exporter_release import ExporterRelease
    from gameday_rehearsal.nodes.gpu_operator import GpuOperator

NO_GPU_OPERATOR = "none"

KubeStateMetrics = Annotated[
    bool | None,
    typer.Option(
        "--kube-state-metrics/--no-kube-state-metrics",
        show_default="on where a detector other than ours watches",
        help="Scrape kube-state-metrics' metrics of nodes: taints, conditions, GPUs (docs/rehearsal.md).",
    ),
]
GpuOperatorWay = Annotated[
    str,
    typer.Option(
        "--gpu-operator",
        metavar="WAY",
        help="How pods come by GPUs: none (a device plugin alone), or NVIDIA's GPU operator, whose pods keep GPUs "
        "open: runtime-class, index, cdi (its default of today) or nri (docs/rehearsal.md, The GPU operator).",
    ),
]


def exporter_for(name: str | None, plans: Sequence[Plan]) -> ExporterRelease:
    """Return the release of this name; without one, the default or the first after it that suits these plans.

    An alert on a field that the exporter does not know could never fire.

    Raises:
        CommandError: There is no release of this name.
    """
    from gameday_rehearsal.nodes.counters import release_for
    from gameday_rehearsal.nodes.exporter_release import ExporterRelease

    if name is None:
        return release_for(field for plan in plans for field in _injected(plan.fault))
    try:
        return ExporterRelease(name)
    except ValueError:
        raise CommandError(f"--exporter {name!r}: choose one of {', '.join(ExporterRelease)}") from None


def _injected(fault: FaultParameters) -> Iterator[str]:
    """Yield the DCGM fields that a fault and its parts inject."""
    from gameday.faults.dcgm_field import DcgmFieldParameters

    if isinstance(fault, DcgmFieldParameters):
        yield str(fault.field)
    for part in fault.made_of():
        yield from _injected(part)


def operator_of(name: str) -> GpuOperator:
    """Return the GPU operator's way of this name. Raises CommandError."""
    from gameday_rehearsal.nodes.gpu_operator import GpuOperator

    try:
        return GpuOperator(name)
    except ValueError:
        raise CommandError(f"--gpu-operator {name!r}: choose one of {', '.join(GpuOperator)}") from None
