"""The spread of a figure over GPUs of one model, by statistics that a few broken GPUs cannot distort.

Median and MAD (median absolute deviation) hold while fewer than half of the GPUs are off; mean and standard deviation
would be distorted by the very GPUs that we look for. The robust z is 0.6745 · (x - median) / MAD: for a normal
distribution it equals the ordinary z. Iglewicz and Hoaglin, "How to Detect and Handle Outliers" (ASQC, 1993), call a
value an outlier if it is beyond 3.5 either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gameday.values.models import FrozenModel

OUTLIER_Z = 3.5
"""Robust z from which a value is an outlier (Iglewicz and Hoaglin)."""
FEWEST = 16
"""Fewer values than this name nobody: two nodes of eight GPUs. Our own figure: with fewer values the MAD itself is so
uncertain that healthy GPUs have a z beyond 3.5 twice as often (docs/fleet.md, How often it is wrong).
"""
_MAD_OF_NORMAL = 0.6745
"""MAD of a normal distribution of standard deviation 1."""


@dataclass(frozen=True)
class Figure:
    """A figure that a probe measures, and how large a departure must be to be named.

    An outlier need not matter: if all GPUs are alike, one that differs by a thousandth is one.
    """

    key: str
    """Name of the field of ProbedGpu."""
    title: str
    unit: str
    low_is_bad: bool
    high_is_bad: bool
    matters: float
    """Least departure from the median that is named: a share of it, or with `absolute` in the figure's unit."""
    noise: float
    """Least spread that is assumed, in the unit of `matters`: what one GPU differs by from one measurement to the next.
    Without it every difference would be an outlier in a figure that is the same everywhere.
    """
    absolute: bool = False
    sets_pace: bool = False
    """True if a job waits for the GPU, which is then a straggler."""

    def in_unit(self, value: float, middle: float) -> float:
        """Convert a departure given as a share of the median into the figure's unit."""
        return value if self.absolute else value * abs(middle)


def _rate(key: str, title: str, unit: str, *, matters: float, noise: float) -> Figure:
    return Figure(key, title, unit, low_is_bad=True, high_is_bad=False, matters=matters, noise=noise, sets_pace=True)


FIGURES = (
    _rate("gemm_tflops", "FP16 GEMM", "TFLOP/s", matters=0.05, noise=0.005),
    _rate("memory_gbs", "Memory copy", "GB/s", matters=0.05, noise=0.005),
    _rate("link_gbs", "Host link", "GB/s", matters=0.05, noise=0.01),
    _rate("nvlink_gbs", "NVLinks", "GB/s", matters=0.01, noise=0.001),
    Figure("sm_clock_mhz", "SM clock", "MHz", low_is_bad=True, high_is_bad=False, matters=0.05, noise=0.01),
    Figure(
        "temperature_c",
        "Temperature",
        "°C",
        low_is_bad=False,
        high_is_bad=True,
        matters=10.0,
        noise=1.5,
        absolute=True,
    ),
    Figure("power_w", "Power", "W", low_is_bad=True, high_is_bad=True, matters=0.10, noise=0.01),
)
"""The figures of one GPU. The bounds are our own. Healthy H100 of one node differ by 5 % of a rate (docs/sources.md,
H100 figures), a third less than QA's own bound against a node's other GPUs; 10 °C is two thirds of QA's. NVML counts
whole NVLinks, so that one of 18 is 5.6 %.
"""
ALL_REDUCE = _rate("all_reduce_gbs", "All-reduce of a node", "GB/s", matters=0.05, noise=0.01)
"""A figure of a node's GPUs together; its values are those of nodes."""


TITLES = {figure.key: figure.title for figure in (*FIGURES, ALL_REDUCE)}
"""The words for each figure, by the name of its field."""


class Spread(FrozenModel):
    """The spread of a figure: its robust middle and width, and its ends."""

    n: int
    median: float
    mad: float
    """Median absolute deviation, or the figure's noise if that is more."""
    low: float
    high: float

    @property
    def range_percent(self) -> float:
        """Distance between the lowest and the highest value, percent of the median."""
        return 100 * (self.high - self.low) / self.median if self.median else 0.0

    @property
    def is_judged(self) -> bool:
        """True if there are enough values to name one."""
        return self.n >= FEWEST

    def z(self, value: float) -> float:
        """Return a value's robust z."""
        return _MAD_OF_NORMAL * (value - self.median) / self.mad if self.mad else 0.0

    def lowest_ordinary(self, figure: Figure) -> float:
        """Return the value below which a GPU is named."""
        far = max(OUTLIER_Z * self.mad / _MAD_OF_NORMAL, figure.in_unit(figure.matters, self.median))
        return self.median - far

    def departs(self, value: float, figure: Figure) -> bool:
        """Return True if a value is an outlier that matters, on a side that is bad."""
        far = value - self.median
        if not self.is_judged or abs(far) < figure.in_unit(figure.matters, self.median):
            return False
        bad = figure.low_is_bad if far < 0 else figure.high_is_bad
        return bad and abs(self.z(value)) >= OUTLIER_Z


def spread_of(values: Sequence[float], figure: Figure) -> Spread | None:
    """Return the spread of values, or None if there are none."""
    if not values:
        return None
    middle = median(values)
    mad = median(abs(value - middle) for value in values)
    noise = _MAD_OF_NORMAL * figure.in_unit(figure.noise, middle)
    return Spread(n=len(values), median=middle, mad=max(mad, noise), low=min(values), high=max(values))
