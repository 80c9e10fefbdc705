"""The guardrails of the cluster profile that forbid a fleet run."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gameday.cluster.profile import ClusterGuardrails, ClusterProfile
from gameday.cluster.prometheus import ActiveAlert, Prometheus
from gameday.errors import AdapterError
from gameday_fleet.permission import Permission, why_closed

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)  # a Tuesday
SERVERS: dict[str, Any] = {name: {"url": "http://127.0.0.1:9"} for name in ("prometheus", "alertmanager", "loki")}


def alert(name: str, severity: str, state: str = "firing") -> ActiveAlert:
    labels = {"alertname": name, "severity": severity}
    content = {"labels": labels, "annotations": {}, "state": state, "activeAt": NOON, "value": "1"}
    return ActiveAlert.model_validate(content)


@pytest.fixture
def permission() -> Permission:
    limits = {"stop_alerts": ["StorageDown"], "stop_severities": ["page"]}
    return Permission(ClusterProfile(**SERVERS, guardrails=limits))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({}, ""),
        ({"freezes": [{"start": "2026-03-01", "end": "2026-03-05", "why": "quarter end"}]}, "quarter end"),
        ({"freezes": [{"start": "2026-03-04", "end": "2026-03-05", "why": "quarter end"}]}, ""),
        ({"windows": [{"days": ["tue"], "start": "09:00", "end": "17:00", "zone": "UTC"}]}, ""),
        ({"windows": [{"days": ["tue"], "start": "13:00", "end": "17:00", "zone": "UTC"}]}, "time windows"),
    ],
)
def test_windows_and_freezes_hold_for_probes(limits: dict[str, Any], said: str) -> None:
    why = why_closed(ClusterGuardrails.model_validate(limits), NOON)
    assert (said in why) if said else why == ""


def test_an_alert_that_stops_game_days_stops_probes(permission: Permission, monkeypatch: pytest.MonkeyPatch) -> None:
    firing = (alert("StorageDown", "info"), alert("Other", "page"), alert("Quiet", "page", "pending"))
    monkeypatch.setattr(Prometheus, "alerts", lambda _: firing)
    assert permission.why_not() == "guardrail stop-the-line alerts: Other, StorageDown firing"


def test_other_alerts_stop_nothing(permission: Permission, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prometheus, "alerts", lambda _: (alert("Other", "info"),))
    assert permission.why_not() == ""


def test_a_server_that_cannot_be_asked_forbids_probes(permission: Permission, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Prometheus) -> None:
        raise AdapterError("ask Prometheus", "connection refused")

    monkeypatch.setattr(Prometheus, "alerts", fail)
    assert "not measured" in permission.why_not()


def test_without_such_guardrails_nobody_is_asked() -> None:
    assert Permission(ClusterProfile(**SERVERS)).why_not() == ""
