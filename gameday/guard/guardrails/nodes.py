"""The number of nodes that may be out of work at the same time because of us."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class Nodes(Guardrail):
    """Limits the targets; the profile's limit includes a season's other runs, the plan's only its own."""

    name: ClassVar[str] = "nodes"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_nodes")
        return limit.describe() if limit else ""

    def measure(self, observation: Observation) -> Measurement:
        own, all_of_ours = len(observation.targets), len(observation.broken_nodes)
        measured = f"{own}" + (f", {all_of_ours} with the season's others" if all_of_ours > own else "")
        of_plan, of_profile = observation.plan_guardrails.max_nodes, observation.profile_guardrails.max_nodes
        ok = (of_plan is None or own <= of_plan) and (of_profile is None or all_of_ours <= of_profile)
        return Measurement(ok, measured, hint="lower targets.nodes in the plan")
