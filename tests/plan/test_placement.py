"""A plan's gang: what it may ask for, and with which faults."""

from __future__ import annotations

import pytest

from gameday.detectors.resolve import load_complete_plan
from gameday.plan.catalogue import find_plan
from gameday.runs.arm_checks import refuse_unknown_checks
from tests.plan.plans import changed, only


@pytest.mark.parametrize("pods", [1, 65])
def test_a_gang_has_2_to_64_pods(pods: int) -> None:
    problem = only(changed("expect:\n", f"expect:\n  placement: {{pods: {pods}}}\n"))
    assert problem.where == "expect.placement.pods"


def test_the_shipped_control_differs_by_the_preference_alone_and_must_break() -> None:
    path = find_plan("hardware-aware-placement")
    loaded = load_complete_plan(path, ())
    ours, control = loaded.arms
    assert (ours.arm.must_break, control.arm.must_break) == ((), ("placement",))
    wanted = ours.plan.expect.placement
    assert wanted is not None and wanted.prefers_fast
    assert control.plan.expect.placement == wanted.model_copy(update={"prefers_fast": False})
    refuse_unknown_checks(loaded)
