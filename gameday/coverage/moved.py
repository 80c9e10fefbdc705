"""When a series first left its baseline: the metric signal, for faults of which no rule says which series moves.

The rule, for every series of the target (one metric of one GPU), from the
fault going in until it came out:

* zero throughout the baseline (a code, a flag, a count of errors): it has moved at its first other sample;
* else: at the first of two samples in a row that lie outside the band from lowest to highest, widened to both sides
  by the band's own width, and by a tenth of its median at least; samples at which half of the node's GPUs or more are
  outside theirs do not count: that is a job that pauses (a checkpoint, say), and no fault of one GPU;
* only ever rising before the fault (a counter that counts on): it is not looked at;
* samples before and none for the last third of the fault's time, nor for three of its usual intervals: it has ended, at
  its last sample.

A series needs 3 samples before the fault, since two could not tell a value that stands from one that moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pandas as pd

from gameday.report.samples import GAP_FACTOR

FEWEST = 3
_WIDEST_SHARE = 0.1
_TOGETHER = 0.5
_GONE_FOR = 1 / 3


class Move(NamedTuple):
    """A series' first departure. `value` is None for one that ended."""

    at: datetime
    metric: str
    gpu: str
    before: float
    value: float | None

    def __str__(self) -> str:
        whose = f"{self.metric} of GPU {self.gpu}" if self.gpu else self.metric
        return f"{whose} ended" if self.value is None else f"{whose} {self.before:g} → {self.value:g}"


def measured(metrics: pd.DataFrame, node: str, injected: datetime) -> bool:
    """Whether any series of the node has enough samples before the fault to tell a move by."""
    before = metrics[(metrics["node"] == node) & (metrics["time"] < pd.Timestamp(injected))]
    return bool((before.groupby(["metric", "gpu"]).size() >= FEWEST).any())


def first_move(metrics: pd.DataFrame, node: str, injected: datetime, ended: datetime) -> Move | None:
    """The earliest departure of any series of the node between the two instants; None where none departed."""
    mine = metrics[(metrics["node"] == node) & (metrics["time"] <= pd.Timestamp(ended))]
    fault, end = pd.Timestamp(injected), pd.Timestamp(ended)
    moves = [
        move
        for metric, rows in mine.groupby("metric", sort=True)
        for move in _of_metric(str(metric), rows.pivot_table(index="time", columns="gpu", values="value"), fault, end)
    ]
    return min(moves, default=None, key=lambda move: move.at)


def _of_metric(metric: str, table: pd.DataFrame, fault: pd.Timestamp, end: pd.Timestamp) -> Iterator[Move]:
    """The first departure of each GPU's series; rows of `table` are times, columns GPUs."""
    times = [pd.Timestamp(at) for at in table.index.to_numpy()]
    first = sum(at < fault for at in times)
    gpus, samples = [str(gpu) for gpu in table.columns], table.to_numpy(dtype=float)
    before = [column[:first][~np.isnan(column[:first])] for column in samples.T]
    known = [number for number, values in enumerate(before) if len(values) >= FEWEST and not _counts_on(values)]
    out = np.array([_outside(before[number], samples[first:, number]) for number in known])
    together = out.mean(axis=0) >= _TOGETHER if len(known) > 1 else False
    for number, row in zip(known, out, strict=True):
        values, column = before[number], samples[:, number]
        alone = row & ~together
        counts = alone[:-1] & alone[1:] if values.any() else row
        middle, places = float(np.median(values)), np.flatnonzero(~np.isnan(column))
        last, every = times[places[-1]], pd.Series([times[place] for place in places]).diff().median()
        if counts.any():
            place = first + int(counts.argmax())
            at = times[place].to_pydatetime()
            yield Move(at, metric, gpus[number], middle, float(column[place]))
        elif end - last > max(_GONE_FOR * (end - fault), GAP_FACTOR * every):
            yield Move(max(last, fault).to_pydatetime(), metric, gpus[number], middle, None)


def _counts_on(values: np.ndarray) -> bool:
    steps = np.diff(values)
    return bool((steps >= 0).all() and (steps > 0).sum() > 1)


def _outside(before: np.ndarray, during: np.ndarray) -> np.ndarray:
    """Whether each sample lies outside the widened band; one that is missing does not."""
    low, high = float(before.min()), float(before.max())
    room = max(high - low, _WIDEST_SHARE * abs(float(np.median(before))))
    outside: np.ndarray = (during < low - room) | (during > high + room)
    return outside
