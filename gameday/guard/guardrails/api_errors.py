"""The share of our requests that the API server may fail or throttle; above it the server has other problems."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation

# Below this a share means nothing: one failure of two is no trend. Half of the requests of a whole game-day.
_FEWEST_REQUESTS = 20


class ApiErrors(Guardrail):
    """Limits the share of failed requests, by the run's own counter."""

    name: ClassVar[str] = "API errors"
    interval_s: ClassVar[float | None] = 1.0
    needs_targets: ClassVar[bool] = False

    def limit(self, observation: Observation) -> str:
        if _are_the_faults(observation):
            return "any share of our requests: the fault itself keeps the API server away"
        return f"at most {observation.profile_guardrails.max_api_error_percent:g} % of our requests (profile)"

    def measure(self, observation: Observation) -> Measurement:
        cost = observation.run.kubernetes.counter.cost()
        percent = 100 * cost.failed / max(1, cost.requests)
        measured = f"{percent:.3g} % ({cost.failed} of {cost.requests})"
        bearable = percent <= observation.profile_guardrails.max_api_error_percent or _are_the_faults(observation)
        if cost.requests < _FEWEST_REQUESTS or bearable:
            return Measurement(True, measured)
        return Measurement(False, measured, "the API server fails or throttles our requests", "let it recover first")


def _are_the_faults(observation: Observation) -> bool:
    """Return True for a fault that stops the API server from answering for a time."""
    return bool(observation.run.plan.fault.api_server_away_for)
