"""A node's samples on the run's own time, and the report's plain statistics about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from gameday.history.sampling import FEWEST_BASELINE_SCRAPES, GAP_FACTOR
from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import visible

MARGIN = timedelta(minutes=10)
"""Samples this far before the first or after the last record, beyond the plan's baseline window, do not belong to this
run: one stray time stamp must not squeeze every curve into a line.
"""
MAD_TO_SIGMA = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""
SIGMA_FLOOR = 0.02
"""A baseline's spread counts as at least this share of its median; otherwise one degree above a constant would look
enormous.
"""
LONGEST_GPU = 40
"""Characters of a `gpu` label: a MIG instance's UUID."""


@dataclass(frozen=True)
class NodeSamples:
    """`rows` has t (seconds since T+0), gpu, metric and value, all finite; `window` is the fault's, on that axis."""

    rows: pd.DataFrame
    window: tuple[float, float] | None
    not_numbers: int
    outside: int


class Spread(BaseModel):
    """A spread: `low` and `high` are p5 and p95 before the fault, and lowest and highest during and after it."""

    n: int
    mean: float
    low: float
    median: float
    high: float
    p95: float


class Statistics(BaseModel):
    """The statistics of one metric of one GPU.

    Seconds out of band and gaps are over the whole run; None if they are unknown.
    """

    metric: str
    unit: str
    gpu: str
    before: Spread | None
    during: Spread | None
    after: Spread | None
    robust_z: float | None = Field(
        description="(median during − median before) / robust sigma before; None of fewer than 8 scrapes before"
    )
    out_of_band_s: float | None = Field(
        description="seconds outside p5–p95 of before, from the fault on; None as above"
    )
    interval_s: float | None = Field(description="usual seconds between two samples")
    gaps: int | None
    longest_gap_s: float | None


def node_samples(run: RunFolder, node: str | None) -> NodeSamples:
    """Return what Prometheus held of a node."""
    return samples_of(run, run.metrics_of(node or ""), node)


def samples_of(run: RunFolder, frame: pd.DataFrame, node: str | None) -> NodeSamples:
    """Return a node's rows of a frame that has time, gpu, metric and value, in the run's own time."""
    mine = frame[frame["time"].notna()]
    finite = np.isfinite(mine["value"].to_numpy())
    kept: pd.DataFrame = mine[finite]
    times: pd.Series[pd.Timestamp] = kept["time"]
    begin, end = _span(run)
    inside = times.between(begin, end).to_numpy() if begin and end else np.ones(len(kept), dtype=bool)
    if not inside.any():  # the clocks of the history and of Prometheus do not overlap: show all samples
        inside = np.ones(len(kept), dtype=bool)
    kept = kept[inside]
    zero = run.zero or (kept["time"].min() if len(kept) else None)
    t = (kept["time"] - pd.Timestamp(zero)).dt.total_seconds() if zero is not None else pd.Series(dtype="float64")
    gpus = kept["gpu"].map(_plain(kept["gpu"].unique()))
    rows = pd.DataFrame(
        {
            "t": t.to_numpy(),
            "gpu": gpus.to_numpy(),
            "metric": kept["metric"].to_numpy(),
            "value": kept["value"].to_numpy(),
        }
    )
    return NodeSamples(
        rows=rows.sort_values("t", kind="stable", ignore_index=True),
        window=run.fault_window(node) if node else None,
        not_numbers=int((~finite).sum()),
        outside=int((~inside).sum()),
    )


def _plain(gpus: Iterable[str]) -> dict[str, str]:
    """Map each `gpu` label to a text that fits a button; two that are cut alike stay distinct."""
    return {
        gpu: gpu if len(gpu) <= LONGEST_GPU and visible(gpu) == gpu else f"{visible(gpu[:LONGEST_GPU])}… #{place}"
        for place, gpu in enumerate(gpus)
    }


def _span(run: RunFolder) -> tuple[datetime | None, datetime | None]:
    times = [record.at for record in run.history.records]
    if not times:
        return None, None
    before = run.plan.baseline.window if run.plan else timedelta()
    return min(times) - before - MARGIN, max(times) + MARGIN


def spread(values: pd.Series, low: float, high: float) -> Spread | None:
    """Return the values' spread between two quantiles, 0 to 1; None if there are none."""
    if values.empty:
        return None
    ends = values.quantile([low, high, 0.95])
    return Spread(
        n=len(values),
        mean=float(values.mean()),
        low=float(ends.iloc[0]),
        median=float(values.median()),
        high=float(ends.iloc[1]),
        p95=float(ends.iloc[2]),
    )


def parts(rows: pd.DataFrame, window: tuple[float, float] | None) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return the values before, during and after the fault; all of them 'before' if no fault went in."""
    start, end = window or (float("inf"), float("inf"))
    t, values = rows["t"], rows["value"]
    return values[t < start], values[(t >= start) & (t <= end)], values[t > end]


def scrapes_before(rows: pd.DataFrame, window: tuple[float, float] | None) -> int:
    """Return the number of instants with a sample before the fault; GPUs that are scraped together share one.

    Fewer than FEWEST_BASELINE_SCRAPES do not show what is usual.
    """
    times = rows["t"]
    return int((times[times < window[0]] if window else times).nunique())


def statistics(metric: str, unit: str, gpu: str, rows: pd.DataFrame, window: tuple[float, float] | None) -> Statistics:
    """Return the statistics of one GPU's rows of one metric, given in order of t."""
    before, during, after = parts(rows, window)
    usual, has_baseline = spread(before, 0.05, 0.95), scrapes_before(rows, window) >= FEWEST_BASELINE_SCRAPES
    steps = rows["t"].diff()
    interval = float(steps[steps > 0].median()) if (steps > 0).any() else None
    wide = steps[steps > GAP_FACTOR * interval] if interval else steps.iloc[:0]
    return Statistics(
        metric=metric,
        unit=unit,
        gpu=gpu,
        before=usual,
        during=spread(during, 0.0, 1.0),
        after=spread(after, 0.0, 1.0),
        robust_z=robust_z(before, during) if has_baseline else None,
        out_of_band_s=_out_of_band(rows, window, usual, interval) if has_baseline else None,
        interval_s=interval,
        gaps=len(wide) if interval else None,
        longest_gap_s=float(wide.max()) if len(wide) else None,
    )


def robust_z(before: pd.Series, during: pd.Series) -> float | None:
    """Return how far the median moved in the baseline's robust sigma (SIGMA_FLOOR); None without samples of both."""
    if before.empty or during.empty:
        return None
    middle = float(before.median())
    sigma = max(MAD_TO_SIGMA * float((before - middle).abs().median()), SIGMA_FLOOR * abs(middle))
    moved = float(during.median()) - middle
    if sigma == 0.0:  # constantly 0 before the fault: a move then has no size in sigmas, it only happened
        return 0.0 if moved == 0.0 else None
    return moved / sigma


def _out_of_band(
    rows: pd.DataFrame, window: tuple[float, float] | None, usual: Spread | None, interval: float | None
) -> float | None:
    """Return the seconds outside the usual band. A sample counts until the next one, up to one gap."""
    if window is None or usual is None or interval is None:
        return None
    since = rows[rows["t"] >= window[0]]
    if since.empty:
        return None
    lasted = since["t"].diff().shift(-1).fillna(interval).clip(upper=GAP_FACTOR * interval)
    out = (since["value"] < usual.low) | (since["value"] > usual.high)
    return float(lasted[out].sum())
