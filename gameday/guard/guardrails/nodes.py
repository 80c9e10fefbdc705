"""How many nodes may be out of work at once because of us."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation


class Nodes(Guardrail):
    """The cluster's limit counts a season's other runs too; a plan's is about itself."""

    name: ClassVar[str] = "nodes"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_nodes")
        return limit.shown("") if limit else ""

    def measure(self, observation: Observation) -> Finding:
        own, all_of_ours = len(observation.targets), len(observation.broken)
        measured = f"{own}" + (f", {all_of_ours} with the season's others" if all_of_ours > own else "")
        of_plan, of_profile = observation.of_plan.max_nodes, observation.of_profile.max_nodes
        ok = (of_plan is None or own <= of_plan) and (of_profile is None or all_of_ours <= of_profile)
        return Finding(ok, measured, hint="lower targets.nodes in the plan")
