"""The dry run of a plan whose cluster repairs: the game-day writes its own pods and leases, and nothing on the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gameday.guard.preview import PlannedChange, approval_question, planned_changes
from gameday.plan.models import Recovery
from gameday.run.run import Run
from tests.support.runs import follow_as_target
from tests.support.world import World

NewRun = Callable[..., Run]
HOPS = {"quarantined": {"within": "10s"}, "returned": {"within": "1m"}}


@pytest.fixture
def preview(world: World, new_run: NewRun) -> Callable[..., tuple[list[PlannedChange], str]]:
    def make(**recover: Any) -> tuple[list[PlannedChange], str]:
        recovery = Recovery.model_validate(recover)
        run = new_run(change=lambda plan: plan.model_copy(update={"recover": recovery}))
        targets = (follow_as_target(run, world.add_node()),)
        return planned_changes(run, targets), approval_question(run, targets)

    return make


def test_nothing_on_the_node_is_patched_or_evicted_and_no_work_is_sent_against_the_quarantine(preview: Any) -> None:
    changes, question = preview(by="cluster", hops=HOPS)
    assert {change.verb for change in changes} == {"create"}
    made = " ".join(change.object for change in changes)
    assert "canary" not in made and "resubmit" not in made
    assert "-qa" in made and "-return" in made
    assert "* repair: by the cluster" in question


def test_a_node_that_is_to_stay_out_of_service_gets_no_qa(preview: Any) -> None:
    changes, _ = preview(by="cluster", hops=HOPS, node_ends="out-of-service")
    made = " ".join(change.object for change in changes)
    assert "-inject" in made
    assert "-qa" not in made and "-return" not in made


def test_a_game_day_that_repairs_takes_the_quarantine_off_itself(preview: Any) -> None:
    changes, _ = preview()
    assert [change.object.partition("/")[0] for change in changes if change.verb == "patch"] == ["node"]
