"""A fleet that is ill already gets no game-day on top: how many other GPU nodes may be out of work."""

from __future__ import annotations

import re
from typing import ClassVar

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation, few

# Both name what they count in the moment nothing is wrong, so that an empty answer can be told from no exporter.
_KUBE_STATE_METRICS = "count(kube_node_info)"
_NODE_HEALTH = "count(gameday_health_quarantined_nodes)"


class Unhealthy(Guardrail):
    """Prometheus is asked, because its answer has the size of the trouble and not of the fleet.

    Without kube-state-metrics the first page of the pool tells who is NotReady
    or cordoned (one request to the API server a observation), and our controller's
    own metrics who is quarantined.
    """

    name: ClassVar[str] = "other nodes unhealthy"
    every_s: ClassVar[float | None] = 30.0
    asks: ClassVar[bool] = True

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_unhealthy_nodes")
        return limit.shown("") if limit else ""

    def measure(self, observation: Observation) -> Finding:
        limit = observation.strictest("max_unhealthy_nodes")
        prometheus = observation.run.servers.prometheus
        keys = "|".join(re.escape(key) for key in observation.run.quarantine_keys)
        query = observation.of_profile.unhealthy_query.replace("${quarantine_taint_keys}", keys.replace("\\", "\\\\"))
        samples = prometheus.query(query)
        ill = {sample.labels.get("node", "") for sample in samples} - {""}
        nameless = sum(not sample.labels.get("node") for sample in samples)
        missing = f"{nameless} series of unhealthy_query carry no label node" if nameless else ""
        if not prometheus.query(_KUBE_STATE_METRICS):
            ill |= {node.name for node in observation.pool if node.status != "Ready"}
            if not prometheus.query(_NODE_HEALTH):
                missing = "Prometheus holds neither kube-state-metrics nor our controller's metrics"
            elif len(observation.pool) >= CANDIDATE_PAGE:
                missing = f"without kube-state-metrics only the first {CANDIDATE_PAGE} nodes are looked at"
        ill -= observation.ours
        if limit is not None and len(ill) > limit.value:
            return Finding(False, f"{len(ill)} nodes", few(ill), "mend them first", nodes=tuple(sorted(ill)))
        if missing:
            hint = "make it name the node" if nameless else "scrape kube-state-metrics"
            return Finding(None, f"{len(ill)} nodes at least", missing, hint)
        return Finding(True, f"{len(ill)} nodes", few(ill), nodes=tuple(sorted(ill)))
