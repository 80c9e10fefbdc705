"""A quarantined node on an embedded API server, agents that answer as a test asks, and work on its episode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.agent.task import GpuPodsNote
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import EPISODE_LABEL, ROLE_LABEL
from gameday.cluster.watch import Follower
from gameday.values.results import Cleanliness
from gameday.xid.catalogue import Remedy
from gameday.xid.lines import Kind
from gameday_health.episodes import DEFAULT_TAINT, transitions
from gameday_health.episodes.acts import carry_out
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.model import Episode, State
from gameday_health.episodes.node import STATE_LABEL
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.episodes.store import EpisodeStore
from gameday_health.episodes.work import EpisodeWork, Settings
from gameday_health.model import REASON, Fault, LogProgress, Taint, write_reason
from tests.support.world import NAMESPACE, World, termination_message

PCI = "0000:4e:00"
OURS = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
QUICK: dict[str, Any] = {
    "ladder": [
        {"repair": "gpu-reset", "within": "10s"},
        {"repair": "driver-restart", "within": "10s"},
        {"repair": "reboot", "limit": 2, "within": "10s"},
    ],
    "drain": {"within": "10s"},
    "qa": {"within": "10s", "length": "0s", "burn_in": None},
}


def reason(*faults: Fault, boot: str = "b1") -> str:
    """Return the node-health controller's annotation."""
    return write_reason(list(faults), LogProgress(boot=boot), "catalogue", boot, datetime.now(UTC))


def xid(code: int = 95, remedy: Remedy = Remedy.GPU_RESET) -> Fault:
    return Fault(kind=Kind.XID, code=code, pci=PCI, at=datetime.now(UTC), remedy=remedy)


class Agents:
    """A kubelet that ends every agent's pod of an episode, as `answers` has it.

    A role maps to its error, empty for success, or to a list of them, one for each pod. `None` lets the pod run on.
    A reboot gives the node another bootID.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.answers: dict[str, Any] = {}
        self.made: list[tuple[str, str, str]] = []
        """Role, action and uid of each pod, in order."""
        self.before: dict[str, Callable[[], object]] = {}
        """Called before the first pod of a role is answered."""
        self._ended: set[str] = set()
        self._follower = Follower(
            world.core.list_namespaced_pod, self._event, namespace=NAMESPACE, label_selector=EPISODE_LABEL
        )

    def __enter__(self) -> Self:
        self._follower.__enter__()
        assert self._follower.wait_synced(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.stop()

    def actions(self) -> list[str]:
        return [action for role, action, _ in self.made if role == "remediate"]

    def _event(self, kind: str, pod: Any) -> None:
        name, uid, role = pod.metadata.name, pod.metadata.uid, pod.metadata.labels[ROLE_LABEL]
        if kind == "DELETED":
            return
        if uid not in self._ended:
            self._ended.add(uid)
            task = json.loads(pod.spec.containers[0].env[0].value)
            self.made.append((role, task.get("action", ""), uid))
            if call := self.before.pop(role, None):
                call()
            self._answer(pod, role, task)
        if pod.metadata.deletion_timestamp is not None:
            with suppress(ApiException):
                self._world.remove_pod(name)

    def _answer(self, pod: Any, role: str, task: dict[str, Any]) -> None:
        answer = self.answers.get(role, "")
        if isinstance(answer, list):
            answer = answer.pop(0)
        if answer is None:
            return
        with suppress(ApiException):
            message = termination_message(Cleanliness.CLEAN, "done", role=role, error=answer)
            self._world.report(pod.metadata.name, message)
            if task.get("action") == "reboot" and not answer:
                boot(self._world, task["node"], f"boot-of-{pod.metadata.uid[:8]}")


def boot(world: World, node: str, boot_id: str) -> None:
    """Give the node another bootID, as a reboot does."""
    world.core.patch_node_status(node, {"status": {"nodeInfo": node_info(boot_id)}})


def node_info(boot_id: str) -> dict[str, str]:
    fields = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion")
    others = dict.fromkeys((*fields, "machineID", "operatingSystem", "osImage", "systemUUID"), "x")
    return {**others, "bootID": boot_id}


@pytest.fixture
def agents(world: World) -> Iterator[Agents]:
    with Agents(world) as running:
        yield running


@pytest.fixture
def kubernetes(world: World) -> Iterator[Kubernetes]:
    with world.connected("gameday-repair") as connected:
        yield connected


class Ward:
    """A quarantined node and its episode."""

    def __init__(self, world: World, kubernetes: Kubernetes) -> None:
        self.world = world
        self.kubernetes = kubernetes
        self.api = RepairApi(kubernetes)
        self.store = EpisodeStore(self.api)
        self.node = ""

    def settings(self, claim_s: float = 15, **policy: Any) -> Settings:
        rules = RepairPolicy.model_validate({**QUICK, **policy})
        profile = self.world.profile(self.world.kubeconfig("gameday-repair"))
        return Settings(profile, rules, Taint.parse(DEFAULT_TAINT), timedelta(seconds=claim_s))

    def quarantine(self, *faults: Fault, **node: Any) -> str:
        """Add a quarantined node; return its name."""
        taints = [OURS, *node.pop("taints", [])]
        annotations = {REASON: reason(*(faults or (xid(),)))}
        self.node = self.world.add_node(taints=taints, annotations=annotations, **node)
        boot(self.world, self.node, "b1")
        return self.node

    def open(self) -> Episode:
        """Open the node's episode, as the repairer does."""
        found = self.api.node(self.node)
        assert found
        seen = self.settings().seen(found)
        last = self.store.read(self.node)
        episode = transitions.open_episode(seen, last.episode if last else None, datetime.now(UTC))
        return self.store.write(episode, last.version if last else None, evidence="").episode

    def work(self, claim_s: float = 15, cancelled: Callable[[], str] = lambda: "", **policy: Any) -> EpisodeWork:
        return EpisodeWork(self.settings(claim_s, **policy), self.node, cancelled)

    def work_off(self, **policy: Any) -> Episode:
        """Work the open episode off; return its record."""
        with self.work(**policy) as work:
            finish(work)
        return self.episode

    @property
    def episode(self) -> Episode:
        found = self.store.read(self.node)
        assert found
        return found.episode

    def refault(self, *faults: Fault) -> None:
        """Write the reason anew, as the node-health controller does at a new fault."""
        self.world.core.patch_node(self.node, {"metadata": {"annotations": {REASON: reason(*faults)}}})

    def taint_keys(self) -> list[str]:
        return [key for key, _, _ in self.world.taints(self.node)]

    def label(self) -> str | None:
        labels: dict[str, str] = self.world.core.read_node(self.node).metadata.labels
        return labels.get(STATE_LABEL)

    def event_reasons(self) -> list[str]:
        found = self.world.core.list_namespaced_event("default").items
        mine = [one for one in found if one.involved_object.name == self.node]
        return [one.reason for one in sorted(mine, key=lambda one: int(one.metadata.resource_version))]


def finish(work: EpisodeWork) -> State:
    while (step := work.next_step()) is not None:
        carry_out(work, step)
    return work.episode.state


@pytest.fixture
def ward(world: World, kubernetes: Kubernetes) -> Ward:
    return Ward(world, kubernetes)


def gpu_pod(ward: Ward, name: str, *, owner: dict[str, object] | None = None) -> str:
    """Add a pod with a GPU, which goes at once when it is evicted; return its uid."""
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    metadata = {"name": name, "labels": {"app": name}, "ownerReferences": [owner] if owner else []}
    containers = [{"name": "main", "image": "i", "resources": limits}]
    spec = {"nodeName": ward.node, "terminationGracePeriodSeconds": 0, "containers": containers}
    uid: str = ward.world.core.create_namespaced_pod("default", {"metadata": metadata, "spec": spec}).metadata.uid
    return uid


def others(ward: Ward) -> list[str]:
    return [pod.metadata.name for pod in ward.world.core.list_namespaced_pod("default").items]


@pytest.fixture
def pods_of_others(ward: Ward) -> Iterator[Callable[[], None]]:
    """A call that takes others' pods and budgets away, which comes after the test in any case."""
    yield lambda: _remove_others(ward)
    _remove_others(ward)


def _remove_others(ward: Ward) -> None:
    for pod in ward.world.core.list_namespaced_pod("default").items:
        ward.world.core.delete_namespaced_pod(pod.metadata.name, "default", grace_period_seconds=0)
    for budget in ward.world.policy.list_namespaced_pod_disruption_budget("default").items:
        ward.world.policy.delete_namespaced_pod_disruption_budget(budget.metadata.name, "default")


@pytest.fixture
def agents_log(monkeypatch: pytest.MonkeyPatch) -> list[GpuPodsNote]:
    """The notes in every agent's log, which a test may add to."""
    notes: list[GpuPodsNote] = []

    def log(*_: object) -> str:
        return "\n".join(note.model_dump_json() for note in notes)

    monkeypatch.setattr(Kubernetes, "pod_log", log)
    return notes


PARTLY = {"scope": "faulty-gpu", "within": "10s"}


def two_pods(ward: Ward, notes: list[GpuPodsNote]) -> None:
    """Two pods at work, one of them on the faulty GPU."""
    notes.append(GpuPodsNote(gpu=0, pci=PCI, pods=(gpu_pod(ward, "victim"),)))
    notes.append(GpuPodsNote(gpu=1, pci="0000:8f:00", pods=(gpu_pod(ward, "other"),)))
