"""Hands off: each hop of a cluster's own repair is dated as a foreign controller takes it, and nothing is touched."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import (
    NodeReplaced,
    RepairAwaited,
    RepairChainEnded,
    RepairHopSeen,
    SignalUnwatched,
)
from gameday.ledger.entries import Entry, TakeOutFault
from gameday.observe.cluster_repair import ClusterRepair
from gameday.plan.models import Recovery
from gameday.run.run import Run
from gameday.run.run_ledger import RunLedger
from gameday.run.successor import PoolWatch
from gameday.values.results import Cleanliness, RepairHop, RepairKind
from tests.support.runs import follow_as_target
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import NAMESPACE, PATIENCE_S, unique

NewRun = Callable[..., Run]
pytestmark = pytest.mark.timeout(60)
PATIENCE = timedelta(seconds=PATIENCE_S)
TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
STATE = "example.com/state"
POOL = "karpenter.sh/nodepool"
BEGUN = {"within": "20s", "signs": [{"label": {"key": STATE, "values": ["repairing"]}}]}
CHAIN: dict[str, Any] = {
    "quarantined": {"within": "20s"},
    "work_moved": {"within": "20s"},
    "repair_begun": BEGUN,
    "repaired": {"within": "20s"},
    "ready": {"within": "20s"},
    "validated": {"within": "20s", "signs": [{"event": {"reason": "NodeValidated"}}]},
    "returned": {"within": "20s"},
}


class Scene:
    """A target, the run that watches it, and a foreign controller's acts on it."""

    def __init__(
        self, world: ScriptedWorld, new_run: NewRun, hops: dict[str, Any], *, begins: bool = True, **recover: Any
    ) -> None:
        self.world = world
        self.pool = unique("pool")
        self.node = world.add_node(labels={POOL: self.pool, STATE: "fine"})
        self._patch_status(self.node, {"nodeInfo": self._info("boot-1", "machine-1")})
        recovery = Recovery.model_validate({"by": "cluster", "hops": hops} | recover)
        self.run = new_run(change=lambda plan: plan.model_copy(update={"recover": recovery}))
        self.target = follow_as_target(self.run, self.node)
        self.repair = ClusterRepair(self.run, self.target, [])
        if begins:
            self.repair.begin(world.clock.now())

    def _patch_status(self, node: str, status: dict[str, Any]) -> None:
        self.world.core.patch_node_status(node, {"status": status}, field_manager="foreign-kubelet")

    @staticmethod
    def _info(boot: str, machine: str) -> dict[str, str]:
        keys = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion")
        others = ("machineID", "operatingSystem", "osImage")
        return dict.fromkeys((*keys, *others), "x") | {"bootID": boot, "systemUUID": machine}

    def quarantine(self, by: str = "foreign-detector") -> None:
        self.world.core.patch_node(self.node, {"spec": {"taints": [TAINT]}}, field_manager=by)

    def label(self, value: str, by: str = "foreign-repairer") -> None:
        self.world.core.patch_node(self.node, {"metadata": {"labels": {STATE: value}}}, field_manager=by)

    def reboot(self, boot: str = "boot-2", machine: str = "machine-1") -> None:
        self._patch_status(self.node, {"nodeInfo": self._info(boot, machine)})

    def ready(self, status: str) -> None:
        self._patch_status(self.node, {"conditions": [{"type": "Ready", "status": status}]})

    def gpus(self, count: int) -> None:
        self._patch_status(self.node, {"allocatable": {GPU_RESOURCE: str(count)}})

    def event(self, reason: str, component: str = "foreign-validator") -> None:
        now = self.world.clock.now()
        about = {"kind": "Node", "name": self.node, "apiVersion": "v1"}
        metadata = {"name": unique("event"), "namespace": "default"}
        source = {"component": component}
        body = {"metadata": metadata, "involvedObject": about, "reason": reason, "message": "m", "type": "Normal"}
        times = {"firstTimestamp": now, "lastTimestamp": now, "count": 1}
        self.world.core.create_namespaced_event("default", {**body, "source": source, **times})

    def release(self) -> None:
        self.world.core.patch_node(self.node, {"spec": {"taints": None}}, field_manager="foreign-repairer")

    def reach(self, hop: RepairHop) -> RepairHopSeen:
        """Wait until the run has noted a hop."""
        found = self.run.wait(str(hop), PATIENCE, lambda: self.hops().get(hop))
        assert found is not None, f"{hop} was not seen; the run awaits {self.repair.watch.waits_for}"
        return found

    def end(self) -> RepairChainEnded:
        found = self.run.wait("the end", PATIENCE, lambda: self.repair.watch.ended)
        assert found is not None, f"the run still awaits {self.repair.watch.waits_for}"
        return found

    def hops(self) -> dict[RepairHop, RepairHopSeen]:
        return {seen.hop: seen for seen in self.run.history().of(RepairHopSeen)}


@pytest.fixture
def world() -> ScriptedWorld:
    return ScriptedWorld()


@pytest.fixture
def scene(world: ScriptedWorld, new_run: NewRun) -> Callable[..., Scene]:
    def make(hops: dict[str, Any] | None = None, **recover: Any) -> Scene:
        return Scene(world, new_run, CHAIN if hops is None else hops, **recover)

    return make


def test_every_hop_has_its_actor_its_source_and_its_duration(scene: Callable[..., Scene]) -> None:
    stage = scene()
    stage.quarantine()
    assert stage.reach(RepairHop.QUARANTINED).by == "foreign-detector"
    assert stage.reach(RepairHop.WORK_MOVED).source == "watch of the pods"
    stage.label("repairing")
    assert stage.reach(RepairHop.REPAIR_BEGUN).by == "foreign-repairer"
    stage.ready("False")
    stage.reboot()
    repaired = stage.reach(RepairHop.REPAIRED)
    assert (repaired.repair, repaired.source) == (RepairKind.REBOOT, "watch of the node: boot id boot-1 -> boot-2")
    assert RepairHop.READY not in stage.hops()
    stage.ready("True")
    assert stage.reach(RepairHop.READY).by == "foreign-kubelet"
    stage.event("NodeValidated")
    assert stage.reach(RepairHop.VALIDATED).by == "foreign-validator"
    stage.release()
    stage.reach(RepairHop.RETURNED)
    ended = stage.end()
    assert (ended.stopped_at, ended.in_service) == (None, True)
    hops = list(stage.hops().values())
    assert [hop.hop for hop in hops] == list(RepairHop)
    assert [hop.since for hop in hops] == ["fault written", *list(RepairHop)[:-1]]
    for before, after in pairwise(hops):
        assert after.took_s == pytest.approx((after.at - before.at).total_seconds())
    assert stage.run.history().first(RepairAwaited) is not None


@pytest.mark.parametrize("stops_at", [hop for hop in RepairHop if hop is not RepairHop.WORK_MOVED])
def test_the_wait_ends_at_the_hop_that_does_not_come(scene: Callable[..., Scene], stops_at: RepairHop) -> None:
    key = stops_at.value.replace(" ", "_")
    stage = scene(CHAIN | {key: CHAIN[key] | {"within": "200ms"}})
    acts = {
        RepairHop.QUARANTINED: stage.quarantine,
        RepairHop.REPAIR_BEGUN: lambda: stage.label("repairing"),
        RepairHop.REPAIRED: lambda: (stage.gpus(7), stage.reboot()),
        RepairHop.READY: lambda: stage.gpus(8),
        RepairHop.VALIDATED: lambda: stage.event("NodeValidated"),
    }
    for hop in RepairHop:
        if hop is stops_at:
            break
        if hop in acts:
            acts[hop]()
        stage.reach(hop)
    ended = stage.end()
    assert ended.stopped_at is stops_at
    assert ended.why.startswith("not within 0.2s")
    assert list(stage.hops()) == list(RepairHop)[: list(RepairHop).index(stops_at)]


def test_what_the_cluster_leaves_is_named_and_stays(scene: Callable[..., Scene]) -> None:
    stage = scene(CHAIN | {"repair_begun": BEGUN | {"within": "200ms"}})
    stage.quarantine()
    stage.label("draining")
    ended = stage.end()
    assert ended.stopped_at is RepairHop.REPAIR_BEGUN
    assert ended.left == (f"taint {TAINT['key']}=true:NoSchedule", f"label {STATE}=draining")
    assert stage.world.taints(stage.node) == [(TAINT["key"], "true", "NoSchedule")]
    assert stage.run.ledger.open_entries() == []


def test_another_node_of_the_pool_goes_on_with_the_story(scene: Callable[..., Scene]) -> None:
    stage = scene({key: CHAIN[key] for key in ("quarantined", "repaired", "ready", "returned")})
    stage.quarantine()
    stage.reach(RepairHop.QUARANTINED)
    stranger = stage.world.add_node(labels={POOL: unique("other")})
    stage.world.core.delete_node(stage.node)
    successor = stage.world.add_node(labels={POOL: stage.pool})
    repaired = stage.reach(RepairHop.REPAIRED)
    assert repaired.repair is RepairKind.REPLACEMENT
    ended = stage.end()
    assert (ended.stopped_at, ended.in_service) == (None, True)
    (replaced,) = stage.run.history().of(NodeReplaced)
    assert (replaced.node, replaced.successor, replaced.pool) == (stage.node, successor, {POOL: stage.pool})
    assert stage.repair.watch.name == successor != stranger
    assert stage.run.nodes.follows(successor)


def test_a_new_machine_of_the_same_name_is_a_replacement_and_the_same_machine_is_none(
    scene: Callable[..., Scene],
) -> None:
    stage = scene({"repaired": {"within": "20s"}})
    name = stage.node
    stage.world.core.delete_node(name)
    stage.run.wait("the node to go", PATIENCE, lambda: stage.repair.watch.awaits_successor or None)
    metadata = {"name": name, "labels": {POOL: stage.pool}}
    stage.world.core.create_node({"metadata": metadata, "spec": {}})
    repaired = stage.reach(RepairHop.REPAIRED)
    assert repaired.repair is RepairKind.REPLACEMENT
    (replaced,) = stage.run.history().of(NodeReplaced)
    assert replaced.successor == name


def test_a_kind_of_repair_that_the_plan_does_not_count_does_not_reach_the_hop(scene: Callable[..., Scene]) -> None:
    stage = scene({"repaired": {"within": "200ms", "kinds": ["gpu-reset"]}})
    stage.reboot()
    ended = stage.end()
    assert ended.stopped_at is RepairHop.REPAIRED
    assert ended.why == "not within 0.2s; reboot came, which the plan does not count"


def test_a_node_that_must_stay_out_and_does_ends_the_chain_as_planned(scene: Callable[..., Scene]) -> None:
    stage = scene({"quarantined": {"within": "20s"}, "returned": {"within": "200ms"}}, node_ends="out-of-service")
    stage.quarantine()
    ended = stage.end()
    assert (ended.stopped_at, ended.in_service) == (None, False)
    assert RepairHop.RETURNED not in stage.hops()


def test_a_node_that_must_stay_out_and_never_went_out_stops_the_chain_at_the_end_of_the_window(
    scene: Callable[..., Scene],
) -> None:
    sign = {"label": {"key": STATE, "values": ["draining"]}}
    hops = {"quarantined": {"within": "20s", "signs": [sign]}, "returned": {"within": "200ms"}}
    stage = scene(hops, node_ends="out-of-service")
    stage.label("draining")
    ended = stage.end()
    assert (ended.stopped_at, ended.why, ended.in_service) == (RepairHop.RETURNED, "the node is in service", True)
    assert RepairHop.RETURNED not in stage.hops()


def test_a_node_that_must_stay_out_and_comes_back_stops_the_chain(scene: Callable[..., Scene]) -> None:
    stage = scene({"quarantined": {"within": "20s"}, "returned": {"within": "20s"}}, node_ends="out-of-service")
    stage.quarantine()
    stage.reach(RepairHop.QUARANTINED)
    stage.release()
    assert stage.end().stopped_at is RepairHop.RETURNED


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The entries that the run undoes; each is out."""
    found: list[str] = []

    def undo(ledger: RunLedger, entry: Entry, nodes: Any) -> Cleanliness:
        found.append(entry.id)
        ledger.settle(entry, Cleanliness.CLEAN, ("out",))
        return Cleanliness.CLEAN

    monkeypatch.setattr(RunLedger, "undo", undo)
    monkeypatch.setattr(RunLedger, "check_lease", lambda ledger: None)
    return found


def injected(stage: Scene) -> None:
    undo = TakeOutFault(pod="gd-inject", gpu=0, fault={"type": "xid"}, goes_with_node=True)
    stage.run.intend("inject", "inject", undo, stage.node, timedelta(minutes=1))


def test_the_fault_comes_out_at_the_first_sign_of_the_repair(scene: Callable[..., Scene], undone: list[str]) -> None:
    stage = scene()
    injected(stage)
    stage.quarantine()
    stage.reach(RepairHop.WORK_MOVED)
    assert undone == []
    stage.label("repairing")
    stage.reach(RepairHop.REPAIR_BEGUN)
    stage.repair.look()
    assert undone == ["inject"]


def test_a_fault_of_a_cluster_that_does_nothing_comes_out_at_the_end_of_the_chain(
    scene: Callable[..., Scene], undone: list[str]
) -> None:
    stage = scene({"quarantined": {"within": "200ms"}})
    injected(stage)
    assert stage.end().stopped_at is RepairHop.QUARANTINED
    stage.repair.look()
    assert undone == ["inject"]


def test_a_fault_that_stays_until_its_deadline_is_put_in_again_after_a_reboot(
    scene: Callable[..., Scene], undone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, timedelta]] = []

    def inject_fault(run: Run, target: Any, fault: Any, name: str) -> Any:
        sent.append((name, fault.hold))
        undo = TakeOutFault(pod=name, gpu=0, fault={"type": "xid"}, goes_with_node=True)
        entry = run.intend("inject-2", "inject", undo, target.node, timedelta(minutes=1))
        return entry, type("Note", (), {"written_at": run.clock.now(), "evidence": ()})()

    monkeypatch.setattr("gameday.observe.cluster_repair.inject_fault", inject_fault)
    stage = scene(CHAIN, fault_out="deadline")
    injected(stage)
    stage.quarantine()
    stage.label("repairing")
    stage.reach(RepairHop.REPAIR_BEGUN)
    stage.repair.look()
    assert undone == []
    stage.gpus(7)
    stage.reboot()
    stage.reach(RepairHop.REPAIRED)
    stage.repair.look()
    assert sent == []
    stage.gpus(8)
    stage.run.wait("the fault", PATIENCE, lambda: sent or None)
    ((name, hold),) = sent
    assert name.endswith("inject-2")
    assert timedelta() < hold < stage.run.plan.fault.hold
    assert undone == []
    stage.repair.watch.end("the test ends")
    stage.repair.look()
    assert undone == ["inject-2", "inject"]


def test_a_custom_resource_about_the_node_is_a_sign(scene: Callable[..., Scene]) -> None:
    """A pod plays the custom resource: its node's name is at a dotted path as well."""
    where = {"api_version": "v1", "plural": "pods", "node": "spec.nodeName"}
    stage = scene({"repair_begun": {"within": "20s", "signs": [{"resource": where}]}})
    for name, node in ((unique("other"), "another-node"), (unique("ours"), stage.node)):
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "busybox:1"}]}
        body = {"metadata": {"name": name}, "spec": spec}
        stage.world.core.create_namespaced_pod(NAMESPACE, body, field_manager="foreign-janitor")
    seen = stage.reach(RepairHop.REPAIR_BEGUN)
    assert seen.by == "foreign-janitor"
    assert seen.source == f"watch of pods: Pod {name}"


def test_a_resource_that_the_run_may_not_watch_is_noted(scene: Callable[..., Scene]) -> None:
    where = {"api_version": "example.com/v1", "plural": "reboots", "node": "spec.nodeName"}
    stage = scene({"repair_begun": {"within": "20s", "signs": [{"resource": where}]}})
    (unwatched,) = stage.run.history().of(SignalUnwatched)
    assert (unwatched.node, unwatched.signal) == (stage.node, "custom resources")
    assert unwatched.why.startswith("reboots.example.com/v1: ")


def test_a_node_that_never_was_away_is_ready_and_in_service_after_its_repair(scene: Callable[..., Scene]) -> None:
    """As after a reset of one GPU of a node that nobody quarantined: only an Event shows it."""
    done = {"event": {"reason": "GpuReset"}, "kind": "gpu-reset"}
    stage = scene({"repaired": {"within": "20s", "signs": [done]}, "ready": CHAIN["ready"], "returned": CHAIN["ready"]})
    stage.event("GpuReset")
    assert stage.reach(RepairHop.REPAIRED).repair is RepairKind.GPU_RESET
    assert stage.end().in_service
    assert stage.hops()[RepairHop.READY].took_s == 0


def test_a_cluster_that_is_faster_than_the_injectors_report_is_timed_from_the_fault(
    scene: Callable[..., Scene],
) -> None:
    stage = scene({"repair_begun": {"within": "20s", "signs": [{"event": {"reason": "NodeDraining"}}]}}, begins=False)
    fault_at = stage.world.clock.now()
    stage.event("NodeDraining")
    found = stage.run.wait("the Event", PATIENCE, lambda: stage.repair.watch.has_begun or None)
    assert found
    stage.repair.begin(fault_at)
    assert stage.reach(RepairHop.REPAIR_BEGUN).since == "fault written"


def test_an_actor_that_shows_later_is_noted_with_the_hop(scene: Callable[..., Scene]) -> None:
    hops = {"repaired": {"within": "20s", "signs": [{"event": {"reason": "NodeRepairDone"}, "kind": "reboot"}]}}
    stage = scene(hops | {"validated": CHAIN["validated"]})
    stage.reboot()
    assert stage.reach(RepairHop.REPAIRED).by == "unknown"
    stage.event("NodeRepairDone", "foreign-repairer")
    named = stage.run.wait("the actor", PATIENCE, lambda: stage.hops()[RepairHop.REPAIRED].by != "unknown" or None)
    assert named
    assert stage.hops()[RepairHop.REPAIRED].by == "foreign-repairer"


def test_work_that_stays_does_not_end_the_wait_for_the_repair(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = scene(
        {**CHAIN, "work_moved": {"within": "200ms"}, "repair_begun": BEGUN | {"within": "300ms"}}, begins=False
    )
    monkeypatch.setattr(stage.repair.watch, "_work_has_moved", lambda: False)
    stage.repair.begin(stage.world.clock.now())
    stage.quarantine()
    end = stage.end()
    assert (end.missed, end.stopped_at) == ((RepairHop.WORK_MOVED,), RepairHop.REPAIR_BEGUN)
    assert set(stage.hops()) == {RepairHop.QUARANTINED}


@pytest.mark.parametrize("newer", [True, False])
def test_only_nodes_that_are_newer_than_the_fault_are_kept_of_a_pool(
    world: ScriptedWorld, runner: Kubernetes, newer: bool
) -> None:
    pool = {POOL: unique("pool")}
    node = world.add_node(labels=pool)
    hour = timedelta(hours=1)
    watch = PoolWatch(runner, pool, world.clock.now() + (-hour if newer else hour))
    try:
        watch._follower.require_synced()
        assert [found.metadata.name for found in watch.candidates()] == ([node] if newer else [])
        assert (watch._follower.objects() == [None]) is not newer
    finally:
        watch.stop()
