"""Step 3: wait for the targets' expected alerts, and time every hop on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from gameday.errors import AdapterError
from gameday.expect.alerts import ExpectedAlert
from gameday.expect.alerts.judge import first_firing
from gameday.expect.base import Sighting
from gameday.observe.alerts import active_alerts, note_active_alerts, note_missed_alerts, note_notified
from gameday.observe.chain import note_rule_hops
from gameday.observe.deadline import first_seen, judge
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.prometheus_pace import note_if_behind
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import judged_step
from gameday.values.results import Hop, Step

# Prometheus dates firing alerts itself; the last look without the alert bounds that from below and shows a wrong clock.
_POLL_S = 0.25
# From firing in Prometheus to active in Alertmanager: one flush of the notifier, immediate for a new alert.
_NOTIFICATION_TIMEOUT = timedelta(seconds=5)


@judged_step("await alert")
def await_alert(run: Run, faults: Sequence[InjectedFault]) -> None:
    """Wait for each expected alert of each target within its bound. A missing one fails the step, not the run.

    Raises:
        StopRunError: The run was stopped, or a server that the step needs does not answer.
    """
    bounds = [alert.within for alert in run.plan.expect.alerts]
    nodes = [fault.node for fault in faults]
    with step(run, Step.AWAIT_ALERT, max(bounds, default=timedelta())) as result:
        for fault in faults:
            for expected in run.plan.expect.alerts:
                _await_alert(run, result, expected, fault, nodes)
            note_rule_hops(run, fault)
            fault.note_arrival_in_log_store()


def _await_alert(
    run: Run, result: StepResult, expected: ExpectedAlert, fault: InjectedFault, nodes: Sequence[str]
) -> None:
    unreachable: list[AdapterError] = []
    node = fault.node

    def fired() -> Sighting | None:
        try:
            note_active_alerts(run, nodes)
        except AdapterError as error:
            unreachable[:] = [error]
            return None
        unreachable.clear()
        return first_firing(run.history(), expected, node)

    what = f"alert {expected.name} firing for {node}"
    sighting = first_seen(run, what, expected.within, fault, fired, every_s=_POLL_S)
    if any(
        (seen.alert, seen.node, seen.state) == (expected.name, expected.about(node), "firing")
        for seen in active_alerts(run.history()).values()
    ):
        _await_notified(run, expected, node)
    elif sighting is None and not unreachable:
        try:
            sighting = _fired_between_looks(run, expected, fault, nodes)
        except AdapterError as error:
            unreachable.append(error)
    if unreachable:
        run.problem(f"Prometheus could not be asked while waiting for {expected.name}: {unreachable[0]}")
        result.mark_unknown(f"{expected.name}: {unreachable[0]}")
    elif sighting is None and note_if_behind(run, fault.written_at, run.clock.now()):
        result.mark_unknown(f"{what}: Prometheus did not keep up")
    else:
        judge(result, what, expected.within, fault, sighting)


def _fired_between_looks(
    run: Run, expected: ExpectedAlert, fault: InjectedFault, nodes: Sequence[str]
) -> Sighting | None:
    """Return how Prometheus stored the firing of an alert that began and ended between two looks."""
    now = run.clock.now()
    firing = f'ALERTS{{alertname={json.dumps(expected.name)},alertstate="firing"}}'
    note_missed_alerts(run, nodes, run.servers.prometheus.stored_samples(firing, now - fault.written_at, now))
    return first_firing(run.history(), expected, fault.node)


def _await_notified(run: Run, expected: ExpectedAlert, node: str) -> None:
    alert = expected.name

    def notified() -> bool | None:
        return note_notified(run, expected, node) or None

    try:
        if not run.wait(f"{alert} active in Alertmanager", _NOTIFICATION_TIMEOUT, notified, every_s=_POLL_S):
            run.problem(
                f"{alert} fires for {node}, but Alertmanager does not hold it: nobody is notified",
                "check alerting: in Prometheus",
            )
    except AdapterError as error:
        run.problem(f"Alertmanager could not be asked about {alert}: {error}")
    active = active_alerts(run.history()).values()
    muted = any(seen.silenced or seen.inhibited for seen in active if seen.alert == alert)
    if not run.chain.has(Hop.NOTIFIED, node) and not muted:
        run.problem(f"the hop to Alertmanager was not measured for {node}")
