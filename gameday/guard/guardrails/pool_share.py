"""Which share of the GPU pool may be broken at once."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation


class PoolShare(Guardrail):
    """Counted against the first page of the pool: of a larger pool the share is smaller than what is measured here."""

    name: ClassVar[str] = "share of the pool"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_pool_percent")
        return limit.shown(" %") if limit else ""

    def measure(self, observation: Observation) -> Finding:
        limit, nodes = observation.strictest("max_pool_percent"), len(observation.pool)
        if not nodes:
            labels = ",".join(f"{key}={value}" for key, value in observation.of_profile.pool_selector.items())
            return Finding(None, "", f"no node carries {labels}", "set guardrails.pool_selector in the cluster profile")
        percent = 100 * len(observation.broken) / nodes
        many = f"{nodes} or more" if nodes >= CANDIDATE_PAGE else f"{nodes}"
        ok = limit is None or percent <= limit.value
        return Finding(ok, f"{percent:.3g} % ({len(observation.broken)} of {many})", hint="fewer targets")
