"""Which share of one rack, zone or other failure domain may be broken at once."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Look


class DomainShare(Guardrail):
    """Each domain of a target is one request, that of its nodes; a season's other targets of it count as well."""

    name: ClassVar[str] = "share of a rack or zone"

    def limit(self, look: Look) -> str:
        limit = look.strictest("max_domain_percent")
        return f"{limit.shown(' %')} of one {look.of_profile.topology_label}" if limit else ""

    def measure(self, look: Look) -> Finding:
        limit, label = look.strictest("max_domain_percent"), look.of_profile.topology_label
        domains = {target.node: look.before(target.node).labels.get(label) for target in look.targets}
        nowhere = [node for node, domain in domains.items() if not domain]
        if nowhere:
            hint = "label the nodes, or set guardrails.topology_label in the cluster profile"
            return Finding(None, "", f"{', '.join(nowhere)} carries no label {label}", hint)
        shares: dict[str, tuple[float, str]] = {}
        for domain in {domain for domain in domains.values() if domain}:
            members = {node.name for node in look.domain(domain)}
            ours = len((members & look.broken) | {node for node, found in domains.items() if found == domain})
            percent = 100 * ours / max(len(members), ours)
            shares[domain] = percent, f"{percent:.3g} % of {domain} ({ours} of {len(members)})"
        worst, measured = max(shares.values())
        return Finding(limit is None or worst <= limit.value, measured, hint="choose targets in other domains")
