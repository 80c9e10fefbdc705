"""A plan may use a dangerous fault only if it allows that fault."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from gameday.errors import DocumentError
from gameday.faults.registry import parameter_models
from gameday.plan.fault import FaultParameters
from gameday.plan.load import parse_plan
from tests.plan.plans import GOOD


class Flood(FaultParameters):
    dangerous: ClassVar[str] = "water everywhere"
    type: Literal["flood"] = "flood"


def test_a_plan_that_does_not_allow_its_dangerous_fault_is_refused_at_the_faults_line() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_plan(_flooding(), "p.yaml", {"flood": Flood})
    (problem,) = caught.value.problems
    assert (problem.line, problem.where) == (6, "fault.type")
    assert "water everywhere" in problem.message
    assert "guardrails.allow_dangerous" in problem.message


def test_a_plan_that_allows_its_dangerous_fault_is_accepted() -> None:
    plan = parse_plan(_flooding() + b"guardrails:\n  allow_dangerous: [flood]\n", "p.yaml", {"flood": Flood}).plan
    assert plan.fault.type == "flood"


@pytest.mark.parametrize("name", ["gpu_burn", "gpu_memory", "gpu_removed", "node_shutdown", "critical_unit_stopped"])
def test_a_fault_that_can_cost_more_than_planned_is_dangerous(name: str) -> None:
    assert parameter_models()[name].dangerous


def _flooding() -> bytes:
    return GOOD.replace("  type: xid\n  xid: 79\n", "  type: flood\n").encode()
