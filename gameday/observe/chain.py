"""The detection chain's hops inside Prometheus, dated by what Prometheus itself stored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.cluster.http import AdapterError
from gameday.cluster.prometheus import AlertingRule, Series
from gameday.history.events import Hop
from gameday.observe.alerts import node_of
from gameday.run.context import Run

# Fine enough to tell scrape from evaluation at a 0.5 s interval; 15 s of window are 150 points of 11,000 allowed.
_RESOLUTION = timedelta(milliseconds=100)
_LONGEST_WINDOW = timedelta(minutes=15)


def note_rule_hops(run: Run, node: str) -> None:
    """When an expected rule's expression first held, when it was pending, when it fired. Never raises for a server."""
    start = run.injected()[node].written_at
    end = min(datetime.now(UTC), start + _LONGEST_WINDOW)
    for expected in run.plan.expect.alerts:
        try:
            rule = run.servers.prometheus.rule(expected.name)
            if rule is not None:
                _note_one(run, rule, node, start, end)
        except AdapterError as error:
            run.problem(f"the hops of {expected.name} could not be dated: {error}")


def _note_one(run: Run, rule: AlertingRule, node: str, start: datetime, end: datetime) -> None:
    prometheus = run.servers.prometheus
    held = _first(run, prometheus.query_range(rule.query, start, end, _RESOLUTION), node)
    if held:
        run.hop(
            Hop.SAMPLED, node, held, f"the expression of {rule.name} first held, to {_RESOLUTION.total_seconds():g} s"
        )
    for alert in rule.alerts:
        if node_of(run, alert.labels) == node:
            run.hop(Hop.RULE_PENDING, node, alert.active_at, f"activeAt of {rule.name}")
    firing = f'ALERTS{{alertname="{rule.name}",alertstate="firing"}}'
    fired = _first(run, prometheus.query_range(firing, start, end, _RESOLUTION), node)
    if fired:
        run.hop(Hop.RULE_FIRING, node, fired, f"first sample of {firing}")


def _first(run: Run, series: list[Series], node: str) -> datetime | None:
    times = [one.points[0][0] for one in series if one.points and node_of(run, one.labels) == node]
    return min(times, default=None)
