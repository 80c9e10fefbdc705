"""The pace at which the rehearsal's Prometheus reads the GPUs' metrics, and the page of the nodes of game-days."""

from __future__ import annotations

import math

WORKED_ON = "/metrics/worked-on"
"""Path of the page with the nodes that have had a game-day's pod."""
WORKED_ON_TARGETS = "/metrics/worked-on/targets"
"""Path of the answer to Prometheus' discovery by HTTP, which names this page."""
SMALL = 32
"""Number of nodes up to which Prometheus keeps up at its fastest pace on two cores."""
LARGE = 1000
"""Number of nodes above which only those of game-days are read whole (`WORKED_ON`)."""


def scrape_every_s(nodes: int) -> float:
    """Return seconds between two scrapes that two cores can handle: 1 up to 32 nodes, rising evenly to 15 at 1,000."""
    share = (min(max(nodes, SMALL), LARGE) - SMALL) / (LARGE - SMALL)
    return float(math.ceil(1 + 14 * share))
