"""Virtual GPUs that compute more slowly than their clocks say, so that only a measurement finds them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self

_SLOWEST, _FASTEST = 0.67, 0.90
"""Shares of the ordinary rate. Outliers took up to 1.5 times as long as the median GPU (Sinha et al., SC22); one that
is 10 % slow still passes QA's floor, which allows for a fifth below the best rate.
"""


@dataclass(frozen=True)
class SlowGpu:
    """A GPU and the share of its rate that it reaches."""

    node: str
    gpu: int
    share: float

    def __str__(self) -> str:
        return f"{self.node}/{self.gpu}={self.share:g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `str` wrote. Raises ValueError."""
        node, _, rest = text.partition("/")
        gpu, _, share = rest.partition("=")
        return cls(node, int(gpu), float(share))


def choose_slow(count: int, nodes: int, gpus: int, seed: int) -> tuple[SlowGpu, ...]:
    """Return this many slow GPUs, each on a node of its own, by a seed.

    They are among the last quarter of a node's GPUs, which the rehearsal's training work leaves idle.

    Raises:
        ValueError: There are fewer nodes.
    """
    generator = random.Random(f"slow/{seed}")  # noqa: S311 - a stated, repeatable choice
    chosen = sorted(generator.sample(range(1, nodes + 1), count))
    idle = range(gpus - max(1, gpus // 4), gpus)
    step = (_FASTEST - _SLOWEST) / max(1, count - 1)
    return tuple(
        SlowGpu(f"gpu-node-{node}", generator.choice(idle), round(_FASTEST - step * place, 3))
        for place, node in enumerate(chosen)
    )
