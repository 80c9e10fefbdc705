"""Whole game-days with the owners' own probes: queries, requests and jobs. Commands in pods are refused here.

Nobody granted them, and the embedded API server serves none: tests/observe/test_probes.py has their protocol.
"""

from __future__ import annotations

from typing import Any

import pytest

from gameday.history.events import ProbeAnswered, Refused
from tests.game_days.conftest import QUICK, Arena, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]


def plan_with(*probes: dict[str, Any]) -> dict[str, Any]:
    """A contained error, which quarantines nothing, and these probes."""
    plan = changed(changed(QUICK, "fault", {"type": "xid", "xid": 94, "hold": "30s"}), "recover.remediation", "none")
    quiet = {"stays_schedulable_for": "1s", "allow_other_alerts": True}
    return changed(plan, "expect", {**quiet, "probes": list(probes)})


def test_queries_requests_and_jobs_hold_and_leave_nothing(clean_arena: Arena) -> None:
    prometheus = clean_arena.cluster.urls["prometheus"]
    recent = 'node:gameday_kernel_events:recent{code="94", node=~"$targets"}'
    plan = plan_with(
        {"name": "counted", "promql": {"query": recent, "at_least": 1}, "within": "30s", "every": "1s"},
        {"name": "served", "http": {"url": f"{prometheus}/-/ready", "body": "(?i)ready"}, "stays_for": "6s"},
        {"name": "new-work", "job": {"command": ["sleep", "1"], "where": "target"}, "returns_within": "60s"},
        {"name": "work-goes-on", "job": {"command": ["sleep", "1"]}, "stays_for": "20s"},
    )
    played = clean_arena.play(plan)
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
        ("work-goes-on", "job"),
    }
    assert played.folder is not None
    assert "work-goes-on" in (played.folder / "report.html").read_text(encoding="utf-8")


def test_a_probe_that_breaks_fails_the_run_and_leaves_a_clean_cluster(clean_arena: Arena) -> None:
    # Xid 68 is no other game-day's on this arena: one would stay recent, and its series be there before the fault.
    recent = 'absent(node:gameday_kernel_events:recent{code="68", node=~"$targets"})'
    plan = changed(plan_with(), "fault.xid", 68)
    probe = {"name": "no-error", "promql": {"query": recent, "at_least": 1}, "stays_for": "20s", "every": "1s"}
    played = clean_arena.play(changed(plan, "expect.probes", [probe]))
    # `absent` has no series once there is one: what was there is gone, and the probe cannot be read.
    assert (played.exit_code, played.verdicts()["probe-stays"]) == (2, "unknown"), played.output


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ({"http": {"url": "PROMETHEUS/-/ready", "status": 418}, "stays_for": "5s"}, "does not hold before the fault"),
        ({"http": {"url": "PROMETHEUS/-/ready"}, "within": "5s"}, "would prove nothing"),
        ({"job": {"command": ["sleep", "60"], "ends_within": "1s"}, "returns_within": "5s"}, "does not hold before"),
        (
            {
                "exec": {
                    "namespace": "training",
                    "selector": {"app": "pretrain"},
                    "where": "any",
                    "command": ["nvidia-smi", "-L"],
                },
                "stays_for": "5s",
            },
            "cannot be read before the fault",
        ),
    ],
    ids=["does-not-hold", "holds-already", "job-fails", "exec-not-granted"],
)
def test_a_probe_that_proves_nothing_is_refused(clean_arena: Arena, probe: dict[str, Any], why: str) -> None:
    if "http" in probe:
        url = probe["http"]["url"].replace("PROMETHEUS", clean_arena.cluster.urls["prometheus"])
        probe = {**probe, "http": {**probe["http"], "url": url}}
    played = clean_arena.play(plan_with({"name": "p", **probe}))
    assert played.exit_code == 5, played.output
    refused = played.history.of(Refused)[0]
    assert why in refused.why
    assert ("pods/exec" in refused.why) == ("exec" in probe)
