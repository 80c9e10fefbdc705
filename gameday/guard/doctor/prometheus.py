"""Prometheus and the rules of the alerts that a plan expects: loaded, able to fire, and in time."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gameday.expect.alerts import ExpectedAlert
from gameday.guard.alert_pace import pace_of
from gameday.guard.doctor.detectors import controller_fix, foreign_detector
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.rule_series import CONTROLLER_METRICS, RuleSeries
from gameday.run.run import ReadOnlyRun
from gameday.values.alert_families import others_of_meaning, sources_of


def check_prometheus(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that Prometheus answers, and that each expected alert has a rule that can fire in time.

    Raises:
        AdapterError: Prometheus does not answer.
    """
    prometheus = run.servers.prometheus
    yield Prerequisite(
        "prometheus", "answers", True, f"{run.profile.prometheus.url}, {prometheus.build_info().version}"
    )
    series = RuleSeries(prometheus)
    for expected in run.plan.expect.alerts:
        rule = prometheus.rule(expected.name)
        if rule is None:
            fix = "load deploy/alerts, or change expect.alerts in the plan"
            yield Prerequisite("prometheus", f"rule {expected.name}", False, "no such alerting rule", fix)
        else:
            detail = rule.last_error or f"for {rule.hold_s:g} s, {rule.state}"
            yield Prerequisite(
                "prometheus", f"rule {expected.name}", not rule.last_error, detail, "mend the rule's expression"
            )
            yield _can_fire(run, series, expected.name)
            yield from _in_time(run, series, expected)


def _in_time(run: ReadOnlyRun, series: RuleSeries, expected: ExpectedAlert) -> Iterator[Prerequisite]:
    """Compare the plan's bound with the pace of the rule: its scrape, its evaluation and its `for`."""
    pace = pace_of(run.servers.prometheus, series, expected.name, run.clock.now())
    if pace is None:
        return
    bound = expected.within.total_seconds()
    ok = False if bound < pace.soonest_s else True if bound >= pace.latest_s else None
    words = {
        True: "",
        None: "in time by luck alone: ",
        False: "too late even if every scrape and evaluation is lucky: ",
    }
    enough = f"within: {math.ceil(pace.latest_s)}s"
    fix = f"scrape and evaluate more often, or let the plan expect {expected.name} {enough}"
    detail = f"{words[ok]}{pace}; the plan gives {bound:g} s"
    yield Prerequisite("prometheus", f"rule {expected.name} can fire in time", ok, detail, "" if ok else fix)


def _can_fire(run: ReadOnlyRun, series: RuleSeries, rule: str) -> Prerequisite:
    queries = run.servers.prometheus.queries(rule)
    found = series.check(queries)
    details = {
        True: found.why or "every series that it needs is there",
        None: f"unknown: {found.why}",
        False: f"rule {rule} can never fire here: {found.why}",
    }
    ok, detail, fix = found.can_fire, details[found.can_fire], found.fix
    detector, by_controller = foreign_detector(run), series.always_needs(queries, CONTROLLER_METRICS)
    if by_controller and run.profile.rehearsal and not ok:
        fix = controller_fix(run)
    if detector and by_controller:
        detail += f"; its series come from our node-health controller alone, and {detector} makes none of them"
    silent = [one for one in run.record.loaded.silent_sources if one.source in sources_of(rule)]
    if silent and len(silent) == len(sources_of(rule)) and ok is not False:
        ok = False if all(one.certain for one in silent) else None
        said = "cannot fire for this fault" if ok is False else "is not expected to fire for this fault"
        detail = f"its series can be here, and rule {rule} {said}: {'; '.join(one.why for one in silent)}"
        fix = "expect another alert, or another fault (docs/alerts.md, Which rule says it on your cluster)"
    if ok is not True and (others := _others_that_can_fire(run, series, rule)):
        fix = f"{fix}; of the same meaning, and able to fire here: {', '.join(others)}"
    return Prerequisite("prometheus", f"rule {rule} can fire", ok, detail, fix)


def _others_that_can_fire(run: ReadOnlyRun, series: RuleSeries, rule: str) -> list[str]:
    """Return the other loaded rules with a rule's meaning that have their series here and can see the fault."""
    prometheus, silent = run.servers.prometheus, {one.source for one in run.record.loaded.silent_sources}
    others = [other for other in others_of_meaning(rule) if other.source not in silent]
    queries = {other: prometheus.queries(other.alert) for other in others}
    return [str(other) for other, asked in queries.items() if asked and series.check(asked).can_fire]
