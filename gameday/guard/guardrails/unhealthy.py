"""The number of other GPU nodes that may be out of work: a fleet in trouble gets no game-day on top."""

from __future__ import annotations

import re
from typing import ClassVar

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation, first_names

# Both always have a series, which shows that their exporter is scraped.
_KUBE_STATE_METRICS = "count(kube_node_info)"
_NODE_HEALTH = "count(gameday_health_quarantined_nodes)"


class Unhealthy(Guardrail):
    """Limits the unhealthy nodes outside the season by a query to Prometheus.

    The size of its answer depends on the trouble, not on the fleet. Without kube-state-metrics the first page of the
    pool shows the nodes that are NotReady or cordoned (one request to the API server), and our controller's own metrics
    show those that are quarantined.
    """

    name: ClassVar[str] = "other nodes unhealthy"
    interval_s: ClassVar[float | None] = 30.0
    asks_server: ClassVar[bool] = True

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_unhealthy_nodes")
        return limit.describe() if limit else ""

    def measure(self, observation: Observation) -> Measurement:
        limit = observation.strictest("max_unhealthy_nodes")
        prometheus = observation.run.servers.prometheus
        keys = "|".join(re.escape(key) for key in observation.run.quarantine_keys)
        query = observation.profile_guardrails.unhealthy_query.replace(
            "${quarantine_taint_keys}", keys.replace("\\", "\\\\")
        )
        samples = prometheus.query(query)
        unhealthy = {sample.labels.get("node", "") for sample in samples} - {""}
        nameless = sum(not sample.labels.get("node") for sample in samples)
        missing = f"{nameless} series of unhealthy_query carry no label node" if nameless else ""
        if not prometheus.query(_KUBE_STATE_METRICS):
            unhealthy |= {node.name for node in observation.pool if node.status != "Ready"}
            if not prometheus.query(_NODE_HEALTH):
                missing = "Prometheus holds neither kube-state-metrics nor our controller's metrics"
            elif len(observation.pool) >= CANDIDATE_PAGE:
                missing = f"without kube-state-metrics only the first {CANDIDATE_PAGE} nodes are looked at"
        unhealthy -= observation.season_nodes
        if limit is not None and len(unhealthy) > limit.value:
            return Measurement(
                False,
                f"{len(unhealthy)} nodes",
                first_names(unhealthy),
                "mend them first",
                nodes=tuple(sorted(unhealthy)),
            )
        if missing:
            hint = "make it name the node" if nameless else "scrape kube-state-metrics"
            return Measurement(None, f"{len(unhealthy)} nodes at least", missing, hint)
        return Measurement(True, f"{len(unhealthy)} nodes", first_names(unhealthy), nodes=tuple(sorted(unhealthy)))
