"""The time at which a series left its baseline: the metric signal of faults that no rule is written for.

The rule for every series of the target (one metric of one GPU), from the fault going in until it came out:

* zero throughout the baseline (a code, a flag, a count of errors): it has moved at its first other sample;
* else: at the first of two samples in a row that lie outside the band from lowest to highest, widened to both sides
  by the band's own width, and by a tenth of its median at least; samples at which half of the node's GPUs or more are
  outside theirs do not count: that is a job that pauses (a checkpoint, say), and no fault of one GPU;
* only ever rising before the fault (a counter that counts on): it is not looked at;
* samples before and none for the last third of the fault's time, nor for three of its usual intervals: it has ended, at
  its last sample.

A series needs 3 samples before the fault, since two could not show whether a value moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pandas as pd

from gameday.history.sampling import GAP_FACTOR

FEWEST = 3
_WIDEST_SHARE = 0.1
_TOGETHER = 0.5
_GONE_FOR = 1 / 3


class Departure(NamedTuple):
    """A series' first departure. `value` is None for one that ended."""

    at: datetime
    metric: str
    gpu: str
    before: float
    value: float | None

    def __str__(self) -> str:
        series = f"{self.metric} of GPU {self.gpu}" if self.gpu else self.metric
        return f"{series} ended" if self.value is None else f"{series} {self.before:g} → {self.value:g}"


def has_baseline(metrics: pd.DataFrame, injected: datetime) -> bool:
    """Return True if any series of a node's metrics has enough samples before the fault to show a move."""
    before = metrics[metrics["time"] < pd.Timestamp(injected)]
    return bool((before.groupby(["metric", "gpu"]).size() >= FEWEST).any())


def first_departure(metrics: pd.DataFrame, injected: datetime, ended: datetime) -> Departure | None:
    """Return the earliest departure of any series of a node's metrics between the two times; None if none departed."""
    if metrics.empty:  # a killed run left no frames, and pandas would need long for an empty result
        return None
    rows = metrics[(metrics["time"] <= pd.Timestamp(ended)) & metrics["gpu"].notna() & metrics["value"].notna()]
    fault, end = pd.Timestamp(injected).to_datetime64(), pd.Timestamp(ended).to_datetime64()
    times, values = rows["time"].to_numpy(dtype="datetime64[ns]"), rows["value"].to_numpy()
    metric, names = pd.factorize(rows["metric"], sort=True)
    gpu, gpus = pd.factorize(rows["gpu"], sort=True)
    moves: list[Departure] = []
    for number, name in enumerate(names):
        mine = metric == number
        table = _table(times[mine], gpu[mine], values[mine], [str(gpu) for gpu in gpus])
        moves += _of_metric(str(name), table, fault, end)
    return min(moves, default=None, key=lambda move: move.at)


class _Table(NamedTuple):
    """A metric: a row of samples for each time, a column for each GPU; NaN if there is none. Times are UTC."""

    times: np.ndarray
    gpus: list[str]
    samples: np.ndarray


def _table(at: np.ndarray, gpu: np.ndarray, values: np.ndarray, gpus: list[str]) -> _Table:
    """Return the samples as a table, with the mean of several samples of one GPU and instant.

    Written by hand, because pandas' pivot takes 20 ms: minutes for 500 nodes.
    """
    times, row = np.unique(at, return_inverse=True)
    cell, shape = row * len(gpus) + gpu, (len(times), len(gpus))
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(cell, weights=values, minlength=shape[0] * shape[1]).reshape(shape)
    return _Table(times, gpus, np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0))


def _of_metric(metric: str, table: _Table, fault: np.datetime64, end: np.datetime64) -> Iterator[Departure]:
    """Yield the first departure of each GPU's series."""
    times, samples = table.times, table.samples
    first = int(np.searchsorted(times, fault))
    before = [column[:first][~np.isnan(column[:first])] for column in samples.T]
    known = [number for number, values in enumerate(before) if len(values) >= FEWEST and not _counts_on(values)]
    out = np.array([_outside(before[number], samples[first:, number]) for number in known])
    together = out.mean(axis=0) >= _TOGETHER if len(known) > 1 else False
    for number, row in zip(known, out, strict=True):
        values, column = before[number], samples[:, number]
        alone = row & ~together
        counts = alone[:-1] & alone[1:] if values.any() else row
        if counts.any():
            place = first + int(counts.argmax())
            at, value = times[place], float(column[place])
        elif (at := _ended(times[~np.isnan(column)], fault, end)) is not None:
            value = None
        else:
            continue
        when = pd.Timestamp(at, tz="UTC").to_pydatetime()
        yield Departure(when, metric, table.gpus[number], float(np.median(values)), value)


def _ended(times: np.ndarray, fault: np.datetime64, end: np.datetime64) -> np.datetime64 | None:
    """Return the time at which a series with samples at these times ended; None if it did not."""
    last = times[-1]
    if end - last <= (end - fault) * _GONE_FOR:
        return None
    every = np.median(np.diff(times).astype(np.int64)).astype("timedelta64[ns]")
    return max(last, fault) if end - last > every * GAP_FACTOR else None


def _counts_on(values: np.ndarray) -> bool:
    steps = np.diff(values)
    return bool((steps >= 0).all() and (steps > 0).sum() > 1)


def _outside(before: np.ndarray, during: np.ndarray) -> np.ndarray:
    """Return, for each sample, whether it lies outside the widened band; a missing one does not."""
    low, high = float(before.min()), float(before.max())
    room = max(high - low, _WIDEST_SHARE * abs(float(np.median(before))))
    outside: np.ndarray = (during < low - room) | (during > high + room)
    return outside
