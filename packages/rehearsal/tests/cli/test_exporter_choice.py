"""The release of dcgm-exporter that a rehearsal has, where nobody asks for one."""

from __future__ import annotations

import pytest

from gameday.cli.game_day import check_plan
from gameday.errors import CommandError
from gameday.faults.compound import CompoundParameters
from gameday.plan.catalogue import shipped_plans
from gameday_rehearsal.cli.gpu_stack_options import exporter_for
from gameday_rehearsal.nodes.counters import counters_of

INJECTS = sorted(name for name in shipped_plans() if check_plan(name).fault.type == "dcgm_field")
ACTION = "dcgm-recovery-action"


@pytest.mark.parametrize("name", INJECTS)
def test_it_exports_what_a_shipped_plan_injects(name: str) -> None:
    plan = check_plan(name)
    exporter = exporter_for(None, [plan])
    assert str(getattr(plan.fault, "field")) in {counter.name for counter in counters_of(exporter)}  # noqa: B009
    assert exporter == ("newer" if name == ACTION else "4.4.2")


def test_a_fault_of_several_and_a_season_are_looked_into() -> None:
    action, remap = check_plan(ACTION), check_plan("dcgm-row-remap-failure")
    compound = CompoundParameters.model_construct(parts=(remap.fault, action.fault))
    both = remap.model_copy(update={"fault": compound})
    assert exporter_for(None, [both]) == "newer"
    assert exporter_for(None, [remap, action]) == "newer"


def test_the_release_that_is_asked_for_is_taken() -> None:
    assert exporter_for("3.3.5", [check_plan(ACTION)]) == "3.3.5"
    with pytest.raises(CommandError, match="choose one of"):
        exporter_for("4", [])
