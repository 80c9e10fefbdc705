"""Whole game-days with several faults: at once, and in the middle of the repair; with pods that stand still."""

from __future__ import annotations

import pytest

from gameday.history.events import FaultInjected, RecoveryDisturbed
from tests.game_days.conftest import QUICK, Arena, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.slow
def test_two_faults_at_once_and_one_during_the_repair_all_come_out(clean_arena: Arena) -> None:
    parts = [{"type": "component_frozen", "component": "dcgm-exporter"}, QUICK["fault"] | {"hold": "60s"}]
    plan = changed(QUICK, "fault", {"type": "compound", "hold": "60s", "parts": parts})
    plan = changed(plan, "recover.fault_during", {"type": "component_frozen", "component": "dmesg-shipper"})
    played = clean_arena.play(plan)
    assert played.exit_code == 0, played.output
    assert played.verdicts()["fault-during-recovery"] == "held"
    (first,) = played.history.of(FaultInjected)
    (second,) = played.history.of(RecoveryDisturbed)
    assert first.layer == "telemetry (component_frozen) + kernel log (xid)"
    assert any("cgroup.events says frozen 1" in line for line in (*first.evidence, *second.evidence))


@pytest.mark.slow
def test_a_part_that_is_refused_keeps_the_others_out(clean_arena: Arena) -> None:
    parts = [{"type": "xid", "xid": 95}, {"type": "component_frozen", "component": "other"}]
    plan = changed(QUICK, "fault", {"type": "compound", "hold": "30s", "parts": parts})
    played = clean_arena.play(plan)
    assert played.exit_code == 2, played.output
    assert "part 2, component_frozen: no pod of the other is ready on this node" in played.output
    assert not played.history.of(FaultInjected)


@pytest.mark.slow
def test_a_frozen_log_store_ends_nothing_and_is_reported(clean_arena: Arena) -> None:
    """The run's own tail of the log store dies with it: a problem on record, and never a hang."""
    parts = [{"type": "component_frozen", "component": "log-store"}, {"type": "xid", "xid": 95}]
    plan = changed(QUICK, "fault", {"type": "compound", "hold": "60s", "parts": parts})
    plan = changed(plan, "targets.selector", {"virtual-node.gameday.dev/log-store": "true"})
    plan = changed(plan, "expect", {"stays_schedulable_for": "8s", "allow_other_alerts": True})
    plan = changed(plan, "guardrails.allow_dangerous", ["component_frozen"])
    played = clean_arena.play(plan)
    assert played.exit_code == 0, played.output
    assert played.verdicts()["stays-schedulable"] == "held"
