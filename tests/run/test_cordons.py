"""A cordon is lifted by the one who set it: ours and the detector's by the run, somebody else's never."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gameday.errors import AbortedError
from gameday.expect.cordoned import ExpectedCordon
from gameday.history.events import CordonSeen
from gameday.ledger.entries import RestoreNode
from gameday.ledger.ledger import stored_ledgers
from gameday.run.run import Run
from gameday.tasks.recover import _cordon
from gameday.values.results import Step
from tests.support.runs import follow_as_target
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import PATIENCE_S

NewRun = Callable[..., Run]
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def node(world: ScriptedWorld) -> str:
    return world.add_node()


@pytest.fixture
def follow(new_run: NewRun, node: str) -> Callable[..., Run]:
    """Make a run whose fault is in on the node; `expect` changes the plan's expectations."""

    def make(**expect: Any) -> Run:
        run = new_run(change=lambda plan: plan.model_copy(update={"expect": plan.expect.model_copy(update=expect)}))
        follow_as_target(run, node)
        run.record.begin_step(Step.AWAIT_ALERT)
        restore = RestoreNode(keys=run.quarantine_keys, unschedulable=None)
        run.intend("quarantine", "let the detector", restore, node, timedelta(minutes=1), defer_write=True)
        return run

    return make


@pytest.fixture
def followed(follow: Callable[..., Run]) -> Run:
    return follow()


def cordoned(run: Run, world: ScriptedWorld, node: str) -> None:
    world.core.patch_node(node, {"spec": {"unschedulable": True}})
    noted(run, node)


def noted(run: Run, node: str) -> None:
    assert run.nodes.wait_until(node, lambda: bool(run.history().of(CordonSeen)), PATIENCE_S, 0.2)


def test_a_cordon_by_somebody_else_aborts_the_run(followed: Run, world: ScriptedWorld, node: str) -> None:
    cordoned(followed, world, node)
    with pytest.raises(AbortedError, match=f"the target {node} was cordoned by somebody else"):
        followed.record.abort.sleep(PATIENCE_S)


@pytest.mark.parametrize(
    "expect",
    [
        {"cordoned": ExpectedCordon(within=timedelta(seconds=10))},
        {"taints": (), "stays_schedulable_for": timedelta(seconds=10)},
    ],
    ids=["expected", "a negative control, which is judged"],
)
def test_a_cordon_that_the_plan_speaks_of_does_not(
    follow: Callable[..., Run], world: ScriptedWorld, node: str, expect: dict[str, Any]
) -> None:
    run = follow(**expect)
    cordoned(run, world, node)
    run.record.abort.check()


def test_our_own_cordon_is_in_the_ledger_before_it_is_set(
    followed: Run, world: ScriptedWorld, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cordon, known = followed.kubernetes.cordon, list[bool | None]()

    def watched(name: str) -> None:
        (ledger,) = stored_ledgers(followed.kubernetes).ledgers
        known.extend(one.undo.unschedulable for one in ledger.entries if isinstance(one.undo, RestoreNode))
        cordon(name)

    monkeypatch.setattr(followed.kubernetes, "cordon", watched)
    _cordon(followed, node)
    assert known == [False]
    noted(followed, node)
    followed.record.abort.check()


def test_a_node_that_somebody_cordoned_before_us_stays_so(followed: Run, world: ScriptedWorld, node: str) -> None:
    cordoned(followed, world, node)
    _cordon(followed, node)
    (entry,) = followed.ledger.open_entries()
    assert isinstance(entry.undo, RestoreNode)
    assert entry.undo.unschedulable is None
    assert world.ledgers() == [], "nothing was learned"
