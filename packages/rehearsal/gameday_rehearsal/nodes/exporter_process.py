"""dcgm-exporter's process on each node: it ends with its host engine, and is started again later and later.

A real one exits 1 at the first scrape after its host engine has died, and as its pod's container it is restarted with
the kubelet's back-off (docs/sources.md, dcgm-exporter).
"""

from __future__ import annotations

from itertools import accumulate, chain, repeat

import numpy as np
import numpy.typing as npt

_BACK_OFF_S = (0.0, 10.0, 20.0, 40.0, 80.0, 160.0)
_LONGEST_BACK_OFF_S = 300.0
"""The kubelet restarts at once, then after 10 s, twice that, and so on up to five minutes (docs/sources.md,
dcgm-exporter)."""


class ExporterProcesses:
    """The exporters of all nodes; `dead` says which of them wait for their next start."""

    def __init__(self, nodes: int) -> None:
        self.dead = np.zeros(nodes, bool)
        self._engine = np.zeros(nodes, np.int64)  # the restarts of the host engine that it is connected to
        self._died_at = np.zeros(nodes)

    def start(self, node: int, engine: int) -> None:
        """Start the exporter with its node or its unit."""
        self.dead[node], self._engine[node] = False, engine

    def scrape(
        self, engines: npt.NDArray[np.int64], since: npt.NDArray[np.float64], up: npt.NDArray[np.bool_], now: float
    ) -> None:
        """End the exporters that a scrape finds without their host engine, and start those that are due.

        Args:
            engines: How often each node's host engine has been restarted.
            since: When it was restarted last.
            up: Where it runs.
            now: The time.
        """
        for node in np.flatnonzero(self.dead & up).tolist():
            if self._next_start(node, since[node]) <= now:
                self.start(node, int(engines[node]))
        died = ~self.dead & (~up | (self._engine != engines))
        self.dead |= died
        self._died_at[died] = now

    def _next_start(self, node: int, since: float) -> float:
        """Return the first start of the back-off that finds the host engine, which runs since then."""
        pauses = chain(_BACK_OFF_S, repeat(_LONGEST_BACK_OFF_S))
        return next(at for at in accumulate(pauses, initial=float(self._died_at[node])) if at >= since)
