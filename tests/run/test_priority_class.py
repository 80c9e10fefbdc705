"""A run is refused before its fault where the class that its canaries need is missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from gameday.cluster.pods import PodFollower
from gameday.errors import RefusedError
from gameday.ledger.entries import Header
from gameday.ledger.ledger import Ledger
from gameday.run.agents import agent_manifest, mark_task, qa_task
from gameday.run.run import Run
from gameday.tasks.baseline import _log_path_is_alive
from gameday.values.nodes import Target
from tests.cluster.kubernetes.world import World

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run(world: World, new_run: Callable[..., Run]) -> Run:
    """One that has chosen its target and goes on to its first pod, on a cluster without kubelets."""
    run, node = new_run(), world.add_node()
    seen = run.look_at(node)
    assert seen is not None
    run.targets = (Target(node=node, gpu=0),)
    run.follow_targets((seen,))
    header = Header(run_id=run.id, plan="p", started=datetime.now(UTC), operator="ada", host="here")
    run.opened.ledger = Ledger(run.kubernetes, header)
    return run


def test_a_missing_class_refuses_at_the_first_pod_and_names_what_to_apply(world: World, run: Run) -> None:
    run.profile = run.profile.model_copy(update={"canary_priority_class": "of-another-cluster"})
    with (
        PodFollower(run.kubernetes, run.id) as run.opened.pods,
        pytest.raises(RefusedError, match="no PriorityClass with name of-another-cluster was found") as refused,
    ):
        run.pods.require_synced()
        _log_path_is_alive(run, run.targets[0], 0)
    assert refused.value.hint.startswith("kubectl apply -f deploy/rbac/priority.yaml")
    assert world.pods(run.id) == []


def test_only_the_first_pod_depends_on_it(run: Run) -> None:
    """The fault and its undo do not."""
    (target,) = run.targets
    within = timedelta(seconds=60)
    mark = agent_manifest(run, "mark", mark_task(run, target, run.marker(0)), within)["spec"]
    qa = agent_manifest(run, "qa", qa_task(run, target.node, 0), within)["spec"]
    assert mark["priorityClassName"] == "gameday-probe"
    assert "priorityClassName" not in qa
