"""The changes since the last fleet run: each GPU against itself, matched by UUID, so that moved boards are found.

A change that all GPUs share (a driver, a warmer room) is the fleet's; a loss beyond that is the GPU's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gameday.values.models import FrozenModel
from gameday_fleet.record import ProbedGpu
from gameday_fleet.spread import Figure, Spread, spread_of

WORTH_A_WORD = 0.03
"""Loss against itself, beyond the fleet's own change, from which a GPU is named; a share. Our own figure: the same GPU
differs by less than one percent from one measurement to the next.
"""
_NOISE = 0.005
_LOSS = Figure(
    "change", "Change", "", low_is_bad=True, high_is_bad=False, matters=WORTH_A_WORD, noise=_NOISE, absolute=True
)
COMPARED = ("gemm_tflops", "memory_gbs", "link_gbs")


class Drifted(FrozenModel):
    """A GPU that lost more than the fleet did."""

    node: str
    gpu: int
    uuid: str
    figure: str
    before: float
    now: float
    percent: float
    """Change against its earlier figure, percent."""
    fleet_percent: float
    """The fleet's median change, percent."""
    z: float


class Drift(FrozenModel):
    """The comparison with an earlier fleet run."""

    against: str
    """Id of the earlier run."""
    matched: int
    """GPUs that were measured in both."""
    fleet_percent: dict[str, float]
    """Median change of each figure over the matched GPUs, percent."""
    drifted: tuple[Drifted, ...]
    moved: tuple[str, ...]
    """GPUs that are in another place now, in words."""
    gone: tuple[str, ...]
    """GPUs of the earlier run without figures now, in words."""
    new: int
    """GPUs that the earlier run did not measure."""


def drift_since(against: str, before: Sequence[ProbedGpu], now: Sequence[ProbedGpu]) -> Drift:
    """Return the changes from an earlier run to this one."""
    earlier, present = {gpu.uuid: gpu for gpu in before}, {gpu.uuid: gpu for gpu in now}
    both = [(earlier[uuid], gpu) for uuid, gpu in present.items() if uuid in earlier]
    fleet: dict[str, float] = {}
    drifted: list[Drifted] = []
    for key in COMPARED:
        changes = _changes(both, key)
        if changes:
            fleet[key] = 100 * median(change for _, _, change in changes)
            drifted += _named(key, changes)
    return Drift(
        against=against,
        matched=len(both),
        fleet_percent=fleet,
        drifted=tuple(sorted(drifted, key=lambda one: one.percent)),
        moved=tuple(f"{old} is {new} now" for old, new in both if (old.node, old.gpu) != (new.node, new.gpu)),
        gone=tuple(str(gpu) for uuid, gpu in earlier.items() if uuid not in present),
        new=sum(uuid not in earlier for uuid in present),
    )


_Changes = list[tuple[ProbedGpu, ProbedGpu, float]]


def _changes(both: Sequence[tuple[ProbedGpu, ProbedGpu]], key: str) -> _Changes:
    found = []
    for old, new in both:
        before, after = getattr(old, key), getattr(new, key)
        if before and after is not None:
            found.append((old, new, after / before - 1))
    return found


def _named(key: str, changes: _Changes) -> list[Drifted]:
    spread: Spread | None = spread_of([change for _, _, change in changes], _LOSS)
    assert spread
    return [
        Drifted(
            node=new.node,
            gpu=new.gpu,
            uuid=new.uuid,
            figure=key,
            before=getattr(old, key),
            now=getattr(new, key),
            percent=100 * change,
            fleet_percent=100 * spread.median,
            z=spread.z(change),
        )
        for old, new, change in changes
        if spread.departs(change, _LOSS)
    ]
