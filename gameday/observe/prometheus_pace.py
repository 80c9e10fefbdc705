"""Find out whether Prometheus kept up: without scrapes and evaluations, a missing alert proves nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from statistics import median

from gameday.checks.facts import first_few
from gameday.cluster.prometheus import Prometheus, RuleGroup
from gameday.errors import AdapterError
from gameday.history.events import PrometheusFellBehind
from gameday.history.sampling import GAP_FACTOR
from gameday.run.run import Run

LEAST_PAUSE_S = 10.0
"""Pauses below this are not reported: plans give alerts 15 s and more, and a busy server is late by seconds."""
_MISSED = "prometheus_rule_group_iterations_missed_total"
_INTERVAL = "prometheus_rule_group_interval_seconds"
HINT = (
    "give Prometheus the processor and memory that its rules and scrapes need: see its series "
    "prometheus_rule_group_iterations_missed_total and prometheus_rule_group_last_duration_seconds; then run again"
)


def note_if_behind(run: Run, since: datetime, until: datetime) -> bool:
    """Note why alerts of a time span may be missing, with the remedy; return True if there is a reason.

    It is one if the server cannot be asked.
    """
    try:
        reasons = list(_reasons(run.servers.prometheus, since, until))
    except AdapterError as error:
        reasons = [f"it could not be asked: {error}"]
    if reasons:
        run.note(PrometheusFellBehind(since=since, until=until, why="; ".join(reasons), hint=HINT))
    return bool(reasons)


def _reasons(prometheus: Prometheus, since: datetime, until: datetime) -> Iterator[str]:
    late = [late for group in prometheus.rule_groups() if (late := _lateness(group, until))]
    if late:
        yield f"rules are late: {first_few(late)}"
    missed = f"max(increase({_MISSED}[{_milliseconds(since, until)}ms]) * {_INTERVAL})"
    for sample in prometheus.query(missed, until):
        if sample.value >= LEAST_PAUSE_S:
            yield f"it left out evaluations of a group of rules for {sample.value:.0f} s"
    if pause := _pause(prometheus, since, until):
        begin, end = pause
        yield f"it scraped nothing for {(end - begin).total_seconds():.0f} s from {begin:%H:%M:%S} UTC on"


def _lateness(group: RuleGroup, now: datetime) -> str:
    """Return how late a rule group is; empty if it is not late or has not begun."""
    if group.last_evaluation is None or not group.rules:
        return ""
    age = (now - group.last_evaluation).total_seconds()
    if age < max(LEAST_PAUSE_S, GAP_FACTOR * group.interval_s):
        return ""
    return f"{group.name}: evaluated {age:.0f} s ago, and due every {group.interval_s:g} s"


def _pause(prometheus: Prometheus, since: datetime, until: datetime) -> tuple[datetime, datetime] | None:
    """Return the longest pause between scrapes of the target that is scraped most; None if none is unusual.

    Prometheus stores `up` even for a target that does not answer, so a pause is Prometheus' own.
    """
    most = prometheus.query(f"topk(1, count_over_time(up[{_milliseconds(since, until)}ms]) and up)", until)
    if not most:
        return None
    matchers = ",".join(f"{name}={json.dumps(value)}" for name, value in most[0].labels.items())
    series = prometheus.stored_samples(f"up{{{matchers}}}", until - since, until)
    times = [at for one in series for at, _ in one.points]
    pauses = list(pairwise([*times, until]))
    if not pauses:
        return None
    usual_s = median((end - begin).total_seconds() for begin, end in pauses)
    begin, end = max(pauses, key=lambda pause: pause[1] - pause[0])
    is_unusual = (end - begin).total_seconds() >= max(LEAST_PAUSE_S, GAP_FACTOR * usual_s)
    return (begin, end) if is_unusual else None


def _milliseconds(since: datetime, until: datetime) -> int:
    return max(1, round((until - since).total_seconds() * 1000))
