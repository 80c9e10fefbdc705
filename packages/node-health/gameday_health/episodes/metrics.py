"""The repairer's own Prometheus metrics."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gameday_health.episodes.model import Episode, State

_PREFIX = "gameday_repair"
# From a reset that works to two reboots of a GPU server with QA after each.
_BUCKETS = (10, 30, 60, 120, 300, 600, 1200, 2400, 4800)


class RepairMetrics:
    """The repairer's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.episodes = Gauge(
            f"{_PREFIX}_episodes", "Nodes by the state of their newest episode", ["state"], registry=registry
        )
        self.allowed = Gauge(
            f"{_PREFIX}_allowed_nodes", "Nodes that the breaker allows under repair at the same time", registry=registry
        )
        self.hold_out = Gauge(
            f"{_PREFIX}_hold_out_nodes", "Nodes of the hold-out pool: spare, or released", ["state"], registry=registry
        )
        self.leads = Gauge(f"{_PREFIX}_leader", "1 while this process is the one that repairs", registry=registry)
        self.failures = Counter(
            f"{_PREFIX}_work_failures",
            "Times that the work on an open episode broke off; it is begun again",
            registry=registry,
        )
        self.withheld = Counter(
            f"{_PREFIX}_withheld", "Repairs that the breaker held back when they were due", registry=registry
        )
        self.ended = Counter(f"{_PREFIX}_ended", "Episodes that ended", ["state"], registry=registry)
        self.seconds = Histogram(
            f"{_PREFIX}_seconds", "From an episode's beginning to its end", buckets=_BUCKETS, registry=registry
        )
        for state in State:
            self.episodes.labels(str(state)).set(0)
            if state.is_end:
                self.ended.labels(str(state))  # a counter that begins at 1 shows no increase

    def show(self, episodes: Iterable[Episode]) -> None:
        """Make the gauge of states agree with the records."""
        counted = Count(episode.state for episode in episodes)
        for state in State:
            self.episodes.labels(str(state)).set(counted[state])

    def show_nothing(self) -> None:
        """Set every gauge of the cluster's state to 0, for a process that does not lead."""
        self.show(())
        self.allowed.set(0)
        for state in ("released", "spare"):
            self.hold_out.labels(state).set(0)

    def count_end(self, episode: Episode) -> None:
        """Count an episode that has just ended."""
        self.ended.labels(str(episode.state)).inc()
        if episode.ended:
            self.seconds.observe(max(0.0, (episode.ended - episode.opened).total_seconds()))
