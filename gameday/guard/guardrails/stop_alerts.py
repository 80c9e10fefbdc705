"""Stop the line: alerts that end a game-day when they fire for anything but its targets."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Look, few
from gameday.values.results import Step


class StopAlerts(Guardrail):
    """One request to Prometheus a look, none to the API server. An alert that names no node stops the run as well."""

    name: ClassVar[str] = "stop-the-line alerts"
    every_s: ClassVar[float | None] = 5.0
    asks: ClassVar[bool] = True

    def limit(self, look: Look) -> str:
        (names, of_names), (severities, of_severities) = look.together("stop_alerts"), look.together("stop_severities")
        parts = [of_names] if names else []
        parts += [f"severity {of_severities}"] if severities else []
        return f"none firing elsewhere: {'; '.join(parts)}" if parts else ""

    def measure(self, look: Look) -> Finding:
        (names, _), (severities, _) = look.together("stop_alerts"), look.together("stop_severities")
        if cannot_fire := self._cannot_fire(look, names):
            return Finding(None, "", cannot_fire, "load or mend the rule, or correct stop_alerts")
        firing, nodes = set(), set()
        for alert in look.alerts:
            stops = alert.name in names or alert.labels.get("severity") in severities
            node = look.node_of(alert.labels)
            if alert.state == "firing" and stops and node not in look.ours and not _siblings(look, alert.name, node):
                firing.add(f"{alert.name} for {node}" if node else alert.name)
                nodes |= {node} if node else set()
        hint = "see to them first" if firing else ""
        return Finding(not firing, f"{len(firing)} firing", few(firing), hint, tuple(sorted(nodes)))

    def _cannot_fire(self, look: Look, names: Collection[str]) -> str:
        """Before the fault only: a name that no rule has, or whose rule does not evaluate, would never stop a run."""
        if look.run.step is not Step.BASELINE:
            return ""
        rules = {name: look.run.servers.prometheus.rule(name) for name in sorted(names)}
        missing = [name for name, rule in rules.items() if rule is None]
        ill = [(name, rule.last_error) for name, rule in rules.items() if rule and rule.last_error]
        broken = [f"rule {name} does not evaluate: {why}" for name, why in ill]
        told = [f"Prometheus has no alerting rule {', '.join(missing)}"] if missing else []
        return "; ".join([*told, *broken])


def _siblings(look: Look, alert: str, node: str | None) -> bool:
    return bool(look.run.member and look.run.member.theirs(alert, node))
