"""Judge the figures of a fleet: their spread by model, the GPUs that depart from it, and the cost of the slowest.

GPUs of one model are compared with each other and not with a data sheet. A fleet that is slow as a whole is found by
QA's floors.

Spread of a healthy fleet: GPUs of one SKU in one cluster differed by 8 % on average (22 % at most) over five centres
and 18,800 hours, and outliers took 1.5 times as long as the median (Sinha et al., "Not All GPUs Are Created Equal",
SC22, arXiv 2208.11035).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gameday.exit_codes import ExitCode
from gameday.values.models import FrozenModel
from gameday.values.results import Cleanliness
from gameday_fleet.classes import NodeClass, classes_of
from gameday_fleet.cost import JobCost, job_costs
from gameday_fleet.drift import Drift
from gameday_fleet.record import FleetRecord, NodeLeftOut, ProbedGpu
from gameday_fleet.spread import ALL_REDUCE, FEWEST, FIGURES, Figure, Spread, spread_of

BINS = 48
"""Bars of a figure's histogram. Our own choice."""
_MOST_NAMED = 5


class Departure(FrozenModel):
    """A figure of a GPU or a node that is an outlier and matters."""

    node: str
    gpu: int | None
    """NVML's index of the GPU; None for a figure of a whole node."""
    uuid: str = ""
    figure: str
    """Name of the figure's field."""
    title: str
    unit: str
    value: float
    median: float
    z: float
    n: int
    slowed_by: tuple[str, ...] = ()

    @property
    def percent(self) -> float:
        """Distance from the median, percent of it."""
        return 100 * (self.value / self.median - 1) if self.median else 0.0

    @property
    def where(self) -> str:
        return self.node if self.gpu is None else f"{self.node} GPU {self.gpu}"


class FigureSpread(FrozenModel):
    """A figure's spread over a model's GPUs, or over its nodes."""

    key: str
    title: str
    unit: str
    spread: Spread
    counts: tuple[int, ...]
    """The number of values in each of BINS equal parts between the lowest and the highest."""
    named: tuple[int, ...]
    """The number of values in each part that depart."""
    lowest_ordinary: float | None
    """The value below which a GPU is named; None if there are too few values, or if low is not bad."""


class ModelFleet(FrozenModel):
    """The GPUs of one model."""

    model: str
    gpus: int
    nodes: int
    figures: tuple[FigureSpread, ...]
    stragglers: tuple[Departure, ...]
    """Departures that make a job wait, the worst first."""
    unusual: tuple[Departure, ...]
    """The other departures: clocks, heat and power."""
    costs: tuple[JobCost, ...]

    @property
    def is_judged(self) -> bool:
        """True if there are enough GPUs to name one."""
        return self.gpus >= FEWEST

    @property
    def slow_gpus(self) -> list[str]:
        """The places of the stragglers, each once, the worst first."""
        return list(dict.fromkeys(one.where for one in self.stragglers))


class Fleet(FrozenModel):
    """The content of fleet-report.json."""

    record: FleetRecord
    models: tuple[ModelFleet, ...]
    left_out: tuple[NodeLeftOut, ...]
    drift: Drift | None
    classes: tuple[NodeClass, ...] = ()
    """The class of each node with all GPUs measured."""
    exit_code: int
    headline: str

    @property
    def slow_gpus(self) -> list[str]:
        """The stragglers' places over all models."""
        return [where for model in self.models for where in model.slow_gpus]


def judge_fleet(
    record: FleetRecord, gpus: Sequence[ProbedGpu], left_out: Sequence[NodeLeftOut], drift: Drift | None
) -> Fleet:
    """Judge everything that a fleet run has measured."""
    names = [name for name, _ in Counter(gpu.model for gpu in gpus).most_common()]
    models = tuple(_judge_model(name, [gpu for gpu in gpus if gpu.model == name]) for name in names)
    stragglers = {one.node for model in models for one in model.stragglers}
    judged = Fleet(
        record=record,
        models=models,
        left_out=tuple(left_out),
        drift=drift,
        classes=classes_of(gpus, left_out, stragglers),
        exit_code=ExitCode.PASSED,
        headline="",
    )
    return judged.model_copy(update={"exit_code": int(_exit_code(judged)), "headline": _headline(judged)})


def _judge_model(name: str, gpus: Sequence[ProbedGpu]) -> ModelFleet:
    figures, found = [], list[tuple[Figure, Departure]]()
    for figure in FIGURES:
        values = [(gpu, value) for gpu in gpus if (value := getattr(gpu, figure.key)) is not None]
        spread = spread_of([value for _, value in values], figure)
        if spread is None:
            continue
        departing = [(gpu, value) for gpu, value in values if spread.departs(value, figure)]
        found += [(figure, _departure(figure, spread, value, gpu.node, gpu)) for gpu, value in departing]
        figures.append(_figure_spread(figure, spread, [v for _, v in values], [v for _, v in departing]))
    together = _of_nodes(gpus)
    if together:
        figures.append(together[0])
        found += [(ALL_REDUCE, one) for one in together[1]]
    stragglers = sorted((one for figure, one in found if figure.sets_pace), key=lambda one: one.percent)
    slow = {one.uuid for one in stragglers}
    rates = [gpu.gemm_tflops for gpu in gpus if gpu.gemm_tflops]
    return ModelFleet(
        model=name,
        gpus=len(gpus),
        nodes=len({gpu.node for gpu in gpus}),
        figures=tuple(figures),
        stragglers=tuple(stragglers),
        unusual=tuple(one for figure, one in found if not figure.sets_pace),
        costs=job_costs(rates, [gpu.gemm_tflops for gpu in gpus if gpu.gemm_tflops and gpu.uuid not in slow]),
    )


def _departure(figure: Figure, spread: Spread, value: float, node: str, gpu: ProbedGpu | None = None) -> Departure:
    """Return the departure of a GPU's figure, or of the whole node's if there is no `gpu`."""
    return Departure(
        node=node,
        gpu=gpu.gpu if gpu else None,
        uuid=gpu.uuid if gpu else "",
        figure=figure.key,
        title=figure.title,
        unit=figure.unit,
        value=value,
        median=spread.median,
        z=spread.z(value),
        n=spread.n,
        slowed_by=gpu.slowed_by if gpu else (),
    )


def _figure_spread(figure: Figure, spread: Spread, values: Iterable[float], named: Iterable[float]) -> FigureSpread:
    return FigureSpread(
        key=figure.key,
        title=figure.title,
        unit=figure.unit,
        spread=spread,
        counts=_histogram(values, spread),
        named=_histogram(named, spread),
        lowest_ordinary=spread.lowest_ordinary(figure) if spread.is_judged and figure.low_is_bad else None,
    )


def _histogram(values: Iterable[float], spread: Spread) -> tuple[int, ...]:
    """Return the number of values in each of BINS equal parts of the spread."""
    width = (spread.high - spread.low) / BINS or 1.0
    counts = Counter(min(BINS - 1, int((value - spread.low) / width)) for value in values)
    return tuple(counts[index] for index in range(BINS))


def _of_nodes(gpus: Sequence[ProbedGpu]) -> tuple[FigureSpread, list[Departure]] | None:
    """Return the all-reduce's spread over the nodes with the most common number of GPUs measured together."""
    sizes = Counter(gpu.all_reduce_gpus for gpu in gpus if gpu.all_reduce_gbs is not None)
    if not sizes:
        return None
    size = sizes.most_common(1)[0][0]
    values = {gpu.node: gpu.all_reduce_gbs for gpu in gpus if gpu.all_reduce_gbs and gpu.all_reduce_gpus == size}
    spread = spread_of(list(values.values()), ALL_REDUCE)
    if spread is None:
        return None
    departing = {node: value for node, value in values.items() if spread.departs(value, ALL_REDUCE)}
    found = [_departure(ALL_REDUCE, spread, value, node) for node, value in departing.items()]
    named = _figure_spread(ALL_REDUCE, spread, values.values(), departing.values())
    return named.model_copy(update={"title": f"All-reduce of {size} GPUs"}), found


def _exit_code(fleet: Fleet) -> ExitCode:
    """Return the exit code: first what is left in the cluster, then why the run ended, then what it found."""
    record = fleet.record
    left = {Cleanliness.DIRTY: ExitCode.DIRTY, Cleanliness.UNKNOWN: ExitCode.UNKNOWN}
    if record.cleanliness in left:
        return left[record.cleanliness]
    if record.stopped:
        return ExitCode.ABORTED
    if fleet.slow_gpus or (fleet.drift and fleet.drift.drifted):
        return ExitCode.FAILED
    return ExitCode.PASSED if any(model.is_judged for model in fleet.models) else ExitCode.UNKNOWN


def _headline(fleet: Fleet) -> str:
    """Return the answer in a sentence."""
    measured = sum(model.gpus for model in fleet.models)
    if not measured:
        return "No GPU was measured."
    slow, said = fleet.slow_gpus, f"{measured} GPU{'' if measured == 1 else 's'} measured"
    if not any(model.is_judged for model in fleet.models):
        return f"{said}: too few to judge, which takes {FEWEST} of one model."
    if not slow:
        return f"{said}, and none is a straggler."
    names = ", ".join(slow[:_MOST_NAMED]) + (f" and {len(slow) - _MOST_NAMED} more" if len(slow) > _MOST_NAMED else "")
    return f"{said}, {len(slow)} straggler{'' if len(slow) == 1 else 's'}: {names}."
