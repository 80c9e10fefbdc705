"""The detection chain's hops inside Prometheus, dated by what Prometheus stored."""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.cluster.prometheus import AlertingRule, Series
from gameday.errors import AdapterError
from gameday.expect.alerts.judge import first_firing
from gameday.observe.alerts import node_of
from gameday.observe.injected_fault import InjectedFault
from gameday.run.run import Run
from gameday.values.results import Hop

# Step of the range query that dates a rule's expression, while the window has fewer than the 11,000 points that
# Prometheus allows.
_RESOLUTION = timedelta(milliseconds=50)
_MOST_POINTS = 5000
_LONGEST_WINDOW = timedelta(minutes=15)


def note_rule_hops(run: Run, fault: InjectedFault) -> None:
    """Record when each expected rule's expression first held, when it was pending, and when it fired.

    If the server does not answer, that becomes a problem in the history, not an error.
    """
    start, node = fault.written_at, fault.node
    end = min(run.clock.now(), start + _LONGEST_WINDOW)
    for expected in run.plan.expect.alerts:
        try:
            rule = run.servers.prometheus.rule(expected.name)
            if rule is not None:
                _note_hops(run, rule, expected.about(node), node, start, end)
            if fired := first_firing(run.history(), expected, node):
                source = fired.dated.source if fired.dated else "as the run saw it"
                run.hop(Hop.RULE_FIRING, node, fired.at, f"{expected.name}: {source}")
        except AdapterError as error:
            run.problem(f"the hops of {expected.name} could not be dated: {error}")


def _note_hops(run: Run, rule: AlertingRule, about: str | None, node: str, start: datetime, end: datetime) -> None:
    """Record a rule's hops before it fires; `about` is the node that its series name, None for a cluster's rule."""
    prometheus = run.servers.prometheus
    resolution = max(_RESOLUTION, (end - start) / _MOST_POINTS)
    held = _first(run, prometheus.query_range(rule.query, start, end, resolution), about)
    active = min((a.active_at for a in rule.alerts if node_of(run, a.labels) == about), default=None)
    if held:
        # It is rounded up to the next step, so it may lie after the evaluation that saw it.
        at = min(held, active) if active else held
        run.hop(Hop.SAMPLED, node, at, f"the expression of {rule.name} first held, to {resolution.total_seconds():g} s")
    if active:
        run.hop(Hop.RULE_PENDING, node, active, f"activeAt of {rule.name}")


def _first(run: Run, series: list[Series], node: str | None) -> datetime | None:
    times = [one.points[0][0] for one in series if one.points and node_of(run, one.labels) == node]
    return min(times, default=None)
