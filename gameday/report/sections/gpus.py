"""The target node's GPUs before, during and after the fault: one small chart per metric."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime

import numpy as np
import pandas as pd
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import injected, target_nodes
from gameday.history.events import AlertSeen, FaultInjected, FaultUndone, NodeReturned, Remediated, TaintSeen
from gameday.report.charts import Marker, Scene, dodge, lines, strips
from gameday.report.run import Run
from gameday.report.words import clip

ORDER = 70
TITLE = "GPUs"

MOST_CHARTS = 12

_PLAIN = re.compile(r"[A-Za-z0-9._:-]{0,24}")

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
}
"""dcgm-exporter's names and the units its HELP texts give."""

CODES = {"DCGM_FI_DEV_XID_ERRORS": ("Last Xid", "Xid ")}
"""Gauges whose value is a code, not an amount: drawn as strips."""


class Spread(BaseModel):
    n: int
    low: float
    median: float
    high: float


class GpuChart(BaseModel):
    """Spreads are of `of`: p5, median and p95 before the fault; lowest, median and highest during and after."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    metric: str
    title: str
    unit: str
    of: str
    before: Spread | None
    during: Spread | None
    after: Spread | None
    svg: Markup | None = Field(exclude=True)
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
    charts: tuple[GpuChart, ...]
    constant: tuple[str, ...]
    left_out: tuple[str, ...]
    samples: int


class Gpus(BaseModel):
    nodes: tuple[NodeCharts, ...]


def build(run: Run) -> Gpus:
    return Gpus(nodes=tuple(_node(run, node) for node in target_nodes(run.history)))


def _node(run: Run, node: str | None) -> NodeCharts:
    samples = _samples(run, node)
    fault = injected(run.history, node)
    gpu = str(fault[1].target.gpu) if fault and fault[1].target.gpu is not None else None
    window = run.fault_window(node) if node else None
    varying, constant = _split(samples)
    moments = _moments(run, node)
    charts: list[GpuChart] = []
    if varying:
        span = (float(samples["t"].min()), float(samples["t"].max()))
        span = span if span[1] > span[0] else (span[0] - 5.0, span[1] + 5.0)
        visible = [m for m in moments if span[0] <= m.at_s <= span[1]]
        seen = (max(window[0], span[0]), min(window[1], span[1])) if window else None
        scene = Scene(span, seen if seen and seen[1] > seen[0] else None, dodge(visible, span), gpu)
        charts = [_chart(name, samples[samples["metric"] == name], scene, window) for name in varying[:MOST_CHARTS]]
    return NodeCharts(
        node=node,
        target_gpu=gpu,
        fault_s=window,
        moments=tuple(Moment(letter=m.letter, label=m.label, offset_s=m.at_s) for m in moments),
        charts=tuple(charts),
        constant=tuple(constant),
        left_out=tuple(varying[MOST_CHARTS:]),
        samples=len(samples),
    )


def _samples(run: Run, node: str | None) -> pd.DataFrame:
    """The node's finite samples with t, seconds since T+0."""
    frame = run.frames.metrics
    kept: pd.DataFrame = frame[(frame["node"] == (node or "")) & np.isfinite(frame["value"]) & frame["time"].notna()]
    offsets = [run.offset_s(time.to_pydatetime()) for time in kept["time"]]
    return kept.assign(t=offsets, gpu=kept["gpu"].map(_plain_names(kept["gpu"].unique())))


def _plain_names(gpus: Iterable[str]) -> dict[str, str]:
    """Each `gpu` label as something fit to draw: native code draws it, and a strange enough string aborts that code."""
    return {gpu: gpu if _PLAIN.fullmatch(gpu) else f"?{place}" for place, gpu in enumerate(gpus)}


def _split(samples: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names worth a chart (known ones first), and phrases for those that never moved."""
    varying, constant = [], []
    for name, rows in samples.groupby("metric", sort=True):
        if rows["value"].nunique() == 1 and len(rows) > 1:
            constant.append(f"{name} = {rows['value'].iloc[0]:g}")
        else:
            varying.append(str(name))
    order = [*CODES, *KNOWN]
    return sorted(varying, key=lambda name: (order.index(name) if name in order else len(order), name)), constant


def _chart(name: str, rows: pd.DataFrame, scene: Scene, window: tuple[float, float] | None) -> GpuChart:
    title, unit = CODES[name] if name in CODES else KNOWN.get(name, (name, ""))
    on_target = rows[rows["gpu"] == scene.target_gpu] if scene.target_gpu is not None else rows
    followed = on_target if len(on_target) else rows
    start, end = window or (math.inf, math.inf)
    before = _spread(followed[followed["t"] < start], 0.05, 0.95)
    during = _spread(followed[(followed["t"] >= start) & (followed["t"] <= end)], 0.0, 1.0)
    describe = f"{clip(title)} of {rows['gpu'].nunique()} GPUs over time, {len(rows)} samples"
    svg, failure = None, ""
    try:
        svg = _drawn(name, rows, scene, before, describe)
    except Exception as error:  # numbers at the edge of floating point break the drawing of one chart, not the section
        failure = f"{type(error).__name__}: {error}"
    return GpuChart(
        metric=name,
        title=title,
        unit="code" if name in CODES else unit,
        of=f"GPU {scene.target_gpu}" if len(on_target) and scene.target_gpu is not None else "all GPUs",
        before=before,
        during=during,
        after=_spread(followed[followed["t"] > end], 0.0, 1.0),
        svg=svg,
        failure=failure,
    )


def _drawn(name: str, rows: pd.DataFrame, scene: Scene, before: Spread | None, describe: str) -> Markup:
    if name in CODES:
        return strips(rows, scene, CODES[name][1], describe)
    return lines(rows, scene, (before.low, before.median, before.high) if before else None, describe)


def _spread(rows: pd.DataFrame, low: float, high: float) -> Spread | None:
    if rows.empty:
        return None
    values = rows["value"]
    return Spread(
        n=len(values),
        low=float(values.quantile(low)),
        median=float(values.median()),
        high=float(values.quantile(high)),
    )


def _moments(run: Run, node: str | None) -> list[Marker]:
    """The first of each kind of moment that people look for in a curve."""
    history = run.history
    intents = {event.intent for event in history.of(FaultInjected) if event.target.node == node}
    undone = [record.at for record, event in history.with_times(FaultUndone) if event.intent in intents]
    remediated = [record.at for record, event in history.with_times(Remediated) if event.node == node and event.ok]
    returned = [record.at for record, event in history.with_times(NodeReturned) if event.node == node]
    alerts = [e.at for e in history.of(AlertSeen) if e.node == node and e.expected and e.state == "firing"]
    wanted = {taint.key for taint in run.plan.expect.taints} if run.plan else set()
    taints = [e.at for e in history.of(TaintSeen) if e.node == node and e.present and e.taint.key in wanted]
    faults = [e.written_at for e in history.of(FaultInjected) if e.target.node == node]
    kinds: list[tuple[str, str, list[datetime]]] = [
        ("F", "fault in", faults),
        ("A", "alert firing", alerts),
        ("T", "node tainted", taints),
        ("U", "fault undone", undone),
        ("R", "remediated", remediated),
        ("Q", "QA passed, node returned", returned),
    ]
    found = [Marker(letter, label, run.offset_s(min(times))) for letter, label, times in kinds if times]
    return sorted(found, key=lambda marker: marker.at_s)
