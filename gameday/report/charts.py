"""Draw metrics over time as plain numbers and path data; `chart.html` makes SVG of them, the page's script moves them.

Inside the plot x is seconds since T+0 and y is pixels, so that zooming only changes the inner SVG's viewBox and nothing
is drawn twice. The only text of the run here is names, which the template escapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gameday.history.sampling import GAP_FACTOR
from gameday.report.ticks import Tick, nice_step, time_ticks

WIDTH, HEIGHT = 400, 118
"""Size of the plot, in the drawing's own pixels."""
ROW = 15
"""Height of one GPU's row in a strip, pixels."""
BUCKETS, FEWEST_BUCKETS = 160, 24
"""A series with more than two samples per stretch is thinned to the lowest and the highest sample of each of this many
equal stretches of time, so that no peak is lost; fewer stretches if a page has very many series.
"""
MOST_POINTS = 40_000
"""Points on one page, about 25 bytes each with the values that the script shows: half of a report's limit of 2 MB."""


MOST_STRETCHES = 400
"""The most stretches of one GPU in a strip chart: as many as the chart has pixels."""


@dataclass(frozen=True)
class Marker:
    """A moment drawn as a line with its letter; `row` keeps the letters of near moments apart."""

    letter: str
    label: str
    at_s: float
    row: int = 0


@dataclass(frozen=True)
class Scene:
    """The things that all charts of one node share: the span in seconds since T+0, the fault window and the moments."""

    span: tuple[float, float]
    fault: tuple[float, float] | None
    markers: tuple[Marker, ...]
    target_gpu: str | None
    buckets: int = BUCKETS


@dataclass(frozen=True)
class Curve:
    """The curve of a GPU, or of a count: its path, and the samples drawn, for the page's script."""

    gpu: str
    target: bool
    path: str
    t: tuple[float, ...]
    values: tuple[float, ...]
    steps: bool = False

    @property
    def series(self) -> dict[str, Any]:
        """The curve in the form that the page's script reads."""
        return {"gpu": self.gpu, "target": self.target, "t": self.t, "v": self.values, "steps": self.steps}


@dataclass(frozen=True)
class Stretch:
    """A run of one value of one GPU in a strip chart."""

    t: float
    until: float
    y: float
    value: float
    label: str


@dataclass(frozen=True)
class Drawing:
    """A chart; `band` is the y of p95, of the median and of p5 before the fault, `thinned` the samples left out."""

    scene: Scene
    height: float
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    curves: tuple[Curve, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    band: tuple[float, float, float] | None = None
    thinned: int = 0


def dodge(markers: Sequence[Marker], span: tuple[float, float]) -> tuple[Marker, ...]:
    """Move letters that would overlap into another row (of three)."""
    near = (span[1] - span[0]) * 0.035
    last = [float("-inf")] * 3
    placed = []
    for marker in sorted(markers, key=lambda m: m.at_s):
        row = next((i for i in range(3) if marker.at_s - last[i] >= near), 0)
        last[row] = marker.at_s
        placed.append(Marker(marker.letter, marker.label, marker.at_s, row))
    return tuple(placed)


def buckets_for(series: int) -> int:
    """Return the stretches per series, so that a page with this many series stays small."""
    return max(FEWEST_BUCKETS, min(BUCKETS, MOST_POINTS // (2 * max(series, 1))))


def lines(samples: pd.DataFrame, scene: Scene, band: tuple[float, float, float] | None) -> Drawing:
    """Draw one curve per GPU over t, the target's on top; `band` is p5, median, p95 before the fault."""
    low, high = float(samples["value"].min()), float(samples["value"].max())
    if band:
        low, high = min(low, band[0]), max(high, band[2])
    scale = _Scale.around(low, high)
    drawn = [_curve(str(gpu), rows, scene, scale) for gpu, rows in samples.groupby("gpu", sort=True)]
    placed = (scale.y(band[2]), scale.y(band[1]), scale.y(band[0])) if band else None
    return _drawing(scene, scale, drawn, len(samples), placed)


def counts(changes: pd.DataFrame, scene: Scene) -> Drawing:
    """Draw a curve of steps per name in `gpu`: each `value` holds from its t to the next, the last one to the end."""
    scale = _Scale.around(0.0, max(4.0, 1.1 * float(changes["value"].max())))
    drawn = [_steps(str(name), rows, scene, scale) for name, rows in changes.groupby("gpu", sort=False)]
    return _drawing(scene, scale, drawn, len(changes))


def _drawing(
    scene: Scene, scale: _Scale, drawn: list[Curve], points: int, band: tuple[float, float, float] | None = None
) -> Drawing:
    """Return the curves in their frame, the target's on top; `points` is their number before thinning."""
    return Drawing(
        scene=scene,
        height=HEIGHT,
        x_ticks=tuple(time_ticks(*scene.span)),
        y_ticks=tuple(Tick(scale.y(value), scale.label(value)) for value in scale.ticks),
        curves=tuple(sorted(drawn, key=lambda curve: curve.target)),
        band=band,
        thinned=points - sum(len(curve.t) for curve in drawn),
    )


def _steps(name: str, rows: pd.DataFrame, scene: Scene, scale: _Scale) -> Curve:
    t, values = rows["t"].to_numpy(), rows["value"].to_numpy()
    if len(t) > 2 * scene.buckets:
        kept = thin(t, values, scene.buckets)
        t, values = t[kept], values[kept]
    path = [f"M{_short(t[0])} {scale.y(values[0]):g}"]
    path += [f"H{_short(at)}V{scale.y(value):g}" for at, value in zip(t[1:], values[1:], strict=True)]
    return Curve(
        gpu=name,
        target=name == scene.target_gpu,
        path="".join(path) + f"H{_short(scene.span[1])}",
        t=tuple(round(float(at), 3) for at in t),
        values=tuple(float(value) for value in values),
        steps=True,
    )


def strips(samples: pd.DataFrame, scene: Scene, prefix: str) -> Drawing:
    """Draw a row per GPU; stretches with a value other than 0 are labelled with `prefix` and the value."""
    gpus = sorted(samples["gpu"].unique(), key=lambda gpu: (len(gpu), gpu))
    stretches = [
        Stretch(t, until, place * ROW + 2.0, value, f"{prefix}{value:g}" if value else "")
        for place, gpu in enumerate(gpus)
        for t, until, value in _stretches(samples[samples["gpu"] == gpu])
    ]
    return Drawing(
        scene=scene,
        height=ROW * len(gpus),
        x_ticks=tuple(time_ticks(*scene.span)),
        y_ticks=tuple(Tick(place * ROW + ROW / 2, str(gpu)) for place, gpu in enumerate(gpus)),
        stretches=tuple(stretches),
    )


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    ticks: tuple[float, ...]

    @classmethod
    def around(cls, low: float, high: float) -> _Scale:
        """Return a scale from tick to tick, so that the axis names its own ends; a flat line is in the middle."""
        if not high > low:
            room = abs(low) * 0.05 or 1.0
            low, high = low - room, high + room
        step = nice_step(high - low, 4)
        first, last = math.floor(low / step), math.ceil(high / step)
        ticks = tuple(n * step for n in range(first, last + 1))
        if len(ticks) > 12 or not ticks or not math.isfinite(ticks[-1] - ticks[0]):  # at the edge of floating point
            raise ValueError(f"values from {low:g} to {high:g} are too close or too far apart to draw")
        return cls(ticks[0], ticks[-1], ticks)

    def y(self, value: float) -> float:
        return round(HEIGHT * (self.high - value) / (self.high - self.low), 1)

    def label(self, value: float) -> str:
        step = self.ticks[1] - self.ticks[0]
        if max(abs(self.low), abs(self.high)) >= 1e7 or step < 1e-4:
            return f"{value:.4g}"
        return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"


def _curve(gpu: str, rows: pd.DataFrame, scene: Scene, scale: _Scale) -> Curve:
    t, values = rows["t"].to_numpy(), rows["value"].to_numpy()
    steps = np.diff(t)
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    if len(t) > 2 * scene.buckets:
        kept = thin(t, values, scene.buckets)
        usual = max(usual, float(t[-1] - t[0]) / scene.buckets)
        t, values = t[kept], values[kept]
    before = -math.inf
    path: list[str] = []
    for at, value in zip(t, values, strict=True):
        joined = path and (not usual or at - before <= GAP_FACTOR * usual)
        path.append(f"{'L' if joined else 'M'}{_short(at)} {scale.y(value):g}")
        before = at
    alone = "h0" if len(path) == 1 else ""  # a point, which a round line cap makes visible
    return Curve(
        gpu=gpu,
        target=gpu == scene.target_gpu,
        path="".join(path) + alone,
        t=tuple(round(float(at), 3) for at in t),
        values=tuple(float(f"{value:.6g}") for value in values),
    )


def _short(seconds: float) -> str:
    return f"{seconds:.2f}".rstrip("0").rstrip(".")


def thin(t: np.ndarray, values: np.ndarray, buckets: int) -> np.ndarray:
    """Return the places of the lowest and the highest value in each of `buckets` equal stretches, in order of time."""
    stretch = np.minimum(((t - t[0]) / (t[-1] - t[0]) * buckets).astype(int), buckets - 1)
    by_value = np.lexsort((values, stretch))
    edges = np.flatnonzero(np.diff(stretch[by_value])) + 1
    lowest, highest = np.r_[0, edges], np.r_[edges, len(t)] - 1
    return np.unique(by_value[np.r_[lowest, highest]])


def _stretches(rows: pd.DataFrame) -> Iterator[tuple[float, float, float]]:
    """Yield runs of one value as (from, until, value), in order of time; a gap in the samples ends a run."""
    steps = rows["t"].diff()
    usual = float(steps[steps > 0].median()) if (steps > 0).any() else 1.0
    new_run = ((rows["value"] != rows["value"].shift()) | (steps > GAP_FACTOR * usual)).to_numpy()
    starts = np.flatnonzero(new_run)
    if len(starts) > MOST_STRETCHES:
        raise ValueError(f"the value changes {len(starts):,} times, which is more than can be drawn apart here")
    t, values = rows["t"].to_numpy(), rows["value"].to_numpy()
    for start, end in zip(starts, np.r_[starts[1:], len(t)] - 1, strict=True):
        yield float(t[start]), float(t[end]) + usual, float(values[start])
