"""An API server that fails or throttles us has other worries: the share of our own requests it may."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation

# Below this a share says nothing: one failure of two is no trend. Half of what a game-day asks in all.
_ENOUGH = 20


class ApiErrors(Guardrail):
    """Read from the run's own counter."""

    name: ClassVar[str] = "API errors"
    every_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        return f"at most {observation.of_profile.max_api_error_percent:g} % of our requests (profile)"

    def measure(self, observation: Observation) -> Finding:
        cost = observation.run.kubernetes.counter.cost()
        percent = 100 * cost.failed / max(1, cost.requests)
        measured = f"{percent:.3g} % ({cost.failed} of {cost.requests})"
        if cost.requests < _ENOUGH or percent <= observation.of_profile.max_api_error_percent:
            return Finding(True, measured)
        return Finding(False, measured, "the API server fails or throttles our requests", "let it recover first")
