"""The alerts that end a game-day if they fire for anything but its targets."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from gameday.cluster.prometheus import ActiveAlert
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation, first_names
from gameday.values.results import Step


class StopAlerts(Guardrail):
    """Forbids such alerts, even those without a node. A look costs one request to Prometheus."""

    name: ClassVar[str] = "stop-the-line alerts"
    interval_s: ClassVar[float | None] = 5.0
    asks_server: ClassVar[bool] = True

    def limit(self, observation: Observation) -> str:
        names, severities = _stopping(observation)
        parts = [", ".join(sorted(names))] if names else []
        parts += [f"severity {', '.join(sorted(severities))}"] if severities else []
        return f"none firing elsewhere: {'; '.join(parts)}" if parts else ""

    def measure(self, observation: Observation) -> Measurement:
        names, severities = _stopping(observation)
        if cannot_fire := self._cannot_fire(observation, names):
            return Measurement(None, "", cannot_fire, "load or mend the rule, or correct stop_alerts")
        firing, nodes = set(), set()
        for alert in observation.alerts:
            node = observation.node_of(alert.labels)
            is_ours = node in observation.season_nodes or _is_siblings(observation, alert.name, node)
            if stops_the_line(alert, names, severities) and not is_ours:
                firing.add(f"{alert.name} for {node}" if node else alert.name)
                nodes |= {node} if node else set()
        hint = "see to them first" if firing else ""
        return Measurement(not firing, f"{len(firing)} firing", first_names(firing), hint, tuple(sorted(nodes)))

    def _cannot_fire(self, observation: Observation, names: Collection[str]) -> str:
        """Return why an alert could never stop the run: no rule has its name, or the rule does not evaluate.

        It is empty if all can fire, and after the baseline, when this is no longer checked.
        """
        if observation.run.record.step is not Step.BASELINE:
            return ""
        rules = {name: observation.run.servers.prometheus.rule(name) for name in sorted(names)}
        missing = [name for name, rule in rules.items() if rule is None]
        reasons = [f"Prometheus has no alerting rule {', '.join(missing)}"] if missing else []
        failing = [(name, rule.last_error) for name, rule in rules.items() if rule and rule.last_error]
        return "; ".join([*reasons, *(f"rule {name} does not evaluate: {why}" for name, why in failing)])


def stops_the_line(alert: ActiveAlert, names: Collection[str], severities: Collection[str]) -> bool:
    """Return True if a firing alert has one of these names or severities."""
    return alert.state == "firing" and (alert.name in names or alert.labels.get("severity") in severities)


def _stopping(observation: Observation) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and the severities of the alerts that stop a run."""
    return observation.both_lists("stop_alerts"), observation.both_lists("stop_severities")


def _is_siblings(observation: Observation, alert: str, node: str | None) -> bool:
    return bool(observation.run.member and observation.run.member.is_siblings_alert(alert, node))
