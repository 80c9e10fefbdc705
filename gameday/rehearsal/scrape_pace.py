"""The pace at which the rehearsal's Prometheus reads the GPUs' metrics, and the page of the nodes under a game-day."""

from __future__ import annotations

import math

WORKED_ON = "/metrics/worked-on"
"""Path of the page with the nodes on which a game-day has had a pod."""
WORKED_ON_TARGETS = "/metrics/worked-on/targets"
"""Path of the answer to Prometheus' discovery by HTTP that names this page."""
SMALL = 32
"""Number of nodes up to which Prometheus keeps up at its fastest on two cores."""
LARGE = 1000
"""Number of nodes beyond which only those that a game-day works on are read whole (`WORKED_ON`)."""


def scrape_every_s(nodes: int) -> float:
    """Return seconds between two scrapes that two cores carry: 1 up to 32 nodes, growing evenly to 15 at 1,000."""
    share = (min(max(nodes, SMALL), LARGE) - SMALL) / (LARGE - SMALL)
    return float(math.ceil(1 + 14 * share))
