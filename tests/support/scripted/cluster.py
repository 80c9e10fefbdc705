"""One cluster, put together: what the adapters of a game-day ask, and what its script lets happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl, urlsplit

import orjson
from pydantic import SecretStr

from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import GPU_COUNT_LABEL, GPU_RESOURCE
from gameday.cluster.profile import ClusterProfile, Endpoint
from gameday.cluster.watch import Follower
from gameday.plan.load import LoadedPlan
from gameday.run.run import Run
from gameday.run.servers import Servers
from kubesim.clock import rfc3339
from tests.support.runs import close_run, unopened_run
from tests.support.scripted.agents import GPUS
from tests.support.scripted.api_server import NAMESPACE, Answer, InMemoryApiServer, StoredState
from tests.support.scripted.detector import Detector
from tests.support.scripted.following import ScriptedFollower, Watches, is_watch
from tests.support.scripted.happenings import Happening, Happenings
from tests.support.scripted.observability import ScriptedAlertmanager, ScriptedLoki, ScriptedPrometheus
from tests.support.scripted.pods import Life, Pods
from tests.support.scripted.script import Script
from tests.support.scripted.wire import Killed, OnRequest, Request, Wire
from tests.support.scripted.world import World
from tests.support.virtual_clock import VirtualClock

Json = dict[str, Any]
_HOST = "http://scripted.invalid"
_NO_LOG = {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "pods not found", "code": 404}
# What a look can find is something that happens, and is seen when it does; only a limit of time is seen so late.
_COARSE_S = 30.0
_THERE_ANYWAY = ("kube-root-ca.crt", "gameday-health")
OPT_IN = {"gameday.dev/opt-in": "true"}


@dataclass(frozen=True)
class Snapshot:
    """A cluster at one moment, with all that is still to happen in it by itself."""

    at: datetime
    began: datetime
    """The time from which its script counts when servers are away."""
    script: Script
    objects: StoredState | None
    """None for those of deploy/rbac alone."""
    world: World
    lives: dict[str, Life]
    due: tuple[Happening, ...]


class ScriptedCluster:
    """A cluster on a virtual clock. Nothing in it waits for real time, and nothing runs beside the test's thread."""

    def __init__(self, script: Script, clock: VirtualClock | None = None, *, nodes: int = 2) -> None:
        """Begin with healthy nodes, each with a training pod on two of its GPUs."""
        clock = clock or VirtualClock(coarse_s=_COARSE_S)
        self._set_up(replace(_healthy(nodes), at=clock.now(), began=clock.now(), script=script), clock)
        for one in script.away:
            if one.server == "kubernetes":
                self._happenings.after(one.since_s, self._watches.break_all)
        self._pods.begin_steps()

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> ScriptedCluster:
        """Return a cluster of its own that goes on from a snapshot, at the same time of day."""
        cluster = cls.__new__(cls)
        cluster._set_up(snapshot, VirtualClock(snapshot.at, _COARSE_S))
        return cluster

    def _set_up(self, start: Snapshot, clock: VirtualClock) -> None:
        self.script, self.clock = start.script, clock
        self._began, self._start, self._start_s = start.began, clock.now(), clock.monotonic()
        script, world = start.script, start.world.copy()
        self.world = world
        self.server = InMemoryApiServer(self.now, start.objects)
        self._happenings = Happenings(clock)
        self.detector = Detector(script, world, self.server, self._happenings, self.now)
        self._pods = Pods(script, world, self.server, self._happenings, self.detector, self.now)
        self._pods.lives.update(start.lives)
        self._watches = Watches(self.server)
        self._happenings.act(self._watches.break_all)
        self._happenings.restore(start.due)
        self.unscripted: list[str] = []
        self.on_request: OnRequest | None = None
        """Decides about every request of a client of this cluster."""
        self.is_dead = False
        """True once the process that plays the game-day was killed."""

    def now(self) -> datetime:
        """Return the cluster's own time, which no jump of the run's wall clock changes."""
        return self._start + timedelta(seconds=self.clock.monotonic() - self._start_s)

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now; this takes some microseconds."""
        lives, due = dict(self._pods.lives), self._happenings.snapshot()
        return Snapshot(self.now(), self._began, self.script, self.server.snapshot(), self.world.copy(), lives, due)

    @property
    def faults_in(self) -> set[tuple[str, str]]:
        """Node and injector's pod of every fault that is in."""
        return self.world.faults_in

    def leave_pods_alone(self) -> None:
        """Let no scheduler, job controller or kubelet do anything from now on."""
        self.server.store.observers.remove(self._pods.changed)

    def kill(self) -> NoReturn:
        """End the process that plays the game-day here and now: whatever it still tries raises the same again."""
        self.is_dead = True
        raise Killed

    # The state of the cluster

    def add_node(self, name: str, *, labels: dict[str, str] | None = None) -> None:
        """Add a healthy GPU node that has opted in, and a training pod on it."""
        ask = self.server.administrator
        of_node = {**OPT_IN, "nvidia.com/gpu.present": "true", GPU_COUNT_LABEL: str(GPUS), **(labels or {})}
        ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": of_node}})
        ask("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        room = {"cpu": "190", "memory": "2080374784Ki", "pods": "110", GPU_RESOURCE: str(GPUS)}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": rfc3339(self.now())}
        status = {"capacity": room, "allocatable": room, "conditions": [ready], "nodeInfo": _node_info(name)}
        ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        self.add_pod(f"train-{name}", node=name, gpus=2)

    def add_pod(self, name: str, *, node: str, gpus: int = 0, namespace: str = "training") -> None:
        """Add a pod of somebody's work."""
        limits = {"limits": {GPU_RESOURCE: str(gpus)}} if gpus else {}
        container = {"name": "main", "image": "train", "resources": limits}
        body = {
            "metadata": {"name": name, "labels": {"app": "train"}},
            "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 2},
        }
        self.server.administrator("POST", f"/api/v1/namespaces/{namespace}/pods", body)

    def evict(self, pod: str, namespace: str = "training") -> None:
        """Evict a pod, as a drain does."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        self.server.administrator("POST", path, {"metadata": {"name": pod, "namespace": namespace}})

    def finish(self, pod: str, namespace: str = "training") -> None:
        """Let a pod end by itself, and its owner take it away."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._pods.end(self.server.administrator("GET", path)["metadata"]["uid"], "Succeeded", "", "")
        self.server.administrator("DELETE", path)

    def print(self, pod: str, *lines: str, namespace: str = NAMESPACE) -> None:
        """Let a pod print lines into its log."""
        uid = self.server.administrator("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")["metadata"]["uid"]
        self.world.printed[uid] = (*self.world.printed.get(uid, ()), *lines)

    def remove_node(self, name: str) -> None:
        """Take a node away with whatever is on it, as a cloud does."""
        self.server.administrator("DELETE", f"/api/v1/nodes/{name}")

    def taints(self, node: str) -> list[tuple[str, str, str]]:
        """Return a node's taints."""
        spec = self.server.administrator("GET", f"/api/v1/nodes/{node}")["spec"]
        return [(one["key"], one.get("value", ""), one["effect"]) for one in spec.get("taints") or ()]

    def left(self) -> list[str]:
        """Return what game-days have left in the cluster: faults, objects of ours, and nodes out of service."""
        found = [f"fault of {pod} on {node}" for node, pod in sorted(self.faults_in)]
        for kind in ("pods", "configmaps", "leases.coordination.k8s.io", "jobs.batch"):
            names = [one.name for one in self.server.store[kind].all(NAMESPACE)]
            found += [f"{kind}/{name}" for name in names if name not in _THERE_ANYWAY]
        for node in self.server.store["nodes"].all():
            spec = node.obj["spec"]
            if spec.get("taints") or spec.get("unschedulable"):
                found.append(f"{node.name} out of service")
        return found

    # The adapters

    def profile(self, account: str = "gameday-runner", **settings: Any) -> ClusterProfile:
        """Return the profile of this cluster for one of the accounts of deploy/rbac; `settings` are not checked."""
        return _profile(account).model_copy(update=settings)

    @contextmanager
    def run(self, loaded: LoadedPlan, folder: Path, **settings: Any) -> Iterator[Run]:
        """Yield a run on this cluster with real parts of which none is started; `settings` are its profile's."""
        run = unopened_run(
            folder, "scripted-run", loaded, self.profile(**settings), clock=self.clock, connect=self.connect
        )
        try:
            yield run
        finally:
            close_run(run)

    def connect(self, profile: ClusterProfile, clock: Clock) -> Servers:
        """Return the adapters of a run, in place of `Servers`."""
        assert clock is self.clock, "a scripted cluster and its run live by one clock"
        return _ScriptedServers(self, profile)

    def kubernetes(self, account: str = "gameday-runner", **settings: Any) -> Kubernetes:
        """Return the adapter of the API server alone, such as the reaper's."""
        return ScriptedKubernetes(self, self.profile(account, **settings))

    def is_away(self, server: str, at: datetime | None = None) -> bool:
        """Return True if a server of the cluster does not answer at a time; None: now."""
        seconds = ((at or self.now()) - self._began).total_seconds()
        return any(one.server == server and one.since_s <= seconds < one.until_s for one in self.script.away)

    def follower(self, *question: Any, **selection: Any) -> Follower:
        """Return a watch that is fed by the clock."""
        return ScriptedFollower(self._watches, lambda: self.script.latency_s, self.clock, *question, **selection)

    def serve(self, request: Request) -> Answer:
        """Answer a request that came over the wire."""
        if self.is_dead:
            raise Killed
        parts = urlsplit(request.url)
        if parts.path.endswith("/log") and request.method == "GET":
            return self._log(parts.path, dict(parse_qsl(parts.query)))
        if is_watch(request):
            return self._watches.open(request)
        return self.server.ask(request.method, request.url, request.headers, request.body)

    def _log(self, path: str, query: Mapping[str, str]) -> Answer:
        *_, namespace, _, pod, _ = path.split("/")
        stored = self.server.store.get("pods", namespace, pod)
        if stored is None:
            return Answer(404, orjson.dumps(_NO_LOG), {"Content-Type": "application/json"})
        printed = self._pods.printed(stored.obj["metadata"]["uid"]).encode()
        most = int(query.get("limitBytes", len(printed)))
        return Answer(200, printed[:most], {"Content-Type": "text/plain"})


class ScriptedKubernetes(Kubernetes):
    """The product's own adapter, over a wire in memory."""

    def __init__(self, cluster: ScriptedCluster, profile: ClusterProfile) -> None:
        super().__init__(profile, clock=cluster.clock)
        self._cluster = cluster
        # It reads the token anew and goes through the whole environment for proxies, for every request.
        self.api.configuration.refresh_api_key_hook = None
        wire = Wire(cluster.clock, cluster.serve, lambda: cluster.is_away("kubernetes"), lambda: cluster.on_request)
        wire.connect(self)

    def follow(
        self,
        list_call: Callable[..., Any],
        on_change: Callable[[str, Any], None] | None = None,
        decode: Callable[[Json], Any] | None = None,
        /,
        **selection: Any,
    ) -> Follower:
        return self._cluster.follower(list_call, on_change, decode, **selection)


class _ScriptedServers(Servers):
    """The product's adapters over servers in memory."""

    def __init__(self, cluster: ScriptedCluster, profile: ClusterProfile) -> None:
        world, script = cluster.world, cluster.script
        self.kubernetes = ScriptedKubernetes(cluster, profile)
        self.prometheus = ScriptedPrometheus(profile, script, world, cluster.now,
                                             lambda at: cluster.is_away("prometheus", at))  # fmt: skip
        self.prometheus.unscripted = cluster.unscripted
        self.alertmanager = ScriptedAlertmanager(profile, world, lambda: cluster.is_away("alertmanager"))
        self.loki = ScriptedLoki(profile, world, cluster.detector, lambda: cluster.is_away("loki"))


@cache
def _healthy(nodes: int) -> Snapshot:
    """Return a cluster of so many nodes whose pods all run."""
    start = VirtualClock().now()
    cluster = ScriptedCluster.from_snapshot(Snapshot(start, start, Script(), None, World(), {}, ()))
    for number in range(nodes):
        cluster.add_node(f"gpu-node-{number + 1}")
    cluster.clock.sleep(1.0)
    return cluster.snapshot()


@cache
def _profile(account: str) -> ClusterProfile:
    return ClusterProfile(
        name="scripted",
        kubeconfig_content=SecretStr(_kubeconfig(account)),
        prometheus=Endpoint(url="http://prometheus.invalid"),
        alertmanager=Endpoint(url="http://alertmanager.invalid"),
        loki=Endpoint(url="http://loki.invalid"),
    )


def _kubeconfig(account: str) -> str:
    return (
        f'{{"current-context":"x","clusters":[{{"name":"x","cluster":{{"server":"{_HOST}"}}}}],'
        f'"contexts":[{{"name":"x","context":{{"cluster":"x","user":"x"}}}}],'
        f'"users":[{{"name":"x","user":{{"token":"{account}"}}}}]}}'
    )


def _node_info(name: str) -> Json:
    fields = ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
              "kubeProxyVersion", "operatingSystem", "architecture")  # fmt: skip
    return {**dict.fromkeys(fields, "scripted"), "bootID": f"boot-of-{name}"}
