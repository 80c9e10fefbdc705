"""The share of the GPU pool that may be broken at the same time."""

from __future__ import annotations

from typing import ClassVar

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class PoolShare(Guardrail):
    """Limits the share of the pool's first page; a larger pool's real share is smaller than the measured one."""

    name: ClassVar[str] = "share of the pool"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_pool_percent")
        return limit.describe(" %") if limit else ""

    def measure(self, observation: Observation) -> Measurement:
        limit, nodes = observation.strictest("max_pool_percent"), len(observation.pool)
        if not nodes:
            labels = ",".join(f"{key}={value}" for key, value in observation.profile_guardrails.pool_selector.items())
            return Measurement(
                None, "", f"no node carries {labels}", "set guardrails.pool_selector in the cluster profile"
            )
        percent = 100 * len(observation.broken_nodes) / nodes
        many = f"{nodes} or more" if nodes >= CANDIDATE_PAGE else f"{nodes}"
        ok = limit is None or percent <= limit.value
        return Measurement(ok, f"{percent:.3g} % ({len(observation.broken_nodes)} of {many})", hint="fewer targets")
