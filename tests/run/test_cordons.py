"""A cordon is lifted by whoever set it: ours and the detector's by the run, somebody else's never."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gameday.errors import AbortedError
from gameday.history.events import CordonSeen
from gameday.ledger.entries import Header, RestoreNode
from gameday.ledger.ledger import Ledger, stored_ledgers
from gameday.plan.load import LoadedPlan
from gameday.plan.models import ExpectedCordon
from gameday.run.run import Run
from gameday.tasks.recover import _cordon
from gameday.values.results import Step
from tests.cluster.kubernetes.world import PATIENCE_S, World

NewRun = Callable[..., Run]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def node(world: World) -> str:
    return world.add_node()


@pytest.fixture
def followed(new_run: NewRun, node: str) -> Run:
    """A run whose fault is in on the node."""
    run = new_run()
    seen = run.look_at(node)
    assert seen is not None
    run.follow_targets((seen,))
    run.step = Step.AWAIT_ALERT
    header = Header(run_id=run.id, plan="p", started=datetime.now(UTC), operator="ada", host="here")
    run.opened.ledger = Ledger(run.kubernetes, header)
    restore = RestoreNode(keys=run.quarantine_keys, unschedulable=None)
    run.intend("quarantine", "let the detector", restore, node, timedelta(minutes=1), with_next=True)
    return run


def cordoned(run: Run, world: World, node: str) -> None:
    world.core.patch_node(node, {"spec": {"unschedulable": True}})
    noted(run)


def noted(run: Run) -> None:
    deadline = time.monotonic() + PATIENCE_S
    (follower,) = run.nodes.values()
    with follower.changed:
        while not run.journal.history().of(CordonSeen):
            assert time.monotonic() < deadline
            follower.changed.wait(0.2)


def expecting(run: Run, **expect: Any) -> None:
    loaded = run.loaded
    plan = loaded.plan.model_copy(update={"expect": loaded.plan.expect.model_copy(update=expect)})
    run.loaded = LoadedPlan(plan, loaded.source, loaded.sha256)


def test_a_cordon_by_somebody_else_aborts_the_run(followed: Run, world: World, node: str) -> None:
    cordoned(followed, world, node)
    with pytest.raises(AbortedError, match=f"the target {node} was cordoned by somebody else"):
        followed.abort.sleep(PATIENCE_S)


@pytest.mark.parametrize(
    "expect",
    [
        {"cordoned": ExpectedCordon(within=timedelta(seconds=10))},
        {"taints": (), "stays_schedulable_for": timedelta(seconds=10)},
    ],
    ids=["expected", "a negative control, which is judged"],
)
def test_a_cordon_that_the_plan_speaks_of_does_not(
    followed: Run, world: World, node: str, expect: dict[str, Any]
) -> None:
    expecting(followed, **expect)
    cordoned(followed, world, node)
    followed.abort.check()


def test_our_own_cordon_is_in_the_ledger_before_it_is_set(
    followed: Run, world: World, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordon, known = followed.kubernetes.cordon, list[bool | None]()

    def watched(name: str) -> None:
        (ledger,) = stored_ledgers(followed.kubernetes).ledgers
        known.extend(one.undo.unschedulable for one in ledger.entries if isinstance(one.undo, RestoreNode))
        cordon(name)

    monkeypatch.setattr(followed.kubernetes, "cordon", watched)
    _cordon(followed, node)
    assert known == [False]
    noted(followed)
    followed.abort.check()


def test_a_node_that_somebody_cordoned_before_us_stays_so(followed: Run, world: World, node: str) -> None:
    cordoned(followed, world, node)
    _cordon(followed, node)
    (entry,) = followed.ledger.open_entries()
    assert isinstance(entry.undo, RestoreNode)
    assert entry.undo.unschedulable is None
    assert world.ledgers() == [], "nothing was learned"
