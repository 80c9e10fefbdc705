"""Undo from ledgers that the reaper cannot trust: only of what a run of ours could have left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client.exceptions import ApiException

from gameday import plugins
from gameday.errors import RefusedError
from gameday.ledger import undo
from gameday.ledger.entries import DeletePod, Header, RestoreNode, found_undos
from gameday.ledger.ledger import LEDGER_LABEL, Ledger, ledger_name
from gameday.plugins import Group
from gameday.reaper.excluded_nodes import reap_before_start
from gameday.reaper.reap import ReapResult, reap
from gameday.values.results import Cleanliness
from tests.support.mutated import Change, changed, changes
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, unique

Json = dict[str, Any]
THEN = "2026-01-01T00:00:00Z"
OURS = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "acme.example/evacuate", "value": "yes", "effect": "NoSchedule"}
NCCL: Json = {"type": "nccl_conf", "variables": {"NCCL_ALGO": "Ring"}}
# The trial's own case: this version's fault has no `settings`, and the content would be root's on the node.
REFUSED_FAULT: Json = {"type": "nccl_conf", "settings": {"NCCL_DEBUG": "INFO"}}
EVIL = {"before": "x", "content": "NCCL_NET_PLUGIN=/tmp/evil.so\n"}


def entry(undo: Json, node: str | None = "n", id: str = "f", **fields: Any) -> Json:
    return {"id": id, "seq": 0, "act": "x", "node": node, "undo": undo, "expires": THEN} | fields


def header(run: str) -> Json:
    return {"run_id": run, "plan": "x", "started": THEN, "operator": "x", "host": "x"}


class Cluster:
    """A good ledger of a dead run, and beside it what is nobody's business: others' taint, cordon and pod."""

    def __init__(self) -> None:
        self.world = ScriptedWorld()
        self.others = self.world.add_node(taints=[FOREIGN], unschedulable=True)
        self.world.add_pod("gameday-node-health-1", "no-run")
        labels = {"labels": {"gameday.dev/run": None}}
        self.world.core.patch_namespaced_pod("gameday-node-health-1", NAMESPACE, {"metadata": labels})
        self.world.clock.sleep(2.0)
        self.node = self.world.add_node()
        self.run = unique("good")
        with self.world.connected("gameday-runner") as runner:
            ledger = Ledger(runner, Header.model_validate(header(self.run)))
            for one in (RestoreNode(keys=(OURS["key"],), unschedulable=False), DeletePod(pod=self.pod)):
                ledger.intend(id=one.kind, act="x", node=self.node, undo=one, expires=datetime.now(UTC))
        self.world.add_pod(self.pod, self.run)
        self.world.taint(self.node, OURS)

    @property
    def pod(self) -> str:
        return f"gd-{self.run}-mark"

    def forge(self, run: str, data: dict[str, str]) -> None:
        labels = {LEDGER_LABEL: "true", "gameday.dev/run": "x"}
        body = {"metadata": {"name": ledger_name(run), "labels": labels}, "data": data}
        self.world.core.create_namespaced_config_map(NAMESPACE, body)

    def entries(self, run: str, *entries: Json) -> None:
        found = {f"{one['seq']:04d}-{one['id']}.json": json.dumps(one) for one in entries}
        self.forge(run, {"run.json": json.dumps(header(run))} | found)

    def stored(self, run: str) -> dict[str, str]:
        found: dict[str, str] = self.world.core.read_namespaced_config_map(ledger_name(run), NAMESPACE).data
        return found

    def reaped(self) -> ReapResult:
        with self.world.connected("gameday-reaper") as reaper:
            return reap(reaper)

    def check(self) -> None:
        """The good one is undone, and what is others' is as it was."""
        world = self.world
        assert world.taints(self.node) == []
        assert ledger_name(self.run) not in world.ledgers()
        assert world.pods(self.run) == []
        spec = world.core.read_node(self.others).spec
        assert [one.key for one in spec.taints] == [FOREIGN["key"]]
        assert spec.unschedulable
        left = [pod.metadata.name for pod in world.core.list_namespaced_pod(NAMESPACE).items]
        assert "gameday-node-health-1" in left


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubelet is there to end a second agent."""
    monkeypatch.setattr(undo, "_SECOND_AGENT_TIMEOUT_S", 0.05)


BAD = "20260101-000000-bbbbbb"


@pytest.mark.parametrize("fault", [REFUSED_FAULT, {"type": "of_a_package_that_is_not_here"}, {}, {"type": ["xid"]}])
def test_a_fault_that_this_version_refuses_is_kept_and_everything_else_undone(cluster: Cluster, fault: Json) -> None:
    take_out = {"kind": "take-out-fault", "pod": f"gd-{BAD}-inject", "gpu": 0, "fault": fault, "undo_state": EVIL}
    cluster.entries(BAD, entry(take_out, node=cluster.others))
    (kept,) = [one for one in cluster.reaped().reaped if one.run_id == BAD]
    assert kept.cleanliness is Cleanliness.UNKNOWN
    assert "no second agent can be sent" in kept.describe()
    assert "in an installation with the package and version" in kept.describe()
    assert cluster.world.ledgers() == [ledger_name(BAD)]
    cluster.check()


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A reaper in an image with the core alone."""
    monkeypatch.setattr(plugins, "_installed", lambda: dict.fromkeys(Group, ()))
    found_undos.cache_clear()
    yield
    found_undos.cache_clear()


@pytest.mark.usefixtures("without_packages")
def test_an_undo_of_a_package_that_is_not_here_is_kept_and_everything_else_undone(cluster: Cluster) -> None:
    pod = f"gd-{BAD}-x"
    canary = {"kind": "end-api-canary", "pod": pod, "lease": f"gameday-api-canary-{BAD}"}
    cluster.entries(BAD, entry(canary, None, "canary"), entry({"kind": "delete-pod", "pod": pod}, None, seq=1))
    before = cluster.stored(BAD)
    result = cluster.reaped()
    assert [one.cleanliness for one in result.reaped if one.run_id == BAD] == [Cleanliness.CLEAN]
    assert [str(one) for one in result.unreadable] == [
        f"ConfigMap {ledger_name(BAD)}, entry 0000-canary.json: undo: no package that is installed here has the undo "
        "'end-api-canary': install the run's, and reap again"
    ]
    assert cluster.stored(BAD)["0000-canary.json"] == before["0000-canary.json"]
    cluster.check()


def test_a_run_is_refused_and_does_not_crash_for_such_an_entry(cluster: Cluster) -> None:
    take_out = {"kind": "take-out-fault", "pod": f"gd-{BAD}-inject", "gpu": 0, "fault": REFUSED_FAULT}
    cluster.entries(BAD, entry(take_out, node=cluster.others))
    with cluster.world.connected("gameday-runner") as runner, pytest.raises(RefusedError, match="not proved undone"):
        reap_before_start(runner, "run-1", lambda _: None)
    cluster.check()


def test_an_undo_that_raises_anything_is_kept_and_everything_else_undone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of another package may have any bug."""

    def broken(*_: object) -> None:
        raise KeyError("rights")

    monkeypatch.setattr(undo, "security_of", broken)
    take_out = {"kind": "take-out-fault", "pod": f"gd-{BAD}-inject", "gpu": 0, "fault": NCCL}
    cluster.entries(BAD, entry(take_out, cluster.others))
    (kept,) = [one for one in cluster.reaped().reaped if one.run_id == BAD]
    assert kept.cleanliness is Cleanliness.UNKNOWN
    assert kept.evidence == (f"its undo failed: KeyError: 'rights'; it is kept in ConfigMap {ledger_name(BAD)}",)
    cluster.check()


def test_a_bound_beyond_the_end_of_time_stops_nothing(cluster: Cluster) -> None:
    pod = f"gd-{BAD}-inject"
    take_out = {"kind": "take-out-fault", "pod": pod, "gpu": 0, "fault": NCCL}
    restore = {"kind": "restore-node", "keys": ["k"], "unschedulable": None, "within": 8e13}
    cluster.entries(BAD, entry(take_out, cluster.others), entry(restore, cluster.others, "r", seq=1))
    cluster.world.add_pod(pod, BAD)
    cluster.world.report(pod, "ended without a word")
    kept = {one.entry.id: one for one in cluster.reaped().reaped if one.run_id == BAD}
    assert kept["r"].evidence[0].startswith("its undo failed: OverflowError: ")
    cluster.check()


@pytest.mark.parametrize(
    "undo",
    [
        {"kind": "delete-pod", "pod": "gameday-node-health-1"},
        {"kind": "delete-job", "job": "gameday-reaper-1"},
        {"kind": "take-out-fault", "pod": "gd-x", "gpu": 0, "fault": NCCL, "undo_state": {"x": "y"}},
        {"kind": "end-api-canary", "pod": f"gd-{BAD}-api-canary", "lease": "plane"},
        {"kind": "bring-back-operands", "labels": ["nvidia.com/gpu.present"]},
        {"kind": "restore-node", "keys": [], "unschedulable": True},
    ],
)
def test_what_no_such_run_can_have_made_is_left_alone_and_reported(cluster: Cluster, undo: Json) -> None:
    cluster.entries(BAD, entry(undo, node=cluster.others))
    result = cluster.reaped()
    (kept,) = result.unreadable
    assert (kept.config_map, kept.key) == (ledger_name(BAD), "0000-f.json")
    assert str(kept).startswith(f"ConfigMap {ledger_name(BAD)}, entry 0000-f.json: ")
    assert kept.text, "of which a fault's node is read"
    assert [one.run_id for one in result.reaped] == [cluster.run] * 2
    assert cluster.world.pods(BAD) == []
    cluster.check()


@pytest.mark.parametrize("keys", [[FOREIGN["key"]], []], ids=["taint", "cordon"])
def test_a_quarantine_that_is_older_than_the_ledger_is_not_lifted(cluster: Cluster, keys: list[str]) -> None:
    """The trial's forged ledger: somebody's taint and cordon, of which no run is the cause."""
    cluster.entries(BAD, entry({"kind": "restore-node", "keys": keys, "unschedulable": False}, cluster.others))
    (kept,) = [one for one in cluster.reaped().reaped if one.run_id == BAD]
    assert kept.cleanliness is Cleanliness.DIRTY
    assert "is older than this ledger" in kept.describe()
    assert FOREIGN["key"] in kept.describe() or "the cordon" in kept.describe()
    cluster.check()
    cluster.world.core.patch_node(cluster.others, {"spec": {"taints": None, "unschedulable": None}})
    assert cluster.reaped().is_clean, "its owner has lifted it"


def test_a_cordon_that_the_entry_does_not_lift_is_no_quarantine_of_its(cluster: Cluster) -> None:
    """Somebody cordoned the node long ago, and the plan expects a taint only, which has gone by now."""
    cluster.entries(BAD, entry({"kind": "restore-node", "keys": ["x"], "unschedulable": None}, cluster.others))
    (done,) = [one for one in cluster.reaped().reaped if one.run_id == BAD]
    assert done.cleanliness is Cleanliness.CLEAN
    assert cluster.world.core.read_node(cluster.others).spec.unschedulable is True


def test_a_node_stays_quarantined_for_a_fault_that_cannot_be_read(cluster: Cluster) -> None:
    """A newer run's entry, say: this reaper lifted its node's taint, with the fault still in."""
    newer = {"kind": "take-out-fault", "pod": f"gd-{BAD}-inject", "gpu": 0, "fault": NCCL, "of_a_later_version": 1}
    restore = {"kind": "restore-node", "keys": [OURS["key"]], "unschedulable": None}
    node = cluster.world.add_node()
    cluster.entries(BAD, entry(newer, node), entry(restore, node, "r", seq=1))
    cluster.world.taint(node, OURS)
    result = cluster.reaped()
    assert [one.entry.id for one in result.reaped if one.run_id == BAD] == ["r"]
    assert [taint[0] for taint in cluster.world.taints(node)] == [OURS["key"]]
    cluster.check()


def test_two_entries_of_one_id_do_not_settle_each_other(cluster: Cluster) -> None:
    first, second = ({"kind": "delete-pod", "pod": f"gd-{BAD}-{name}"} for name in ("a", "b"))
    cluster.entries(BAD, entry(first), entry(second, seq=1))
    (kept,) = cluster.reaped().unreadable
    assert (kept.key, kept.why) == ("0001-f.json", "another entry has its id")


@pytest.mark.parametrize("name", ["gameday-cluster", "gameday-node-n1"])
def test_a_lease_without_a_spec_stops_no_reap(cluster: Cluster, name: str) -> None:
    cluster.world.coordination.create_namespaced_lease(NAMESPACE, {"metadata": {"name": name}})
    assert cluster.reaped().is_clean
    cluster.check()


def test_the_node_health_controller_can_forge_no_ledger(cluster: Cluster) -> None:
    """Its own ConfigMap has a name that no ledger has, whatever it writes into it."""
    labels = {LEDGER_LABEL: "true", "gameday.dev/run": BAD}
    data = {"run.json": json.dumps(header(BAD))}
    with cluster.world.connected("gameday-node-health") as controller:
        with pytest.raises(ApiException, match="Forbidden"):
            body = {"metadata": {"name": ledger_name(BAD), "labels": labels}, "data": data}
            controller.core.create_namespaced_config_map(NAMESPACE, body)
        with pytest.raises(ApiException, match="Forbidden"):
            controller.core.patch_namespaced_config_map(ledger_name(cluster.run), NAMESPACE, {"data": data})
        own = {"metadata": {"labels": labels}, "data": data}
        controller.core.patch_namespaced_config_map("gameday-health", NAMESPACE, own)
    (kept,) = cluster.reaped().unreadable
    assert kept.config_map == "gameday-health"
    cluster.check()


# --- mutated ledgers ---


def good_entries(run: str, node: str) -> list[Json]:
    """An entry of every kind, as a run writes it."""
    pod = f"gd-{run}-x"
    undos: list[Json] = [
        {"kind": "delete-pod", "pod": pod},
        {"kind": "delete-job", "job": pod},
        {"kind": "take-out-fault", "pod": pod, "gpu": 0, "fault": NCCL, "undo_state": {"before": "x"}},
        {"kind": "end-api-canary", "pod": pod, "lease": f"api-canary-{run}"},
        {"kind": "delete-flow-control", "schema_name": "gameday-x", "levels": ["gameday-x-1"]},
        {"kind": "restore-lab"},
        {"kind": "bring-back-operands", "labels": ["nvidia.com/gpu.deploy.dcgm"]},
        {"kind": "restore-gpu-classes", "before": {}, "set_to": {node: "fast"}},
        {"kind": "restore-node", "keys": [FOREIGN["key"]], "unschedulable": False, "within": "PT60S", "until": THEN},
    ]
    return [entry(one, node, f"e{number}", seq=number) for number, one in enumerate(undos)]


PLAUSIBLE = ("x", "gd-a0-x", "gd-b1-x", THEN, [FOREIGN["key"]], {"type": "xid", "xid": 79}, REFUSED_FAULT)
# Most often a change is one to the undo.
KEYS = st.sampled_from([*range(5), *(sorted(entry({})).index("undo"),) * 5])
CHANGES = changes(KEYS, *PLAUSIBLE)
MUTATED = st.tuples(
    st.integers(0, 8),
    st.lists(CHANGES, max_size=2),
    st.sampled_from([None] * 5 + [1]).flatmap(lambda at: CHANGES if at else st.none()),
    st.sampled_from([None] * 9 + [0, 17, 80, 200]),
)
"""Kind of the entry, changes to it, a change to the header, and where the entry's text is cut off."""


def play_mutated(forged: list[tuple[int, list[Change], Change | None, int | None]]) -> None:
    cluster = Cluster()
    for number, (kind, of_entry, of_header, cut) in enumerate(forged):
        run = f"{'abz'[number % 3]}{number}"
        found: Any = good_entries(run, cluster.others)[kind]
        for change in of_entry:
            found = changed(found, change)
        first: Any = changed(header(run), of_header) if of_header else header(run)
        cluster.forge(run, {"run.json": json.dumps(first), f"{kind:04d}-e{kind}.json": json.dumps(found)[:cut]})
    result = cluster.reaped()
    cluster.check()
    kept = {one.config_map for one in result.unreadable}
    kept |= {ledger_name(one.run_id) for one in result.reaped if one.cleanliness is not Cleanliness.CLEAN}
    assert set(cluster.world.ledgers()) <= kept, "what is left is reported"
    assert result.is_clean == (not kept)


@pytest.mark.usefixtures("soon")
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(MUTATED, min_size=8, max_size=12))
def test_mutated_ledgers_never_stop_the_undo_of_a_good_one(forged: Any) -> None:
    play_mutated(forged)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("soon")
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(MUTATED, min_size=20, max_size=20))
def test_ten_thousand_mutated_ledgers_never_stop_the_undo_of_a_good_one(forged: Any) -> None:
    play_mutated(forged)
