"""Alerts that came between our looks are read from what Prometheus stored, with their end where they have one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.cluster.prometheus import ActiveAlert, RuleGroup, Series
from gameday.history.events import AlertSeen, FaultInjected, Record
from gameday.history.journal import History
from gameday.observe.alerts import note_active_alerts, note_missed_alerts
from gameday.run.detection_chain import DetectionChain
from gameday.values.nodes import Target
from tests.report.run_builder import ALERT, PLAN

START = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)
LABELS = {"alertname": ALERT, "node": "gpu-1", "code": "79"}

RULE = {"type": "alerting", "name": ALERT, "query": "", "duration": 0, "health": "ok"}
GROUP = RuleGroup.model_validate({"name": "g", "file": "f", "interval": 1, "rules": [RULE]})
FAULT = FaultInjected(
    intent="inject",
    fault="xid",
    target=Target(node="gpu-1", gpu=0),
    layer="kernel log",
    written_at=START,
    evidence=(),
    does_not_reach="",
    seen_by=(),
)


def stored(**labels: str) -> Series:
    points = tuple((START + timedelta(seconds=s), 1.0) for s in (1, 2, 3))
    return Series("ALERTS", LABELS | {"alertstate": "firing"} | labels, points)


def noted(series: list[Series], active: list[dict[str, str]], *before: AlertSeen) -> list[AlertSeen]:
    """Return the alerts that are noted for stored series.

    `active` has the labels of alerts that still fire, `before` the alerts that were noted earlier.
    """
    history = History(tuple(Record(seq, START, 0.0, "b", event) for seq, event in enumerate([*before, FAULT])))
    noted_alerts: list[AlertSeen] = []
    alerts = [ActiveAlert(labels=labels, state="firing", activeAt=START, value="1") for labels in active]
    run: Any = SimpleNamespace(
        clock=Clock(),
        chain=DetectionChain(lambda event: None),
        history=lambda: history,
        plan=PLAN,
        member=None,
        profile=SimpleNamespace(alert_node_label="node", prometheus_node_label="node", background_alerts=("Watchdog",)),
        servers=SimpleNamespace(prometheus=SimpleNamespace(alerts=lambda: alerts, rule_groups=lambda: (GROUP,))),
        note=noted_alerts.append,
    )
    note_missed_alerts(run, ["gpu-1"], series)
    return noted_alerts


def test_an_alert_that_came_and_went_is_noted_with_its_end() -> None:
    fired, resolved = noted([stored()], [])
    assert (fired.state, fired.at, fired.expected) == ("firing", START + timedelta(seconds=1), True)
    # The first evaluation that no longer had it, a second after the last one that did.
    assert (resolved.state, resolved.at) == ("resolved", START + timedelta(seconds=4))


@pytest.mark.parametrize("code", ["48", "79"])
def test_only_the_label_set_that_prometheus_still_calls_active_is_left_firing(code: str) -> None:
    noted_alerts = noted([stored(), stored(code="48")], [LABELS | {"code": code}])
    assert {seen.labels["code"] for seen in noted_alerts if seen.state == "resolved"} == {"48", "79"} - {code}


@pytest.mark.parametrize("at_baseline", [True, False])
def test_an_alert_that_was_pending_before_the_fault_is_not_the_faults(at_baseline: bool) -> None:
    at = START - timedelta(seconds=9)
    before = AlertSeen(
        alert=ALERT, state="pending", labels=LABELS, node="gpu-1", expected=False, at=at, at_baseline=at_baseline
    )
    assert {seen.at_baseline for seen in noted([stored()], [LABELS], before)} == {at_baseline}


def test_a_long_annotation_is_cut_and_says_so() -> None:
    summary, noted_alerts = "a." * 400_000, list[AlertSeen]()
    alert = ActiveAlert(
        labels=LABELS,
        annotations={"summary": summary, "description": "short"},
        state="pending",
        activeAt=START,
        value="1",
    )
    run: Any = SimpleNamespace(
        clock=Clock(),
        chain=DetectionChain(lambda event: None),
        history=lambda: History(()),
        plan=PLAN,
        member=None,
        profile=SimpleNamespace(alert_node_label="node", prometheus_node_label="node", background_alerts=()),
        servers=SimpleNamespace(prometheus=SimpleNamespace(alerts=lambda: [alert])),
        note=noted_alerts.append,
    )
    note_active_alerts(run, ["gpu-1"])
    (seen,) = noted_alerts
    assert seen.annotations == {
        "summary": f"{summary[:4096]}… (cut: it has 800,000 characters)",
        "description": "short",
    }


def test_an_alert_of_another_node_is_not_the_plans() -> None:
    assert {seen.expected for seen in noted([stored(node="gpu-2")], [])} == {False}


def test_a_background_alert_is_one_only_without_a_node() -> None:
    of_cluster = {"alertname": "Watchdog", "alertstate": "firing"}
    series = [Series("ALERTS", labels, stored().points) for labels in (of_cluster, of_cluster | {"node": "gpu-1"})]
    assert {(seen.node, seen.background) for seen in noted(series, [])} == {(None, True), ("gpu-1", False)}
