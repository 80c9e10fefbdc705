"""dcgm-exporter's figures against the agent's own readings of NVML: where they differ, GPU by GPU, and how much.

A scrape shows a value that dcgm-exporter read some time before (docs/sources.md, dcgm-exporter). So a scrape agrees if
its value, within the tolerance, is between the lowest and the highest that NVML showed since the third scrape interval
before it. A scrape is not compared unless NVML was read all that time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from gameday.checks.facts import target_nodes
from gameday.history.sampling import GAP_FACTOR
from gameday.report.charts import Drawing, lines
from gameday.report.run_folder import RunFolder
from gameday.report.samples import samples_of
from gameday.report.sections.gpus import KNOWN, MOST_NODES, Moment, moments_of, scene_of

ORDER = 73
TITLE = "dcgm-exporter and NVML"
GROUP = "GPUs, node and pods"

MOST_CHARTS = 6
MOST_DIFFERENCES = 40
EXPORTER, NVML = "dcgm-exporter", "NVML"


class Pair(BaseModel):
    """A figure under both names. A scrape may be off by `absolute`, or by `share` of its value if that is more.

    Both read the same value of the driver, but at different moments. The tolerances are our own choice: counters and
    codes are equal or wrong, a temperature is a whole number that moves by one or two between two readings, power and
    clock jump with the load.
    """

    model_config = ConfigDict(frozen=True)

    dcgm: str = Field(description="dcgm-exporter's name")
    nvml: str = Field(description="the metric in the frame `nvml`")
    absolute: float
    share: float = 0.0

    @property
    def title(self) -> str:
        return KNOWN[self.dcgm][0]

    @property
    def unit(self) -> str:
        return KNOWN[self.dcgm][1]


PAIRS = (
    Pair(dcgm="DCGM_FI_DEV_GPU_TEMP", nvml="temperature_c", absolute=3),
    Pair(dcgm="DCGM_FI_DEV_POWER_USAGE", nvml="power_w", absolute=10, share=0.1),
    Pair(dcgm="DCGM_FI_DEV_SM_CLOCK", nvml="sm_clock_mhz", absolute=60, share=0.05),
    Pair(dcgm="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", nvml="ecc_sbe_volatile", absolute=0),
    Pair(dcgm="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", nvml="ecc_dbe_volatile", absolute=0),
)


class Difference(BaseModel):
    """The scrapes of one GPU that differ; `exporter`, `low` and `high` are those of the one that is furthest off."""

    pair: Pair
    gpu: str
    compared: int
    differing: int
    first_s: float = Field(description="the first scrape that differs, seconds since T+0")
    last_s: float
    at_s: float
    exporter: float
    low: float
    high: float
    off: float = Field(description="beyond low or high, in the pair's unit")


class BothCurves(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    title: str
    unit: str
    gpu: str
    drawing: Drawing = Field(exclude=True)


class NodeComparison(BaseModel):
    """`every_s` is NVML's usual pause, `scraped_every_s` is Prometheus'; None if there are fewer than two samples."""

    node: str
    readings: int = Field(description="instants at which NVML was read")
    every_s: float | None
    scraped_every_s: float | None
    compared: dict[str, int] = Field(description="scrapes compared, by dcgm-exporter's name")
    differences: tuple[Difference, ...]
    differences_left_out: int
    lost: dict[str, float] = Field(description="first reading, seconds since T+0, at which NVML had lost a GPU")
    moments: tuple[Moment, ...]
    charts: tuple[BothCurves, ...]


class NvmlSection(BaseModel):
    pairs: tuple[Pair, ...]
    nodes: tuple[NodeComparison, ...]
    nodes_left_out: int

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.nodes else "the agent took no NVML samples of its own"


@dataclass(frozen=True)
class _Series:
    """The samples of one figure of one GPU, in order of time."""

    t: np.ndarray
    values: np.ndarray

    @property
    def every_s(self) -> float | None:
        steps = np.diff(self.t)
        return float(np.median(steps[steps > 0])) if (steps > 0).any() else None


@dataclass(frozen=True)
class _Scrape:
    """A value that dcgm-exporter showed, with the lowest and the highest that NVML showed until then."""

    t: float
    value: float
    low: float
    high: float

    @property
    def off(self) -> float:
        return max(self.low - self.value, self.value - self.high, 0.0)


def build(run: RunFolder) -> NvmlSection:
    read = {str(node): rows for node, rows in run.frames.nvml.groupby("node", sort=False)}
    nodes = [node for node in target_nodes(run.history) if node and node in read]
    return NvmlSection(
        pairs=PAIRS,
        nodes=tuple(_node(run, node, read[node]) for node in nodes[:MOST_NODES]),
        nodes_left_out=len(nodes[MOST_NODES:]),
    )


def _node(run: RunFolder, node: str, frame: pd.DataFrame) -> NodeComparison:
    exported, read = samples_of(run, run.metrics_of(node), node).rows, samples_of(run, frame, node).rows
    compared: dict[str, int] = {}
    found: list[Difference] = []
    for pair in PAIRS:
        theirs, ours = dict(_by_gpu(exported, pair.dcgm)), dict(_by_gpu(read, pair.nvml))
        for gpu in (gpu for gpu in theirs if gpu in ours):
            scrapes = _compare(theirs[gpu], ours[gpu])
            compared[pair.dcgm] = compared.get(pair.dcgm, 0) + len(scrapes)
            found += _difference(pair, gpu, scrapes)
    found.sort(key=lambda one: one.off / (_tolerance(one.pair, one.exporter) or 1.0), reverse=True)
    lost = read[(read["metric"] == "lost") & (read["value"] > 0)]
    return NodeComparison(
        node=node,
        readings=int(read["t"].nunique()),
        every_s=_pause(read),
        scraped_every_s=_pause(exported),
        compared=compared,
        differences=tuple(found[:MOST_DIFFERENCES]),
        differences_left_out=len(found[MOST_DIFFERENCES:]),
        lost={str(gpu): float(rows["t"].min()) for gpu, rows in lost.groupby("gpu")},
        moments=tuple(Moment(letter=m.letter, label=m.label, offset_s=m.at_s) for m in moments_of(run, node)),
        charts=tuple(_curves(run, node, one, exported, read) for one in found[:MOST_CHARTS]),
    )


def _by_gpu(rows: pd.DataFrame, metric: str) -> Iterator[tuple[str, _Series]]:
    for gpu, one in rows[rows["metric"] == metric].groupby("gpu", sort=True):
        yield str(gpu), _Series(one["t"].to_numpy(), one["value"].to_numpy())


def _pause(rows: pd.DataFrame) -> float | None:
    return _Series(np.unique(rows["t"].to_numpy()), np.empty(0)).every_s


def _compare(theirs: _Series, ours: _Series) -> list[_Scrape]:
    """Return the scrapes that can be compared."""
    scraped_every, read_every = theirs.every_s, ours.every_s
    if scraped_every is None or read_every is None:
        return []
    since = theirs.t - GAP_FACTOR * scraped_every
    begin, end = np.searchsorted(ours.t, since), np.searchsorted(ours.t, theirs.t + read_every, "right")
    found = []
    for t, value, first, past in zip(theirs.t, theirs.values, begin, end, strict=True):
        # With the readings right before and after, which prove that NVML was read all the time.
        around = ours.t[max(0, first - 1) : past + 1]
        if first > 0 and past < len(ours.t) and float(np.diff(around).max()) <= GAP_FACTOR * read_every:
            seen = ours.values[first:past]
            found.append(_Scrape(float(t), float(value), float(seen.min()), float(seen.max())))
    return found


def _difference(pair: Pair, gpu: str, scrapes: list[_Scrape]) -> Iterator[Difference]:
    """Yield one difference, or none."""
    beyond = [scrape for scrape in scrapes if scrape.off > _tolerance(pair, scrape.value)]
    if not beyond:
        return
    worst = max(beyond, key=lambda scrape: scrape.off)
    yield Difference(
        pair=pair,
        gpu=gpu,
        compared=len(scrapes),
        differing=len(beyond),
        first_s=beyond[0].t,
        last_s=beyond[-1].t,
        at_s=worst.t,
        exporter=worst.value,
        low=worst.low,
        high=worst.high,
        off=worst.off,
    )


def _tolerance(pair: Pair, value: float) -> float:
    return max(pair.absolute, pair.share * abs(value))


def _curves(run: RunFolder, node: str, one: Difference, exported: pd.DataFrame, read: pd.DataFrame) -> BothCurves:
    """Draw what both showed of one figure of one GPU."""
    parts = ((exported, one.pair.dcgm, EXPORTER), (read, one.pair.nvml, NVML))
    rows = pd.concat(
        [rows[(rows["metric"] == metric) & (rows["gpu"] == one.gpu)].assign(gpu=name) for rows, metric, name in parts]
    )
    span = (float(rows["t"].min()), float(rows["t"].max()))
    scene = scene_of(span, run.fault_window(node), moments_of(run, node), NVML)
    return BothCurves(title=one.pair.title, unit=one.pair.unit, gpu=one.gpu, drawing=lines(rows, scene, None))
