"""Check that an alerting rule can fire here: Prometheus must have the series that its expression reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gameday.cluster.prometheus import Prometheus
from gameday.cluster.promql import AllOf, AnyOf, Need, Selector, needs

# Prometheus itself creates these series, and only while an alert is active.
_OF_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
# Some releases of dcgm-exporter show the metric only after an Xid (docs/sources.md, dcgm-exporter). They look as if
# their counters file lacked it; the selector beside it shows that the exporter is scraped.
_BORN_OF_A_FAULT = {"DCGM_FI_DEV_XID_ERRORS": '{__name__=~"DCGM_.+"}'}
CONTROLLER_METRICS = "gameday_health_"
"""The prefix of all metrics of our node-health controller."""
_SOURCES = {
    CONTROLLER_METRICS: "scrape the node-health controller (deploy/node-health), or expect an alert of your detector",
    "DCGM_": "give dcgm-exporter our counters file (deploy/alerts/dcgm-counters.csv), or expect another alert",
    "apiserver_": "scrape the API servers under the job apiserver, or expect another alert",
    "etcd_": "scrape etcd's --listen-metrics-urls, or expect another alert",
    "scheduler_": "scrape kube-scheduler, or expect another alert",
    "kube_": "scrape kube-state-metrics, or expect another alert",
    "node_": "scrape node_exporter, or expect another alert",
}
_ANY_SOURCE = "scrape the exporter that has it, or change expect.alerts in the plan"


@dataclass(frozen=True)
class RuleCheck:
    """The result of the check whether a rule can fire."""

    can_fire: bool | None
    """True if the rule can fire; None: unknown."""
    why: str = ""
    """The reason why the rule cannot fire, or may not; empty if every series is there."""
    fix: str = ""
    """The next step if a series is missing."""


class RuleSeries:
    """Checks rules one after the other; it asks for the recording rules once."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._recorded: dict[str, list[str]] = {}
        for rule in prometheus.recording_rules():
            self._recorded.setdefault(rule.name, []).append(rule.query)

    def check(self, queries: Sequence[str]) -> RuleCheck:
        """Check the expressions of one rule, or of several rules of the same name.

        Raises:
            AdapterError: Prometheus cannot be asked.
        """
        return self._check(AnyOf(tuple(map(needs, queries))), frozenset())

    def always_needs(self, queries: Sequence[str], prefix: str) -> bool:
        """Return True if every rule needs a metric with this prefix in its name to have a result."""
        return self._needs_metric(AnyOf(tuple(map(needs, queries))), prefix, frozenset())

    def metrics(self, query: str) -> frozenset[str]:
        """Return the metrics that an expression reads; recording rules are followed to the metrics of exporters."""
        return self._metrics(needs(query), frozenset())

    def _metrics(self, need: Need, following: frozenset[str]) -> frozenset[str]:
        if not isinstance(need, Selector):
            return frozenset[str]().union(*(self._metrics(part, following) for part in need.parts))
        recorded = self._recorded.get(need.metric, ())
        if not recorded or need.metric in following:
            return frozenset({need.metric} - _OF_ALERTS - {""})
        below = AnyOf(tuple(map(needs, recorded)))
        return self._metrics(below, following | {need.metric})

    def _needs_metric(self, need: Need, prefix: str, following: frozenset[str]) -> bool:
        if isinstance(need, AllOf):
            return any(self._needs_metric(part, prefix, following) for part in need.parts)
        if isinstance(need, AnyOf):
            return bool(need.parts) and all(self._needs_metric(part, prefix, following) for part in need.parts)
        recorded = self._recorded.get(need.metric, ())
        if not recorded or need.metric in following:
            return need.metric.startswith(prefix)
        below = AnyOf(tuple(map(needs, recorded)))
        return self._needs_metric(below, prefix, following | {need.metric})

    def _check(self, need: Need, following: frozenset[str]) -> RuleCheck:
        """Check the needs of one expression; `following` holds the recording rules on the way, to avoid loops."""
        if isinstance(need, Selector):
            return self._check_selector(need, following)
        found = [self._check(part, following) for part in need.parts]
        rank = {True: 2, None: 1, False: 0}
        if isinstance(need, AllOf):
            return min(found, key=lambda one: (rank[one.can_fire], not one.why), default=RuleCheck(True))
        return max(found, key=lambda one: (rank[one.can_fire], not one.why))

    def _check_selector(self, selector: Selector, following: frozenset[str]) -> RuleCheck:
        metric = selector.metric
        if metric in _OF_ALERTS or self._has_series(selector.text):
            return RuleCheck(True)
        if metric in self._recorded and metric not in following:
            queries = tuple(map(needs, self._recorded[metric]))
            return self._check(AnyOf(queries), following | {metric})
        return self._without_series(selector)

    def _without_series(self, selector: Selector) -> RuleCheck:
        metric = selector.metric
        if not metric:
            return RuleCheck(None, f"no series of {selector.text} now", "see whether its exporter is scraped")
        others = selector.text != metric and self._has_series(metric)
        exposed = True if others else self._prometheus.exposes(metric)
        fix = next((fix for prefix, fix in _SOURCES.items() if metric.startswith(prefix)), _ANY_SOURCE)
        if exposed:
            return RuleCheck(
                True, f"no series of {selector.text} now; a scraped target has {metric}: a fault can make one"
            )
        if exposed is None:
            return RuleCheck(
                None, f"no series of metric {metric} now, and this server keeps no metadata of targets", fix
            )
        if metric in _BORN_OF_A_FAULT and self._has_series(_BORN_OF_A_FAULT[metric]):
            return RuleCheck(
                None, f"no series of metric {metric} now; some exporters make it with the first fault only", fix
            )
        return RuleCheck(False, f"no series of metric {metric}, and no scraped target has it", fix)

    def _has_series(self, selector: str) -> bool:
        return bool(self._prometheus.query(f"group({selector})"))
