"""Only an alert that Alertmanager sends is the chain's last hop; a muted alert is noted as muted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from gameday.clock import Clock
from gameday.cluster.alertmanager import NotifiedAlert
from gameday.history.events import AlertSeen
from gameday.observe.alerts import note_notified
from gameday.values.results import Hop
from tests.report.run_builder import ALERT, PLAN
from tests.support.runs import history_of

START = datetime(2026, 3, 3, 9, 0, tzinfo=UTC)
NODE = "gpu-1"


def held(gpu: str, seconds: float, **muted: list[str]) -> NotifiedAlert:
    return NotifiedAlert.model_validate(
        {
            "fingerprint": gpu, "labels": {"alertname": ALERT, "node": NODE, "gpu": gpu}, "startsAt": START,
            "endsAt": START + timedelta(hours=1), "updatedAt": START + timedelta(seconds=seconds),
            "status": {"state": "suppressed" if muted else "active", **muted}, "receivers": [{"name": "pager"}],
        }
    )  # fmt: skip


def noted(
    *alerts: NotifiedAlert, external: tuple[str, ...] = ()
) -> tuple[bool, list[tuple[Any, ...]], dict[str, AlertSeen]]:
    """Return True if Alertmanager holds the alert, with the hops and the last state of each GPU's alert.

    Prometheus itself does not know the `external` labels.
    """
    hops: list[tuple[Any, ...]] = []
    noted_alerts: list[AlertSeen] = []
    known = [{name: value for name, value in one.labels.items() if name not in external} for one in alerts]
    seen = [AlertSeen(alert=ALERT, state="firing", labels=own, node=NODE, expected=True, at=START) for own in known]
    run: Any = SimpleNamespace(
        profile=SimpleNamespace(alert_node_label="node", prometheus_node_label="node"),
        servers=SimpleNamespace(alertmanager=SimpleNamespace(alerts=lambda _: list(alerts))),
        clock=Clock(),
        history=lambda: history_of(*seen),
        hop=lambda *hop: hops.append(hop),
        note=noted_alerts.append,
    )
    found = note_notified(run, PLAN.expect.alerts[0], NODE)
    return found, hops, {one.labels["gpu"]: one for one in noted_alerts}


def test_an_inhibited_alert_is_held_and_is_no_hop() -> None:
    found, hops, noted_alerts = noted(held("0", 5, inhibitedBy=["other"]))
    assert (found, hops) == (True, [])
    assert (noted_alerts["0"].inhibited, noted_alerts["0"].silenced) == (True, False)


def test_of_several_the_first_that_is_sent_is_the_hop() -> None:
    found, hops, noted_alerts = noted(held("0", 5, silencedBy=["s"]), held("1", 7), held("2", 9))
    assert found
    assert [(hop, at) for hop, _, at, _ in hops] == [(Hop.NOTIFIED, START + timedelta(seconds=7))]
    assert {gpu: (one.silenced, one.receivers) for gpu, one in noted_alerts.items()} == {
        "0": (True, ("pager",)), "1": (False, ("pager",)), "2": (False, ("pager",))
    }  # fmt: skip


def test_external_labels_are_no_other_alert() -> None:
    """As prometheus-operator gives every alert that it sends."""
    sent = held("0", 5)
    sent.labels["prometheus"] = "monitoring/k8s"
    assert noted(sent, external=("prometheus",))[2]["0"].receivers == ("pager",)


def test_what_alertmanager_does_not_hold_is_not_notified() -> None:
    assert noted() == (False, [], {})
