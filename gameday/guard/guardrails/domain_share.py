"""The share of one rack, zone or other failure domain that may be broken at the same time."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation


class DomainShare(Guardrail):
    """Limits the share of each target's domain, including a season's other targets. It costs one request per domain."""

    name: ClassVar[str] = "share of a rack or zone"

    def limit(self, observation: Observation) -> str:
        limit = observation.strictest("max_domain_percent")
        return f"{limit.describe(' %')} of one {observation.profile_guardrails.topology_label}" if limit else ""

    def measure(self, observation: Observation) -> Measurement:
        limit, label = observation.strictest("max_domain_percent"), observation.profile_guardrails.topology_label
        domains = {target.node: observation.before(target.node).labels.get(label) for target in observation.targets}
        nowhere = [node for node, domain in domains.items() if not domain]
        if nowhere:
            hint = "label the nodes, or set guardrails.topology_label in the cluster profile"
            return Measurement(None, "", f"{', '.join(nowhere)} carries no label {label}", hint)
        shares: dict[str, tuple[float, str]] = {}
        for domain in {domain for domain in domains.values() if domain}:
            members = {node.name for node in observation.nodes_in_domain(domain)}
            ours = len(
                (members & observation.broken_nodes) | {node for node, found in domains.items() if found == domain}
            )
            percent = 100 * ours / max(len(members), ours)
            shares[domain] = percent, f"{percent:.3g} % of {domain} ({ours} of {len(members)})"
        worst, measured = max(shares.values())
        return Measurement(limit is None or worst <= limit.value, measured, hint="choose targets in other domains")
