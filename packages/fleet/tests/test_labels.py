"""The labels of GPU classes on the nodes of a served cluster: written, kept, renewed, undone and taken off."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.pods import PodFollower
from gameday.errors import KubernetesError
from gameday.ledger.entries import Header
from gameday.ledger.ledger import Ledger, stored_ledgers
from gameday.ledger.undo import undo_entry
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass
from gameday.values.results import Cleanliness
from gameday_fleet import labels
from gameday_fleet.classes import NodeClass
from gameday_fleet.labels import take_labels_off, write_labels
from gameday_fleet.record import Labelled
from tests.support.world import PATIENCE_S, World, unique

NODES = ("g1", "g2", "g3")


@pytest.fixture
def run() -> str:
    return unique("fleet")


@pytest.fixture(autouse=True)
def nodes(world: World) -> Iterator[None]:
    for name in NODES:
        world.core.create_node({"metadata": {"name": name, "labels": {"mine": "kept"}}, "spec": {}})
    yield
    for name in NODES:
        world.core.delete_node(name)


@pytest.fixture
def pods(runner: Kubernetes, run: str) -> Iterator[PodFollower]:
    with PodFollower(runner, run) as following:
        assert following.wait_synced(PATIENCE_S)
        yield following


def ledger_of(runner: Kubernetes, run: str) -> Ledger:
    return Ledger(runner, Header(run_id=run, plan="fleet", started=datetime.now(UTC), operator="ada", host="here"))


@pytest.fixture
def ledger(runner: Kubernetes, run: str) -> Ledger:
    return ledger_of(runner, run)


def node_class(node: str, value: GpuClass) -> NodeClass:
    return NodeClass(node=node, gpu_class=value, model="m", gemm_tflops=1.0, slowest=0, percent=0.0)


SLOW_FAST = [node_class("g1", GpuClass.SLOW), node_class("g2", GpuClass.FAST)]


def write(runner: Kubernetes, ledger: Ledger, pods: PodFollower, *classes: NodeClass, stop_after: int = 99) -> Labelled:
    """Write the labels, and be told to stop before the so many-th one."""
    asked = iter(range(1000))
    return write_labels(runner, ledger, classes, pods, lambda: "SIGINT" if next(asked) >= stop_after else "")


def write_earlier(runner: Kubernetes, pods: PodFollower, *classes: NodeClass) -> None:
    """Write the labels of an earlier run."""
    earlier = ledger_of(runner, unique("earlier"))
    write(runner, earlier, pods, *classes)
    earlier.delete()


def stored(world: World) -> list[str | None]:
    found = [world.core.read_node(name).metadata.labels for name in NODES]
    assert all(one["mine"] == "kept" for one in found)
    return [one.get(GPU_CLASS_LABEL) for one in found]


def test_labels_are_written_and_stay_and_the_ledger_may_go(
    world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower
) -> None:
    done = write(runner, ledger, pods, *SLOW_FAST)
    assert stored(world) == ["slow", "fast", None]
    assert (done.changed, done.left_alone, done.stopped) == ({"g1": "slow", "g2": "fast"}, {}, "")
    assert ledger.all_clean()


def test_the_next_run_renews_what_has_changed_and_keeps_the_others(
    world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower
) -> None:
    write_earlier(runner, pods, *SLOW_FAST)
    before = world.core.read_node("g2").metadata.resource_version
    done = write(runner, ledger, pods, node_class("g1", GpuClass.TYPICAL), SLOW_FAST[1])
    assert (done.changed, done.unchanged) == ({"g1": "typical"}, ("g2",))
    assert stored(world) == ["typical", "fast", None]
    assert world.core.read_node("g2").metadata.resource_version == before


def test_a_label_that_somebody_else_has_set_is_left_alone(
    world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower
) -> None:
    write_earlier(runner, pods, *SLOW_FAST)
    for name, value in (("g2", "fast-enough"), ("g3", "fast")):
        world.core.patch_node(name, {"metadata": {"labels": {GPU_CLASS_LABEL: value}}}, field_manager="kubectl-label")
    wanted = [node_class(name, GpuClass.TYPICAL) for name in NODES]
    done = write(runner, ledger, pods, *wanted)
    assert done.left_alone == {"g2": "fast-enough", "g3": "fast"}
    assert stored(world) == ["typical", "fast-enough", "fast"]
    assert take_labels_off(runner, lambda: "") == Labelled(changed={"g1": ""}, left_alone={"g3": "fast"})
    assert stored(world) == [None, "fast-enough", "fast"]


def test_a_run_that_has_to_stop_leaves_no_half_of_its_labels(
    world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower
) -> None:
    write_earlier(runner, pods, node_class("g1", GpuClass.FAST))
    done = write(runner, ledger, pods, *SLOW_FAST, stop_after=1)
    assert (done.stopped, done.changed, done.cleanliness) == ("SIGINT", {}, Cleanliness.CLEAN)
    assert stored(world) == ["fast", None, None]
    assert ledger.all_clean()


def test_the_reaper_undoes_the_labels_of_a_run_that_was_killed_meanwhile(
    world: World,
    runner: Kubernetes,
    reaper: Kubernetes,
    ledger: Ledger,
    pods: PodFollower,
    run: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_earlier(runner, pods, node_class("g2", GpuClass.SLOW))

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger, "settle", killed)
    with pytest.raises(KeyboardInterrupt):
        write(runner, ledger, pods, *SLOW_FAST)
    assert stored(world) == ["slow", "fast", None]
    world.core.patch_node("g1", {"metadata": {"labels": {GPU_CLASS_LABEL: "mine"}}}, field_manager="kubectl-label")
    (left,) = [one for one in stored_ledgers(runner).ledgers if one.header.run_id == run]
    entries = left.open_entries()
    assert [one.act for one in entries] == ["label nodes with their GPU class: 2"]
    for entry in entries:
        done = undo_entry(reaper, entry, run, pods)
        assert (done.cleanliness, len(done.evidence)) == (Cleanliness.CLEAN, 2)
    assert stored(world) == ["mine", "slow", None]
    ledger.delete()


def test_what_the_api_server_refuses_is_said_and_undone(
    world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, refused = labels.change_gpu_class, iter([False, True])

    def forbidden(*arguments: object) -> object:
        if next(refused):
            raise KubernetesError("https://c", "patch node g2: 403 Forbidden", "", status=403)
        return change(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(labels, "change_gpu_class", forbidden)
    done = write(runner, ledger, pods, *SLOW_FAST)
    assert "403 Forbidden" in done.stopped
    assert stored(world) == [None, None, None]


def test_a_node_that_is_gone_is_nobodys(world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower) -> None:
    done = write(runner, ledger, pods, *SLOW_FAST, node_class("g9", GpuClass.FAST))
    assert set(done.changed) == {"g1", "g2"}
    assert done.cleanliness is Cleanliness.CLEAN


def test_taking_off_ends_where_it_has_to(world: World, runner: Kubernetes, ledger: Ledger, pods: PodFollower) -> None:
    write(runner, ledger, pods, *SLOW_FAST)
    assert take_labels_off(runner, lambda: "SIGINT").stopped == "SIGINT"
    assert stored(world) == ["slow", "fast", None]
