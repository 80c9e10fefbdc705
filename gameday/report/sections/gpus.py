"""The target node's GPUs before, during and after the fault: a map of what moved, the curves, the statistics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import first_fault, target_nodes
from gameday.history.events import (
    AlertSeen,
    FaultInjected,
    FaultUndone,
    FrameRead,
    NodeReturned,
    Remediated,
)
from gameday.history.sampling import FEWEST_BASELINE_SCRAPES
from gameday.report.charts import BUCKETS, Drawing, Marker, Scene, buckets_for, dodge, lines, strips
from gameday.report.noticed import first_taint
from gameday.report.run_folder import RunFolder
from gameday.report.samples import (
    NodeSamples,
    Spread,
    Statistics,
    node_samples,
    parts,
    robust_z,
    scrapes_before,
    spread,
    statistics,
)

ORDER = 70
TITLE = "GPUs"
GROUP = "GPUs, node and pods"

MOST_CHARTS = 12
MOST_NODES = 6
"""Nodes with curves; the statistics in report.json are of the same nodes."""
MOST_GPUS = 32
"""Curves in one chart: twice the GPUs of the largest existing node."""

KNOWN: dict[str, tuple[str, str]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("Temperature", "°C"),
    "DCGM_FI_DEV_POWER_USAGE": ("Power", "W"),
    "DCGM_FI_DEV_GPU_UTIL": ("Utilisation", "%"),
    "DCGM_FI_DEV_SM_CLOCK": ("SM clock", "MHz"),
    "DCGM_FI_DEV_MEMORY_TEMP": ("Memory temperature", "°C"),
    "DCGM_FI_DEV_FB_USED": ("Framebuffer used", "MiB"),
    "DCGM_FI_DEV_MEM_CLOCK": ("Memory clock", "MHz"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("Tensor pipe active", "ratio"),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("DRAM active", "ratio"),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("PCIe replays", "count"),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("Corrected ECC errors", "count"),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("Uncorrected ECC errors", "count"),
}
"""dcgm-exporter's names and the units its HELP texts give."""

CODES = {"DCGM_FI_DEV_XID_ERRORS": ("Last Xid", "Xid ")}
"""Gauges with a code as value, not an amount: drawn as strips."""


HEAT_LEVELS = (2.0, 4.0, 8.0)
"""Robust z from which a cell is coloured faintly, plainly, strongly."""


class HeatCell(BaseModel):
    """The median during the fault, the median before it, and the distance: 0 usual, ±1 to ±3.

    None: not measured, or too few scrapes before the fault to say what is usual.
    """

    during: float | None
    before: float | None
    level: int | None


class HeatRow(BaseModel):
    """`cells` follow the map's metrics."""

    gpu: str
    target: bool
    cells: tuple[HeatCell, ...]


class HeatMap(BaseModel):
    metrics: tuple[tuple[str, str, str], ...] = Field(description="name, title, unit")
    rows: tuple[HeatRow, ...]


class GpuChart(BaseModel):
    """Spreads are of `of`: p5, median and p95 before the fault; lowest, median and highest during and after it."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    metric: str
    title: str
    unit: str
    of: str
    samples: int
    before: Spread | None
    during: Spread | None
    after: Spread | None
    drawing: Drawing | None = Field(exclude=True)
    failure: str = ""


class Moment(BaseModel):
    letter: str
    label: str
    offset_s: float


class NodeCharts(BaseModel):
    node: str | None
    target_gpu: str | None
    fault_s: tuple[float, float] | None
    moments: tuple[Moment, ...]
    heat: HeatMap | None
    charts: tuple[GpuChart, ...]
    statistics: tuple[Statistics, ...]
    constant: tuple[str, ...]
    left_out: tuple[str, ...]
    gpus_left_out: int
    scrapes_before: int = Field(description="before the fault, of the series that has most")
    samples: int
    not_numbers: int
    outside: int


class GpusSection(BaseModel):
    """`step_s` None: every stored sample; else the newest sample at or before each step."""

    step_s: float | None
    fewest_before: int = Field(description="scrapes before the fault below which no usual spread is given")
    nodes: tuple[NodeCharts, ...]
    nodes_left_out: tuple[str, ...]


def build(run: RunFolder) -> GpusSection:
    nodes = target_nodes(run.history)
    drawn = [(node, node_samples(run, node)) for node in nodes[:MOST_NODES]]
    series = sum(len(samples.rows[["gpu", "metric"]].drop_duplicates()) for _, samples in drawn)
    read = [read for read in run.history.of(FrameRead) if read.frame == "metrics"]
    return GpusSection(
        step_s=read[-1].step_s if read else None,
        fewest_before=FEWEST_BASELINE_SCRAPES,
        nodes=tuple(_node(run, node, samples, buckets_for(series)) for node, samples in drawn),
        nodes_left_out=tuple(str(node) for node in nodes[MOST_NODES:]),
    )


def _node(run: RunFolder, node: str | None, samples: NodeSamples, buckets: int) -> NodeCharts:
    fault = first_fault(run.history, node)
    gpu = str(fault[1].target.gpu) if fault and fault[1].target.gpu is not None else None
    rows, gpus_left_out = _most_gpus(samples.rows, gpu)
    varying, constant = _split(rows)
    moments = moments_of(run, node)
    scene = scene_of(_span(rows), samples.window, moments, gpu, buckets)
    followed = gpu if gpu in set(rows["gpu"]) else None
    drawn = varying[:MOST_CHARTS]
    charts = [_chart(name, rows[rows["metric"] == name], scene, samples.window) for name in drawn]
    return NodeCharts(
        node=node,
        target_gpu=gpu,
        fault_s=samples.window,
        moments=tuple(Moment(letter=m.letter, label=m.label, offset_s=m.at_s) for m in moments),
        heat=_heat(rows, varying, samples.window, gpu) if samples.window and varying else None,
        charts=tuple(charts),
        statistics=tuple(_statistics(rows, followed, samples.window)),
        constant=tuple(constant),
        left_out=tuple(varying[MOST_CHARTS:]),
        gpus_left_out=gpus_left_out,
        scrapes_before=max(
            (scrapes_before(one, samples.window) for _, one in rows.groupby(["gpu", "metric"])), default=0
        ),
        samples=len(samples.rows),
        not_numbers=samples.not_numbers,
        outside=samples.outside,
    )


def _most_gpus(rows: pd.DataFrame, target: str | None) -> tuple[pd.DataFrame, int]:
    """Return the target and the first others, and how many GPUs are left out."""
    gpus = sorted(rows["gpu"].unique(), key=lambda gpu: (gpu != target, len(gpu), gpu))
    if len(gpus) <= MOST_GPUS:
        return rows, 0
    return rows[rows["gpu"].isin(gpus[:MOST_GPUS])], len(gpus) - MOST_GPUS


def _span(rows: pd.DataFrame) -> tuple[float, float]:
    return (float(rows["t"].min()), float(rows["t"].max())) if len(rows) else (0.0, 0.0)


def scene_of(
    span: tuple[float, float],
    window: tuple[float, float] | None,
    moments: Sequence[Marker],
    gpu: str | None,
    buckets: int = BUCKETS,
) -> Scene:
    """Return what the charts of one node share; an empty span gets some width."""
    span = span if span[1] > span[0] else (span[0] - 5.0, span[1] + 5.0)
    visible = [m for m in moments if span[0] <= m.at_s <= span[1]]
    seen = (max(window[0], span[0]), min(window[1], span[1])) if window else None
    return Scene(span, seen if seen and seen[1] > seen[0] else None, dodge(visible, span), gpu, buckets)


def _split(rows: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the metrics worth a chart (known ones first), and phrases for those that never moved."""
    varying, constant = [], []
    for name, of_metric in rows.groupby("metric", sort=True):
        if of_metric["value"].nunique() == 1 and len(of_metric) > 1:
            constant.append(f"{name} = {of_metric['value'].iloc[0]:g}")
        else:
            varying.append(str(name))
    order = [*CODES, *KNOWN]
    return sorted(varying, key=lambda name: (order.index(name) if name in order else len(order), name)), constant


def _named(metric: str) -> tuple[str, str]:
    """Return title and unit."""
    return (CODES[metric][0], "code") if metric in CODES else KNOWN.get(metric, (metric, ""))


def _chart(name: str, rows: pd.DataFrame, scene: Scene, window: tuple[float, float] | None) -> GpuChart:
    title, unit = _named(name)
    on_target = rows[rows["gpu"] == scene.target_gpu]
    followed = on_target if len(on_target) else rows
    before, during, after = parts(followed, window)
    usual = spread(before, 0.05, 0.95)
    has_baseline = scrapes_before(followed, window) >= FEWEST_BASELINE_SCRAPES
    drawing, failure = None, ""
    try:
        drawing = _drawn(name, rows, scene, usual if has_baseline else None)
    except (ValueError, OverflowError) as error:  # numbers at the edge of floating point, or a code that flaps
        failure = str(error)
    return GpuChart(
        metric=name,
        title=title,
        unit=unit,
        of=f"GPU {scene.target_gpu}" if len(on_target) else "all GPUs",
        samples=len(rows),
        before=usual,
        during=spread(during, 0.0, 1.0),
        after=spread(after, 0.0, 1.0),
        drawing=drawing,
        failure=failure,
    )


def _drawn(name: str, rows: pd.DataFrame, scene: Scene, before: Spread | None) -> Drawing:
    if name in CODES:
        return strips(rows, scene, CODES[name][1])
    return lines(rows, scene, (before.low, before.median, before.high) if before else None)


def _statistics(rows: pd.DataFrame, gpu: str | None, window: tuple[float, float] | None) -> list[Statistics]:
    """Return the statistics of the target GPU, or of every GPU if the fault has none; codes have no mean."""
    followed = rows if gpu is None else rows[rows["gpu"] == gpu]
    amounts = followed[~followed["metric"].isin(CODES)]
    return [
        statistics(str(metric), _named(str(metric))[1], str(one), series, window)
        for (metric, one), series in amounts.groupby(["metric", "gpu"], sort=True)
    ]


def _heat(rows: pd.DataFrame, metrics: list[str], window: tuple[float, float] | None, target: str | None) -> HeatMap:
    gpus = sorted(rows["gpu"].unique(), key=lambda gpu: (len(gpu), gpu))
    shown = metrics[:MOST_CHARTS]
    series = dict(iter(rows.groupby(["gpu", "metric"])))
    return HeatMap(
        metrics=tuple((name, *_named(name)) for name in shown),
        rows=tuple(
            HeatRow(
                gpu=gpu,
                target=gpu == target,
                cells=tuple(_cell(series.get((gpu, name)), name in CODES, window) for name in shown),
            )
            for gpu in gpus
        ),
    )


def _cell(rows: pd.DataFrame | None, code: bool, window: tuple[float, float] | None) -> HeatCell:
    if rows is None:
        return HeatCell(during=None, before=None, level=None)
    before, during, _ = parts(rows, window)
    if code:  # a code has no median: take the newest during the fault; any but 0 is news
        shown = float(during.iloc[-1]) if len(during) else None
        return HeatCell(during=shown, before=float(before.iloc[-1]) if len(before) else None, level=3 if shown else 0)
    has_baseline = scrapes_before(rows, window) >= FEWEST_BASELINE_SCRAPES
    return HeatCell(
        during=float(during.median()) if len(during) else None,
        before=float(before.median()) if len(before) else None,
        level=_level(robust_z(before, during), before, during) if has_baseline else None,
    )


def _level(z: float | None, before: pd.Series, during: pd.Series) -> int | None:
    if before.empty or during.empty:
        return None
    if z is None:  # away from a constant 0
        return 3 if float(during.median()) > 0 else -3
    level = sum(abs(z) >= threshold for threshold in HEAT_LEVELS)
    return level if z >= 0 else -level


def moments_of(run: RunFolder, node: str | None) -> list[Marker]:
    """Return the first of each kind of moment that people look for in a curve."""
    history = run.history
    intents = {event.intent for event in history.of(FaultInjected) if event.target.node == node}
    undone = [record.at for record, event in history.with_times(FaultUndone) if event.intent in intents]
    remediated = [record.at for record, event in history.with_times(Remediated) if event.node == node and event.ok]
    returned = [record.at for record, event in history.with_times(NodeReturned) if event.node == node]
    alerts = [e.at for e in history.of(AlertSeen) if e.node == node and e.expected and e.state == "firing"]
    taint = first_taint(run, node)
    faults = [e.written_at for e in history.of(FaultInjected) if e.target.node == node]
    kinds: list[tuple[str, str, list[datetime]]] = [
        ("F", "fault in", faults),
        ("A", "alert firing", alerts),
        ("T", "node tainted", [taint.at] if taint else []),
        ("U", "fault undone", undone),
        ("R", "remediated", remediated),
        ("Q", "QA passed, node returned", returned),
    ]
    found = [Marker(letter, label, run.offset_s(min(times))) for letter, label, times in kinds if times]
    return sorted(found, key=lambda marker: marker.at_s)
