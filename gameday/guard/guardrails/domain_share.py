"""Which share of one rack, zone or other failure domain may be broken at once."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation


class DomainShare(Guardrail):
    """Each domain of a target is one request, that of its nodes; a season's other targets of it count as well."""

    name: ClassVar[str] = "share of a rack or zone"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_domain_percent")
        return f"{limit.shown(' %')} of one {observation.of_profile.topology_label}" if limit else ""

    def measure(self, observation: Observation) -> Finding:
        limit, label = observation.strictest("max_domain_percent"), observation.of_profile.topology_label
        domains = {target.node: observation.before(target.node).labels.get(label) for target in observation.targets}
        nowhere = [node for node, domain in domains.items() if not domain]
        if nowhere:
            hint = "label the nodes, or set guardrails.topology_label in the cluster profile"
            return Finding(None, "", f"{', '.join(nowhere)} carries no label {label}", hint)
        shares: dict[str, tuple[float, str]] = {}
        for domain in {domain for domain in domains.values() if domain}:
            members = {node.name for node in observation.domain(domain)}
            ours = len((members & observation.broken) | {node for node, found in domains.items() if found == domain})
            percent = 100 * ours / max(len(members), ours)
            shares[domain] = percent, f"{percent:.3g} % of {domain} ({ours} of {len(members)})"
        worst, measured = max(shares.values())
        return Finding(limit is None or worst <= limit.value, measured, hint="choose targets in other domains")
