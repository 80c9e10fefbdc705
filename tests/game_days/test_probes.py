"""Whole game-days with the owners' own probes: queries, requests and jobs. Commands in pods are refused here.

Nobody granted them, and the embedded API server serves none: tests/observe/test_probes.py has their protocol.
"""

from __future__ import annotations

from typing import Any

import pytest

from gameday.history.events import ProbeAnswered, Refused
from tests.game_days.conftest import QUICK, Arena, changed, patient

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]


def plan_with(*probes: dict[str, Any]) -> dict[str, Any]:
    """A contained error, which quarantines nothing, and these probes."""
    plan = changed(changed(QUICK, "fault", {"type": "xid", "xid": 94, "hold": "30s"}), "recover.remediation", "none")
    quiet = {"stays_schedulable_for": "1s", "allow_other_alerts": True}
    return changed(plan, "expect", {**quiet, "probes": list(probes)})


@pytest.mark.gate
def test_a_query_a_request_and_a_job_hold_and_leave_nothing(clean_arena: Arena) -> None:
    prometheus = clean_arena.cluster.urls["prometheus"]
    recent = 'node:gameday_kernel_events:recent{code="94", node=~"$targets"}'
    plan = plan_with(
        {"name": "counted", "promql": {"query": recent, "at_least": 1}, "within": "30s", "timeout": "60s"},
        {
            "name": "served",
            "http": {"url": f"{prometheus}/-/ready", "body": "(?i)ready"},
            "stays_for": "6s",
            "timeout": "60s",
        },
        {"name": "new-work", "job": {"command": ["sleep", "1"], "where": "target"}, "returns_within": "60s"},
    )
    played = clean_arena.play(patient(plan))
    assert played.exit_code == 0, played.output
    assert {name: status for name, status in played.verdicts().items() if name.startswith("probe")} == {
        "probe-holds": "held",
        "probe-stays": "held",
        "probe-returns": "held",
    }
    answers = played.history.of(ProbeAnswered)
    assert {(one.probe, one.asks) for one in answers} == {
        ("counted", "promql"),
        ("served", "http"),
        ("new-work", "job"),
    }
    assert played.folder is not None
    assert "new-work" in (played.folder / "report.html").read_text(encoding="utf-8")


def test_a_command_that_nobody_granted_is_refused(clean_arena: Arena) -> None:
    command = {"command": ["nvidia-smi", "-L"], "where": "any"}
    probe = {"exec": {"namespace": "training", "selector": {"app": "pretrain"}, **command}, "stays_for": "5s"}
    played = clean_arena.play(plan_with({"name": "p", **probe}))
    assert played.exit_code == 5, played.output
    refused = played.history.of(Refused)[0]
    assert "cannot be read before the fault" in refused.why
    assert "pods/exec" in refused.why
