"""Floors for QA learned from the fleet itself: what a healthy GPU of it reaches, not what a data sheet says.

A floor is the value below which the fleet run names a GPU, so that QA and the fleet agree. It is the lower of the
median less 3.5 robust standard deviations and 95 % of the median. For a normal spread that is at most the 0.02 %
quantile; to know a quantile that low from the values alone would take a fleet of thousands.
"""

from __future__ import annotations

import math
import re
from datetime import datetime

from gameday.plan.qa import QaFloors
from gameday_fleet.judge import ModelFleet

_KEYS = {
    "gemm_tflops": "gemm_tflops",
    "memory_gbs": "memory_bandwidth_gbs",
    "link_gbs": "link_bandwidth_gbs",
    "all_reduce_gbs": "all_reduce_gbs",
}
"""The key of `qa.floors` for each figure's field."""
_DIGITS = 3
_NO_NAME = re.compile(r"[^a-z0-9]+")


def learned_floors(model: ModelFleet) -> dict[str, float]:
    """Return a model's floors by key of `qa.floors`; empty if there are too few GPUs to judge."""
    found = {
        _KEYS[figure.key]: _rounded_down(figure.lowest_ordinary or 0)
        for figure in model.figures
        if figure.key in _KEYS and (figure.lowest_ordinary or 0) > 0
    }
    QaFloors.model_validate(found)
    return found


def floors_file(model: ModelFleet) -> str:
    """Return the name of the model's file of floors."""
    return f"floors-{_NO_NAME.sub('-', model.model.lower()).strip('-')[:60] or 'gpu'}.yaml"


def floors_yaml(model: ModelFleet, run: str, started: datetime) -> str:
    """Return the file of floors, to be merged into a plan's `qa` or a health policy's `repair.qa`."""
    named = {figure.key: figure for figure in model.figures}
    keys = {_KEYS[key]: figure for key, figure in named.items() if key in _KEYS}
    lines = [
        f"# Floors for QA of {_one_line(model.model)}, learned by gameday fleet from {model.gpus} GPUs",
        f"# on {started:%Y-%m-%d} (run {run}). Merge them into a plan's qa, or a health policy's repair.qa.",
        "qa:",
        "  floors:",
    ]
    for key, value in learned_floors(model).items():
        spread = keys[key].spread
        lines.append(f"    {key}: {value:g}  # median {spread.median:.4g} of {spread.n}")
    return "\n".join(lines) + "\n"


def _rounded_down(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - _DIGITS + 1)
    return round(math.floor(value / step) * step, 6)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:100]
