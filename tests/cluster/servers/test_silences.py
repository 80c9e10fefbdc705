from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gameday.cluster.alertmanager import Silence

LABELS = {"alertname": "GPUFellOffTheBus", "node": "gpu-node-7", "severity": "critical"}


def silence(*matchers: dict[str, object], state: str = "active") -> Silence:
    now = datetime.now(UTC)
    return Silence.model_validate(
        {"id": "1", "status": {"state": state}, "matchers": matchers, "startsAt": now, "endsAt": now, "createdBy": "me"}
    )


@pytest.mark.parametrize(
    ("matchers", "muted"),
    [
        ([{"name": "alertname", "value": "GPUFellOffTheBus"}], True),
        ([{"name": "alertname", "value": "GPU.*", "isRegex": True}], True),
        ([{"name": "alertname", "value": "GPU", "isRegex": True}], False),
        ([{"name": "node", "value": "gpu-node-7"}, {"name": "severity", "value": "critical"}], True),
        ([{"name": "node", "value": "gpu-node-8"}], False),
        ([{"name": "severity", "value": "critical", "isEqual": False}], False),
        ([{"name": "team", "value": "x", "isEqual": False}], True),
    ],
)
def test_a_silence_mutes_what_all_its_matchers_match(matchers: list[dict[str, object]], muted: bool) -> None:
    assert silence(*matchers).mutes(LABELS) is muted


def test_an_expired_silence_mutes_nothing() -> None:
    assert not silence({"name": "alertname", "value": "GPUFellOffTheBus"}, state="expired").mutes(LABELS)
