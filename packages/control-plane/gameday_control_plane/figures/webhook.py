"""A webhook without an endpoint: the outcome of its matched writes, their cost, and the way out."""

from __future__ import annotations

from gameday.checks.facts import target_nodes
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import Figure
from gameday_control_plane.checks.webhook import webhook_outage
from gameday_control_plane.values.api_requests import percentile


def figures(plan: Plan, history: History, frames: Frames) -> list[Figure]:
    outage = webhook_outage(history, target_nodes(history)[0])
    if outage is None:
        return []
    counted = [
        Figure(name="webhook: matched writes", unit="", value=float(len(outage.writes))),
        Figure(
            name="webhook: refused writes",
            unit="",
            value=float(sum(write.outcome == "refused" for write in outage.writes)),
        ),
    ]
    seconds = {
        "matched write without it: median": percentile(outage.before, 0.5),
        "matched write: median": percentile((write.seconds for write in outage.writes), 0.5),
        "matched write: 99th percentile": percentile((write.seconds for write in outage.writes), 0.99),
        "longest time without a renewal of a node's Lease": outage.leases.longest_s if outage.leases else None,
        "from its deletion to the next admitted write": outage.out_after_s,
    }
    return counted + [
        Figure(name=f"webhook: {name}", unit="s", value=value) for name, value in seconds.items() if value is not None
    ]
