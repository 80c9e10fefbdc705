"""The ledger of a fleet of 5,000 nodes: it stays below what a ConfigMap may hold, and undoes what a killed run left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.ledger.entries import DeletePod, Entry, Header, RestoreGpuClasses
from gameday.ledger.ledger import LEDGER_BYTES, Ledger, ledger_name, stored_ledgers
from gameday.reaper.reap import reap
from gameday.values.results import Cleanliness
from gameday_fleet.labels import why_labels_do_not_fit
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

FLEET = 5000
AT_ONCE = 100
LATER = datetime(2030, 1, 2, tzinfo=UTC)


@pytest.fixture
def run() -> str:
    return unique("fleet")


@pytest.fixture
def ledger(world: ScriptedWorld, runner: Kubernetes, run: str) -> Ledger:
    return Ledger(runner, Header(run_id=run, plan="fleet", started=LATER, operator="ada", host="here"))


def node_name(number: int) -> str:
    """A name of 30 characters."""
    return f"gpu-{number:05d}.cluster-west.example"


def intend_probe(ledger: Ledger, number: int, *, defer_write: bool = False) -> Entry:
    node = node_name(number)
    return ledger.intend(
        id=f"probe-{number}",
        act=f"create agent pod (probe) on {node}",
        node=node,
        undo=DeletePod(pod=f"gd-{ledger.header.run_id}-probe-{number}"),
        expires=LATER,
        defer_write=defer_write,
    )


def stored(world: ScriptedWorld, run: str) -> dict[str, str]:
    return dict(world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data)


def size_of(data: dict[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in data.items())


def test_a_forgotten_entry_goes_with_the_next_intent(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    first = intend_probe(ledger, 0)
    second = intend_probe(ledger, 1)
    ledger.forget(first)
    assert "0000-probe-0.json" in stored(world, run)
    third = intend_probe(ledger, 2)
    assert sorted(stored(world, run)) == ["0001-probe-1.json", "0002-probe-2.json", "run.json"]
    assert ledger.open_entries() == [third, second]
    assert not ledger.all_clean()
    for entry in (second, third):
        ledger.forget(entry)
    assert ledger.all_clean()


def test_an_entry_that_is_forgotten_before_it_was_written_is_never_written(
    world: ScriptedWorld, ledger: Ledger, run: str
) -> None:
    ledger.forget(intend_probe(ledger, 0, defer_write=True))
    intend_probe(ledger, 1)
    assert sorted(stored(world, run)) == ["0001-probe-1.json", "run.json"]


def test_probes_of_5000_nodes_fit(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    largest = 0
    for begin in range(0, FLEET, AT_ONCE):
        entries = [intend_probe(ledger, begin + i, defer_write=i < AT_ONCE - 1) for i in range(AT_ONCE)]
        largest = max(largest, size_of(stored(world, run)))
        for entry in entries:
            ledger.forget(entry)
    assert ledger.all_clean()
    # 294 bytes an entry, and as many entries as probes run: a ledger that kept all would need 1.5 MB.
    assert AT_ONCE * 250 < largest < AT_ONCE * 350


def test_labels_of_5000_nodes_fit_and_what_is_said_to_fit_does(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    """The longest class before and after; the reaper settles every entry with all the evidence that it may keep."""
    nodes = [node_name(number) for number in range(FLEET)]
    assert why_labels_do_not_fit(nodes) == ""
    entries = []
    for number, batch in enumerate(_batches(nodes, 200)):
        undo = RestoreGpuClasses(before=dict.fromkeys(batch, "typical"), set_to=dict.fromkeys(batch, "typical"))
        act = f"label nodes with their GPU class: {len(batch)}"
        entries.append(ledger.intend(id=f"gpu-classes-{number}", act=act, node=None, undo=undo, expires=LATER))
    for entry in entries:
        ledger.settle(entry, Cleanliness.UNKNOWN, "reaper", ["x" * 300] * 5)
    assert 0.3 * LEDGER_BYTES < size_of(stored(world, run)) < 0.6 * LEDGER_BYTES


def _batches(names: list[str], size: int) -> Iterator[list[str]]:
    rest = iter(names)
    while batch := list(islice(rest, size)):
        yield batch


def test_labels_that_do_not_fit_are_told_before_anything_is_written() -> None:
    why = why_labels_do_not_fit([node_name(number) for number in range(4 * FLEET)])
    assert why.startswith("the GPU classes of 20000 nodes may take ")
    assert why.endswith(" KiB of the run's ledger, which holds 1024 KiB")


ACTS = 4
"""What a probe does to the cluster: its intent, its pod, the pod's deletion, and forgetting the entry."""


@pytest.mark.parametrize("killed_after", range(3 * ACTS + 1))
def test_whatever_the_moment_a_run_is_killed_at_the_reaper_finds_its_pods(
    world: ScriptedWorld, runner: Kubernetes, reaper: Kubernetes, ledger: Ledger, run: str, killed_after: int
) -> None:
    for _ in islice(_acts(world, ledger, run), killed_after):
        pass
    pods = world.pods(run)
    named = [entry.undo.pod for found in stored_ledgers(runner).ledgers for entry in found.open_entries()]  # type: ignore[union-attr]
    assert set(pods) <= set(named)
    reaped = reap(reaper)
    assert {one.cleanliness for one in reaped.reaped} <= {Cleanliness.CLEAN}
    assert (world.pods(run), world.ledgers()) == ([], [])


def _acts(world: ScriptedWorld, ledger: Ledger, run: str) -> Iterator[None]:
    """Three probes, each of which begins before the one before it is taken away."""
    before: Entry | None = None
    for number in range(3):
        entry = intend_probe(ledger, number)
        yield
        world.add_pod(entry.undo.pod, run)  # type: ignore[union-attr]
        yield
        if before is not None:
            world.remove_pod(before.undo.pod)  # type: ignore[union-attr]
            yield
            ledger.forget(before)
            yield
        before = entry
