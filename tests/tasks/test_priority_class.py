"""A run is refused before its fault where the class that its canaries need is missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from gameday.errors import RefusedError
from gameday.run.agents import agent_manifest, mark_task, qa_task
from gameday.run.run import Run
from gameday.tasks.baseline import _check_log_path
from tests.support.runs import follow_as_target
from tests.support.world import World

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def target(world: World) -> str:
    """A node of a cluster without kubelets."""
    return world.add_node()


def test_a_missing_class_refuses_at_the_first_pod_and_names_what_to_apply(
    world: World, new_run: Callable[..., Run], target: str
) -> None:
    run = new_run(profile={"canary_priority_class": "of-another-cluster"})
    chosen = follow_as_target(run, target)
    with (
        run.pods,
        pytest.raises(RefusedError, match="no PriorityClass with name of-another-cluster was found") as refused,
    ):
        run.pods.require_synced()
        _check_log_path(run, chosen)
    assert refused.value.hint.startswith("kubectl apply -f deploy/rbac/priority.yaml")
    assert world.pods(run.id) == []


def test_only_the_first_pod_depends_on_it(new_run: Callable[..., Run], target: str) -> None:
    """The fault and its undo do not."""
    run = new_run()
    chosen = follow_as_target(run, target)
    within = timedelta(seconds=60)
    mark = agent_manifest(run, "mark", mark_task(run, chosen), within)["spec"]
    qa = agent_manifest(run, "qa", qa_task(run, chosen), within)["spec"]
    assert mark["priorityClassName"] == "gameday-probe"
    assert "priorityClassName" not in qa
