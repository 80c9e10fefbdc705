"""The plan that an incident is matched to."""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.history.events import AlertSeen
from gameday.post_mortem.matching_plan import find_matching_plan
from tests.support.plans import shipped


def matched(*names: str) -> str | None:
    seen = AlertSeen.model_validate(
        {
            "alert": "GPUXidCritical",
            "state": "firing",
            "labels": {"code": "95"},
            "node": None,
            "expected": False,
            "at": datetime(2026, 3, 3, tzinfo=UTC),
        }
    )
    return find_matching_plan(None, [seen], [shipped()[name] for name in names], [], "").plan


def test_no_incident_is_matched_to_a_comparison() -> None:
    assert matched("compare-remediations", "xid-95-uncontained-ecc") == "xid-95-uncontained-ecc"
    assert matched("compare-remediations") is None
