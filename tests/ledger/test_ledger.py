"""The ledger in a real cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import urllib3
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.ledger.entries import DeleteJob, DeletePod, Header, RestoreNode, TakeOutFault, Undo
from gameday.ledger.ledger import Ledger, StoredLedger, ledger_name, stored_ledgers
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

LATER = datetime(2030, 1, 2, tzinfo=UTC)
TAINT = Taint(key="trainy.konduktor.ai/faulty", value="true", effect="NoSchedule")


def header(run: str) -> Header:
    return Header(run_id=run, plan="xid-79", started=datetime(2026, 1, 2, tzinfo=UTC), operator="ada", host="here")


@pytest.fixture
def run() -> str:
    return unique("run")


@pytest.fixture
def ledger(world: ScriptedWorld, runner: Kubernetes, run: str) -> Ledger:
    return Ledger(runner, header(run))


def intend(ledger: Ledger, id: str, undo: Undo | None = None, *, defer_write: bool = False) -> Any:
    undo = undo or DeletePod(pod=f"gd-{ledger.header.run_id}-{id}")
    return ledger.intend(id=id, act=f"do {id}", node="n1", undo=undo, expires=LATER, defer_write=defer_write)


def data(world: ScriptedWorld, run: str) -> dict[str, Any]:
    """What `kubectl get configmap -o yaml` shows."""
    found = world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data
    return {key: json.loads(text) for key, text in found.items()}


def only(kubernetes: Kubernetes) -> StoredLedger:
    found = stored_ledgers(kubernetes)
    assert found.unreadable == ()
    assert len(found.ledgers) == 1
    return found.ledgers[0]


def test_an_intent_is_in_the_cluster_when_it_returns(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    intend(ledger, "inject", TakeOutFault(pod="gd-1-inject", gpu=3, fault={"type": "xid", "xid": 79}))
    found = data(world, run)
    assert sorted(found) == ["0000-inject.json", "run.json"]
    assert found["run.json"]["operator"] == "ada"
    assert found["0000-inject.json"]["undo"] == {
        "kind": "take-out-fault",
        "pod": "gd-1-inject",
        "gpu": 3,
        "fault": {"type": "xid", "xid": 79},
        "undo_state": {},
        "goes_with_node": False,
        "operands": [],
    }
    assert found["0000-inject.json"]["settled"] is None
    labels = world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).metadata.labels
    assert labels == {"gameday.dev/ledger": "true", "gameday.dev/run": run}


def test_defer_write_waits_for_what_sets_it_off(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, run: str
) -> None:
    intend(ledger, "quarantine", defer_write=True)
    assert world.ledgers() == []
    intend(ledger, "inject")
    assert sorted(data(world, run)) == ["0000-quarantine.json", "0001-inject.json", "run.json"]
    assert runner.counter.cost().by_call == {"POST configmaps": 1}


def test_clean_settles_wait_and_others_do_not(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, run: str
) -> None:
    first, second, third = (intend(ledger, id) for id in ("a", "b", "c"))
    ledger.settle(first, Cleanliness.CLEAN, "flow", ["gone"])
    assert data(world, run)["0000-a.json"]["settled"] is None
    ledger.settle(second, Cleanliness.DIRTY, "flow", ["still there"])
    found = data(world, run)
    assert found["0000-a.json"]["settled"] == "clean"
    assert (found["0001-b.json"]["settled"], found["0001-b.json"]["evidence"]) == ("dirty", ["still there"])
    ledger.settle(third, Cleanliness.CLEAN, "flow", [])
    ledger.flush()
    ledger.flush()
    assert data(world, run)["0002-c.json"]["settled"] == "clean"
    assert runner.counter.cost().by_call == {"POST configmaps": 1, "PATCH configmaps": 4}


def test_what_an_undo_has_to_know_is_written_at_once(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, run: str
) -> None:
    undo = TakeOutFault(pod=f"gd-{run}-inject", gpu=0, fault={"type": "power_cap"})
    entry = intend(ledger, "inject", undo)
    ledger.update_undo(entry, undo.model_copy(update={"undo_state": {"limit": "700"}}))
    assert data(world, run)["0000-inject.json"]["undo"]["undo_state"] == {"limit": "700"}
    (open_entry,) = ledger.open_entries()
    assert open_entry.undo == only(runner).open_entries()[0].undo


def test_what_is_stored_reads_back_as_it_was(runner: Kubernetes, ledger: Ledger, run: str) -> None:
    pod, job = f"gd-{run}-canary", f"gd-{run}-resubmit"
    undos: list[Undo] = [DeletePod(pod=pod), DeleteJob(job=job), RestoreNode(keys=(TAINT.key,), unschedulable=False)]
    entries = [intend(ledger, f"e{number}", undo) for number, undo in enumerate(undos)]
    stored = only(runner)
    assert stored.header == header(run)
    assert list(stored.entries) == entries
    assert [entry.object for entry in stored.entries] == [f"pod/{pod}", f"job/{job}", "node/n1"]


def test_open_entries_are_the_unsettled_newest_first(runner: Kubernetes, ledger: Ledger) -> None:
    entries = {id: intend(ledger, id) for id in ("a", "b", "c", "d")}
    ledger.settle(entries["a"], Cleanliness.UNKNOWN, "flow", [])
    ledger.settle(entries["b"], Cleanliness.CLEAN, "flow", [])
    ledger.settle(entries["c"], Cleanliness.DIRTY, "flow", [])
    assert [entry.id for entry in only(runner).open_entries()] == ["d", "a"]
    assert [entry.id for entry in ledger.open_entries()] == ["d", "a"]
    assert not ledger.all_clean()


def test_a_ledger_knows_whose_cordon_it_is_and_which_nodes_it_gave_back(ledger: Ledger) -> None:
    def restore(id: str, node: str, *, cordon: bool) -> None:
        undo = RestoreNode(keys=(TAINT.key,), unschedulable=False if cordon else None)
        entry = ledger.intend(id=id, act="quarantine", node=node, undo=undo, expires=LATER)
        if node == "given-back":
            ledger.settle(entry, Cleanliness.CLEAN, "flow", [])

    intend(ledger, "pod")
    restore("a", "cordoned", cordon=True)
    restore("b", "tainted", cordon=False)
    restore("c", "given-back", cordon=True)
    ledger.settle(intend(ledger, "gone"), Cleanliness.CLEAN, "flow", [])
    nodes = ("n1", "cordoned", "tainted", "given-back")
    assert [node for node in nodes if ledger.cordons(node)] == ["cordoned", "given-back"]
    assert [(node, one.id) for node in nodes for one in ledger.restorations_of(node)] == [("given-back", "c")]


def test_two_writers_lose_no_entry(world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, run: str) -> None:
    first, second = intend(ledger, "a"), intend(ledger, "b")
    other = Ledger.from_stored(runner, only(runner))
    other.settle(first, Cleanliness.UNKNOWN, "reaper", ["theirs"])
    ledger.settle(second, Cleanliness.UNKNOWN, "flow", ["ours"])
    found = data(world, run)
    assert (found["0000-a.json"]["by"], found["0001-b.json"]["by"]) == ("reaper", "flow")


def test_an_intent_that_cannot_be_written_is_an_error(world: ScriptedWorld, reaper: Kubernetes, run: str) -> None:
    with pytest.raises(KubernetesError, match=rf"write inject into ledger gameday-run-{run}: 403"):
        intend(Ledger(reaper, header(run)), "inject")
    assert world.ledgers() == []


@pytest.mark.parametrize("lost", [urllib3.exceptions.ProtocolError("reset"), ApiException(status=504)])
def test_a_ledger_whose_making_was_not_answered_is_deleted_in_the_end(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, lost: Exception
) -> None:
    makes = [runner.core.create_namespaced_config_map]

    def unanswered(*arguments: Any, **options: Any) -> Any:
        for make in makes[:1]:
            makes.clear()
            make(*arguments, **options)
        raise lost

    monkeypatch.setattr("gameday.cluster.creation._FIRST_PAUSE_S", 0.001)

    monkeypatch.setattr(runner.core, "create_namespaced_config_map", unanswered)
    with pytest.raises(KubernetesError):
        intend(ledger, "a")
    (entry,) = ledger.open_entries()
    ledger.settle(entry, Cleanliness.CLEAN, "flow", [])
    ledger.delete()
    assert world.ledgers() == []


def test_a_ledger_whose_making_was_not_answered_once_goes_on(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, lost = runner.core.create_namespaced_config_map, [urllib3.exceptions.ProtocolError("reset")]

    def unanswered_once(*arguments: Any, **options: Any) -> Any:
        made = create(*arguments, **options)
        if lost:
            raise lost.pop()
        return made

    monkeypatch.setattr(runner.core, "create_namespaced_config_map", unanswered_once)
    intend(ledger, "a")
    assert len(world.ledgers()) == 1
    assert len(ledger.open_entries()) == 1


def test_a_request_that_was_sent_twice_is_the_same_ledger(
    world: ScriptedWorld, ledger: Ledger, runner: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = runner.core.create_namespaced_config_map

    def twice(namespace: str, manifest: Any) -> Any:
        create(namespace, manifest)
        return create(namespace, manifest)

    monkeypatch.setattr(runner.core, "create_namespaced_config_map", twice)
    entry = intend(ledger, "a")
    assert only(runner).entries == (entry,)
    ledger.delete()
    assert world.ledgers() == []


def test_a_second_ledger_of_the_same_run_is_refused(ledger: Ledger, runner: Kubernetes, run: str) -> None:
    intend(ledger, "a")
    with pytest.raises(KubernetesError) as caught:
        intend(Ledger(runner, header(run)), "b")
    assert caught.value.status == 409


def test_a_copy_of_our_ledger_under_another_name_does_not_make_the_one_of_our_name_ours(
    world: ScriptedWorld, ledger: Ledger, runner: Kubernetes, run: str
) -> None:
    intend(ledger, "a")
    ours = world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data
    world.core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": "copy"}, "data": ours})
    world.core.patch_namespaced_config_map(ledger_name(run), NAMESPACE, {"data": {"0000-a.json": "another's"}})
    with pytest.raises(KubernetesError) as caught:
        intend(Ledger(runner, header(run)), "a")
    assert caught.value.status == 409


def test_deletion(world: ScriptedWorld, ledger: Ledger) -> None:
    ledger.delete()
    entry = intend(ledger, "a")
    ledger.settle(entry, Cleanliness.CLEAN, "flow", [])
    assert ledger.all_clean()
    ledger.delete()
    assert world.ledgers() == []
    ledger.delete()


def test_evidence_is_bounded(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    entry = intend(ledger, "a")
    ledger.settle(entry, Cleanliness.DIRTY, "flow", ["short", "x" * 100_000, "y", *["z" * 300] * 9])
    assert data(world, run)["0000-a.json"]["evidence"] == ["short", "x" * 300, "y", "z" * 300]


@pytest.mark.parametrize("character", ["x", "€", "\x00"])
def test_the_largest_plan_fits_into_a_configmap(world: ScriptedWorld, ledger: Ledger, run: str, character: str) -> None:
    node = "a-node-with-a-rather-long-name.example.internal"
    for number in range(800):
        undo = TakeOutFault(pod=f"gd-20260102-030405-inject-{number}", gpu=0, fault={"type": "xid", "xid": 79})
        entry = ledger.intend(id=f"i{number}", act="inject", node=node, undo=undo, expires=LATER, defer_write=True)
        ledger.settle(entry, Cleanliness.CLEAN, "reaper", [character * 1000] * 50)
    ledger.flush()
    stored = world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data
    assert len(stored) == 801
    assert sum(len(key) + len(text.encode()) for key, text in stored.items()) < 1 << 20


@pytest.mark.parametrize("text", ["", "no json", "{}", '{"id": "a"}', '{"kind": "delete-pod"}'])
def test_an_entry_that_cannot_be_read_is_named_and_the_others_count(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, run: str, text: str
) -> None:
    entry = intend(ledger, "a")
    world.core.patch_namespaced_config_map(ledger_name(run), NAMESPACE, {"data": {"0007-odd.json": text}})
    stored = only(runner)
    (odd,) = stored.unreadable
    assert (odd.config_map, odd.key) == (ledger_name(run), "0007-odd.json")
    assert odd.why
    assert list(stored.entries) == [entry]


@pytest.mark.parametrize(
    "content",
    [
        None,
        {},
        {"run.json": "no json"},
        {"run.json": json.dumps({"run_id": "only"})},
        {"run.json": header("another-run").model_dump_json()},
    ],
)
def test_a_ledger_that_does_not_say_whose_it_is_is_named(
    world: ScriptedWorld, runner: Kubernetes, ledger: Ledger, content: dict[str, str] | None
) -> None:
    intend(ledger, "a")
    odd = {"metadata": {"name": "odd", "labels": {"gameday.dev/ledger": "true"}}, "data": content}
    world.core.create_namespaced_config_map(NAMESPACE, odd)
    found = stored_ledgers(runner)
    assert [(one.config_map, one.key) for one in found.unreadable] == [("odd", "run.json")]
    assert found.unreadable[0].why
    assert len(found.ledgers) == 1


def test_expiry_is_kept_with_its_zone(world: ScriptedWorld, ledger: Ledger, run: str) -> None:
    ledger.intend(id="a", act="x", node=None, undo=DeletePod(pod="p"), expires=LATER + timedelta(seconds=1))
    assert data(world, run)["0000-a.json"]["expires"] == "2030-01-02T00:00:01Z"
