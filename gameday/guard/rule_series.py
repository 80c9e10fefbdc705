"""Can an alerting rule fire here at all? Only where Prometheus has the series that its expression reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gameday.cluster.prometheus import Prometheus
from gameday.cluster.promql import AllOf, AnyOf, Need, Selector, needs

# Made by Prometheus itself, and only while an alert is active.
_OF_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
# Some releases of dcgm-exporter show the first only after an Xid (docs/sources.md, dcgm-exporter): there is no telling
# such a release from one whose counters file lacks it. The second says that the exporter is scraped.
_BORN_OF_A_FAULT = {"DCGM_FI_DEV_XID_ERRORS": '{__name__=~"DCGM_.+"}'}
_SOURCES = {
    "gameday_health_": "scrape the node-health controller (deploy/node-health), or expect an alert of your detector",
    "DCGM_": "give dcgm-exporter our counters file (deploy/alerts/dcgm-counters.csv), or expect another alert",
    "kube_": "scrape kube-state-metrics, or expect another alert",
    "node_": "scrape node_exporter, or expect another alert",
}
_ANY_SOURCE = "scrape the exporter that has it, or change expect.alerts in the plan"


@dataclass(frozen=True)
class CanFire:
    """`ok` None: it cannot be told. `why` is empty where every series is there."""

    ok: bool | None
    why: str = ""
    fix: str = ""


class RuleSeries:
    """Looks at rules, one after the other; asks for the recording rules once."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self._recorded: dict[str, list[str]] = {}
        for rule in prometheus.recording_rules():
            self._recorded.setdefault(rule.name, []).append(rule.query)

    def look(self, queries: Sequence[str]) -> CanFire:
        """Look at the expressions of one rule, or of several of the same name. Raises AdapterError."""
        return self._of(AnyOf(tuple(map(needs, queries))), frozenset())

    def _of(self, need: Need, following: frozenset[str]) -> CanFire:
        """`following`: recording rules that are being looked into, so that none is twice."""
        if isinstance(need, Selector):
            return self._of_selector(need, following)
        found = [self._of(part, following) for part in need.parts]
        rank = {True: 2, None: 1, False: 0}
        if isinstance(need, AllOf):
            return min(found, key=lambda one: (rank[one.ok], not one.why), default=CanFire(True))
        return max(found, key=lambda one: (rank[one.ok], not one.why))

    def _of_selector(self, selector: Selector, following: frozenset[str]) -> CanFire:
        metric = selector.metric
        if metric in _OF_ALERTS or self._has_series(selector.text):
            return CanFire(True)
        if metric in self._recorded and metric not in following:
            queries = tuple(map(needs, self._recorded[metric]))
            return self._of(AnyOf(queries), following | {metric})
        return self._without_series(selector)

    def _without_series(self, selector: Selector) -> CanFire:
        metric = selector.metric
        if not metric:
            return CanFire(None, f"no series of {selector.text} now", "see whether its exporter is scraped")
        others = selector.text != metric and self._has_series(metric)
        exposed = True if others else self._prometheus.exposes(metric)
        fix = next((fix for prefix, fix in _SOURCES.items() if metric.startswith(prefix)), _ANY_SOURCE)
        if exposed:
            return CanFire(
                True, f"no series of {selector.text} now; a scraped target has {metric}: a fault can make one"
            )
        if exposed is None:
            return CanFire(None, f"no series of metric {metric} now, and this server keeps no metadata of targets", fix)
        if metric in _BORN_OF_A_FAULT and self._has_series(_BORN_OF_A_FAULT[metric]):
            return CanFire(
                None, f"no series of metric {metric} now; some exporters make it with the first fault only", fix
            )
        return CanFire(False, f"no series of metric {metric}, and no scraped target has it", fix)

    def _has_series(self, selector: str) -> bool:
        return bool(self._prometheus.query(f"group({selector})"))
