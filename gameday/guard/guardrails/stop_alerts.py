"""Stop the line: alerts that end a game-day when they fire for anything but its targets."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation, few
from gameday.values.results import Step


class StopAlerts(Guardrail):
    """One request to Prometheus a look, none to the API server. An alert that names no node stops the run as well."""

    name: ClassVar[str] = "stop-the-line alerts"
    every_s: ClassVar[float | None] = 5.0
    asks: ClassVar[bool] = True

    def limit(self, observation: Observation) -> str:
        names, of_names = observation.union("stop_alerts")
        severities, of_severities = observation.union("stop_severities")
        parts = [of_names] if names else []
        parts += [f"severity {of_severities}"] if severities else []
        return f"none firing elsewhere: {'; '.join(parts)}" if parts else ""

    def measure(self, observation: Observation) -> Finding:
        (names, _), (severities, _) = observation.union("stop_alerts"), observation.union("stop_severities")
        if cannot_fire := self._cannot_fire(observation, names):
            return Finding(None, "", cannot_fire, "load or mend the rule, or correct stop_alerts")
        firing, nodes = set(), set()
        for alert in observation.alerts:
            stops = alert.name in names or alert.labels.get("severity") in severities
            node = observation.node_of(alert.labels)
            is_ours = node in observation.ours or _siblings(observation, alert.name, node)
            if alert.state == "firing" and stops and not is_ours:
                firing.add(f"{alert.name} for {node}" if node else alert.name)
                nodes |= {node} if node else set()
        hint = "see to them first" if firing else ""
        return Finding(not firing, f"{len(firing)} firing", few(firing), hint, tuple(sorted(nodes)))

    def _cannot_fire(self, observation: Observation, names: Collection[str]) -> str:
        """Before the fault only: a name that no rule has, or whose rule does not evaluate, would never stop a run."""
        if observation.run.record.step is not Step.BASELINE:
            return ""
        rules = {name: observation.run.servers.prometheus.rule(name) for name in sorted(names)}
        missing = [name for name, rule in rules.items() if rule is None]
        ill = [(name, rule.last_error) for name, rule in rules.items() if rule and rule.last_error]
        broken = [f"rule {name} does not evaluate: {why}" for name, why in ill]
        told = [f"Prometheus has no alerting rule {', '.join(missing)}"] if missing else []
        return "; ".join([*told, *broken])


def _siblings(observation: Observation, alert: str, node: str | None) -> bool:
    return bool(observation.run.member and observation.run.member.is_siblings_alert(alert, node))
