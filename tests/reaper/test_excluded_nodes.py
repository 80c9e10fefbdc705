"""What a reap could not settle keeps others off that node, and off the whole cluster only where it may be anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import RefusedError
from gameday.guard.doctor.preflight import check_prerequisites
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.read_only_run import choose_and_follow, read_only_run
from gameday.ledger.entries import Entry, Header, RestoreNode, TakeOutFault
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.reaper.excluded_nodes import excluded_nodes
from gameday.reaper.reap import Reaped, ReapResult
from gameday.run.run import Run
from gameday.values.results import Cleanliness
from tests.support.runs import quick_plan
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

LATER = datetime(2030, 1, 2, tzinfo=UTC)
UNDO = TakeOutFault(pod="gd-r-inject", gpu=0, fault={"type": "power_cap", "watts": 300})


def left(node: str | None, found: Cleanliness = Cleanliness.UNKNOWN) -> ReapResult:
    entry = Entry(id="inject", seq=0, act="put the cap in", node=node, undo=UNDO, expires=LATER)
    return ReapResult((Reaped("r", entry, found, ("a second agent left no message",)),))


def test_what_is_unknown_on_a_node_in_service_keeps_everybody_off(world: ScriptedWorld, runner: Kubernetes) -> None:
    node = world.add_node()
    with pytest.raises(RefusedError, match="put the cap in") as caught:
        excluded_nodes(runner, left(node))
    assert node in caught.value.why
    assert "a second agent left no message" in caught.value.why
    assert caught.value.hint.endswith("kubectl -n gameday delete configmap gameday-run-r")


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_what_is_unknown_on_a_node_that_is_down_keeps_others_off_that_node(
    world: ScriptedWorld, runner: Kubernetes, ready: str
) -> None:
    node = world.add_node(ready=ready)
    excluded = excluded_nodes(runner, left(node))
    assert excluded.keys() == {node}
    assert excluded[node].startswith(f"Ready is {ready}; run r: put the cap in: unknown")


def test_a_node_whose_kubelet_never_reported_is_down(world: ScriptedWorld, runner: Kubernetes) -> None:
    world.core.create_node({"metadata": {"name": "new"}, "spec": {}})
    assert excluded_nodes(runner, left("new"))["new"].startswith("Ready is not reported; run r")


def test_what_is_unknown_on_a_node_that_is_gone_keeps_nobody_off_the_others(runner: Kubernetes) -> None:
    assert excluded_nodes(runner, left("gone"))["gone"].startswith("is gone; run r")


def test_a_node_that_may_still_be_quarantined_is_left_alone_and_no_other(
    world: ScriptedWorld, runner: Kubernetes
) -> None:
    until = world.clock.now() + timedelta(hours=1)
    undo = RestoreNode(keys=("k",), unschedulable=None, until=until)
    entry = Entry(id="quarantine", seq=0, act="quarantine", node=world.add_node(), undo=undo, expires=LATER)
    excluded = excluded_nodes(runner, ReapResult((Reaped("r", entry, Cleanliness.UNKNOWN, ()),)))
    assert excluded[entry.node or ""].startswith(f"may still be quarantined until {until:%H:%M:%S} UTC")
    over = entry.model_copy(update={"undo": undo.model_copy(update={"until": world.clock.now()})})
    with pytest.raises(RefusedError, match="not proved undone"):
        excluded_nodes(runner, ReapResult((Reaped("r", over, Cleanliness.UNKNOWN, ()),)))


def test_what_is_unknown_and_of_no_node_keeps_everybody_off(runner: Kubernetes) -> None:
    with pytest.raises(RefusedError, match="not proved undone"):
        excluded_nodes(runner, left(None))


def test_a_clean_reap_leaves_nothing_alone(runner: Kubernetes) -> None:
    assert excluded_nodes(runner, left("gone", Cleanliness.CLEAN)) == {}


@contextmanager
def settled(world: ScriptedWorld, node: str, found: Cleanliness | None) -> Iterator[str]:
    """A dead run's ledger with one entry that was found so; its name."""
    dead = unique("dead")
    with world.connected("gameday-runner") as runner:
        ledger = Ledger(runner, Header(run_id=dead, plan="p", started=LATER, operator="ada", host="here"))
        undo = UNDO.model_copy(update={"pod": f"gd-{dead}-inject"})
        entry = ledger.intend(id="inject", act="put the cap in", node=node, undo=undo, expires=LATER)
        if found:
            ledger.settle(entry, found, "flow", ["still 300 W"])
    try:
        yield ledger_name(dead)
    finally:
        world.core.delete_namespaced_config_map(ledger_name(dead), NAMESPACE)


def test_a_read_only_run_turns_down_a_node_that_a_run_would(
    world: ScriptedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.guard.read_only_run.Servers", lambda profile: world.connect(profile, world.clock))
    node = world.add_node()
    loaded, profile = quick_plan(names=[node]), world.profile_of("gameday-runner")
    with (
        settled(world, node, Cleanliness.DIRTY) as ledger,
        read_only_run("s", loaded, profile) as run,
        pytest.raises(RefusedError, match="nobody took out") as caught,
    ):
        choose_and_follow(run)
    assert ledger in caught.value.why


def of_the_cluster(run: Run) -> dict[str, Prerequisite]:
    found = takewhile(lambda check: check.area == "kubernetes", check_prerequisites(run, send_pod=False))
    return {check.name: check for check in found}


def test_the_doctor_lists_faults_that_no_reaper_will_take_out(
    world: ScriptedWorld, new_run: Callable[..., Run]
) -> None:
    node = world.add_node()
    with settled(world, node, Cleanliness.DIRTY) as ledger:
        found = of_the_cluster(new_run())
    assert found["nothing left to undo"].ok
    assert (found[f"{node} is clean"].ok, ledger in found[f"{node} is clean"].detail) == (None, True)


@pytest.mark.parametrize("found", [None, Cleanliness.UNKNOWN])
def test_the_doctor_lists_changes_that_the_next_run_would_undo(
    world: ScriptedWorld, new_run: Callable[..., Run], found: Cleanliness | None
) -> None:
    with settled(world, world.add_node(), found) as ledger:
        check = of_the_cluster(new_run())["nothing left to undo"]
    assert (check.ok, check.detail) == (False, f"open: {ledger.removeprefix('gameday-run-')}")


@pytest.mark.parametrize("ready", [None, "Unknown"], ids=["gone", "down"])
def test_the_doctor_refuses_nothing_for_what_is_unproved_on_a_node_that_is_away(
    world: ScriptedWorld, new_run: Callable[..., Run], ready: str | None
) -> None:
    node = world.add_node(ready=ready) if ready else "gone"
    with settled(world, node, Cleanliness.UNKNOWN) as ledger:
        found = of_the_cluster(new_run())
    prerequisite = found[f"{node} is clean"]
    assert found["nothing left to undo"].ok
    assert (prerequisite.ok, "put the cap in" in prerequisite.detail) == (None, True)
    assert f"delete configmap {ledger}" in prerequisite.fix


def test_the_doctor_lists_entries_that_nobody_can_read(world: ScriptedWorld, new_run: Callable[..., Run]) -> None:
    with settled(world, world.add_node(), Cleanliness.DIRTY) as ledger:
        world.core.patch_namespaced_config_map(ledger, NAMESPACE, {"data": {"0009-odd.json": "no json"}})
        check = of_the_cluster(new_run())["nothing left to undo"]
    assert not check.ok
    assert check.detail.startswith(f"unreadable: ConfigMap {ledger}, entry 0009-odd.json: Invalid JSON")
