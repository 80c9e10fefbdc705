"""A plan as a guest plays it: the guest's own signals are expected, and those of another detector are not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gameday.detectors.load import load_detector
from gameday.detectors.played_by import played_by, why_not_played_by_guest
from gameday.detectors.resolve import load_complete_plan
from gameday.plan.catalogue import find_plan, shipped_plans
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan


def loaded(name: str) -> LoadedPlan:
    return load_complete_plan(find_plan(name))


def by(name: str, detector: str | None) -> Plan:
    profile = load_detector(detector) if detector else None
    return played_by(loaded(name), detector or "mine", profile).plan


def test_the_guests_own_signals_take_the_place_of_ours() -> None:
    plan = by("gpu-fell-off-the-bus", "node-problem-detector")
    assert plan.detector == "node-problem-detector"
    assert [one.type for one in plan.expect.conditions] == ["GPUXidFault"]
    assert plan.expect.taints == ()
    assert plan.expect.alerts == ()
    assert plan.expect.allow_other_alerts


def test_a_guest_that_taints_is_expected_to() -> None:
    plan = by("gpu-fell-off-the-bus", "konduktor")
    assert [one.key for one in plan.expect.taints] == ["trainy.konduktor.ai/faulty"]
    assert plan.expect.stays_schedulable_for is None


@pytest.mark.parametrize("detector", ["node-problem-detector", None])
def test_where_nothing_is_to_come_the_node_is_watched_for_a_while(detector: str | None) -> None:
    plan = by("dcgm-double-bit-ecc", detector)
    assert plan.expect.stays_schedulable_for == timedelta(seconds=30)
    assert plan.detector == (detector or "mine")


def test_an_alert_by_dcgm_stays_and_one_by_our_controller_goes() -> None:
    assert [one.name for one in by("dcgm-double-bit-ecc", None).expect.alerts] == ["GPUDoubleBitECC"]
    assert by("log-store-frozen", None).expect.alerts == ()


def test_the_played_plan_is_read_back_as_it_was_played(tmp_path: Path) -> None:
    plan = by("gpu-fell-off-the-bus", "konduktor")
    faults = {"faults": {plan.fault.type: type(plan.fault)}}
    assert Plan.model_validate_json(plan.model_dump_json(), context=faults) == plan


@pytest.mark.parametrize("detector", ["konduktor", None])
def test_every_shipped_plan_is_played_or_left_out_with_a_reason(detector: str | None) -> None:
    for name in shipped_plans():
        if not why_not_played_by_guest(loaded(name).plan):
            assert by(name, detector).expect.can_be_broken


def test_plans_in_which_nobody_would_repair_or_notice_are_left_out() -> None:
    assert "nobody does" in why_not_played_by_guest(loaded("hands-off-double-bit-ecc").plan)
    assert "nothing to notice" in why_not_played_by_guest(loaded("apiserver-list-storm").plan)
