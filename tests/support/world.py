"""An embedded API server under the RBAC of a real cluster, and a kubelet that reports as its test asks."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from gameday.agent.task import AgentResult
from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.manifests import ROLE_LABEL, RUN_LABEL
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from gameday.run.servers import Servers
from gameday.values.results import Cleanliness
from gameday_rehearsal.seed import seeding

NAMESPACE = "gameday"
_NODE_PREFIX = "node"
OPT_IN = {"gameday.dev/opt-in": "true"}
# Longer than anything here takes, shorter than pytest's own limit: a wait that fails says so itself.
PATIENCE_S = 120.0


class Process:
    """A program of the rehearsal, from its ready line to its end."""

    def __init__(self, module: str, *arguments: str) -> None:
        argv = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{module} ended before it was ready"
        self.ready: dict[str, Any] = json.loads(line)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


class Administrator(ABC):
    """What an administrator, a kubelet or a foreign controller does in a cluster, by the official client."""

    clock: Clock
    """The time that runs on this cluster live by."""

    def __init__(self, api: client.ApiClient) -> None:
        self.core = client.CoreV1Api(api)
        self.batch = client.BatchV1Api(api)
        self.policy = client.PolicyV1Api(api)
        self.coordination = client.CoordinationV1Api(api)

    @abstractmethod
    def profile_of(self, account: str) -> ClusterProfile:
        """Return the profile of one of the accounts of deploy/rbac, of no servers for observability."""

    @abstractmethod
    def connect(self, profile: ClusterProfile, clock: Clock) -> Servers:
        """Return the adapters of a run."""

    @abstractmethod
    def follow(
        self, list_call: Callable[..., Any], on_change: Callable[[str, Any], None], **selection: Any
    ) -> Follower:
        """Return a watch."""

    @contextmanager
    def connected(self, account: str) -> Iterator[Kubernetes]:
        servers = self.connect(self.profile_of(account), self.clock)
        try:
            yield servers.kubernetes
        finally:
            servers.close()

    def add_node(
        self,
        *,
        labels: dict[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
        unschedulable: bool = False,
        ready: str = "True",
        annotations: dict[str, str] | None = None,
        offers: dict[str, str] | None = None,
    ) -> str:
        """Add a node of eight GPUs, or of what it `offers`; return its name, which no other has."""
        name = unique(_NODE_PREFIX)
        metadata = {"name": name, "labels": {**OPT_IN, **(labels or {})}, "annotations": annotations or {}}
        self.core.create_node({"metadata": metadata, "spec": {}})
        # Admission gives a new node the not-ready taint.
        self.core.patch_node(name, {"spec": {"taints": taints or None, "unschedulable": unschedulable or None}})
        status = {"allocatable": offers or {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": ready}]}
        self.core.patch_node_status(name, {"status": status})
        return name

    def taint(self, node: str, *taints: dict[str, str]) -> None:
        """Set the node's whole list."""
        self.core.patch_node(node, {"spec": {"taints": list(taints)}})

    def taints(self, node: str) -> list[tuple[str, str, str]]:
        return [(t.key, t.value or "", t.effect) for t in self.core.read_node(node).spec.taints or []]

    def add_pod(self, name: str, run: str, node: str | None = None, role: str = "test", gpus: int = 0) -> str:
        """Add a pod of a run; return its uid."""
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        container = {"name": "main", "image": "busybox:1", "resources": {"limits": limits}}
        pod = {
            "metadata": {"name": name, "labels": {RUN_LABEL: run, ROLE_LABEL: role}},
            "spec": {"nodeName": node, "containers": [container]},
        }
        uid: str = self.core.create_namespaced_pod(NAMESPACE, pod).metadata.uid
        return uid

    def add_job(self, name: str, run: str, node: str) -> None:
        """Add a job and the pod that its controller would make for it."""
        labels = {RUN_LABEL: run, ROLE_LABEL: name}
        containers = [{"name": "main", "image": "busybox:1"}]
        template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": containers}}
        job = self.batch.create_namespaced_job(NAMESPACE, {"metadata": {"name": name}, "spec": {"template": template}})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.metadata.uid, "controller": True}
        metadata = {"name": f"{name}-pod", "labels": labels, "ownerReferences": [owner]}
        pod = {"metadata": metadata, "spec": {"nodeName": node, "containers": containers}}
        self.core.create_namespaced_pod(NAMESPACE, pod)

    def report(self, pod: str, message: str | None, phase: str = "Succeeded", reason: str | None = None) -> None:
        """Write the status of a pod that has ended, as a kubelet does."""
        ended = {"exitCode": 0, "message": message}
        container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        statuses = [{**container, "state": {"terminated": ended}}] if message is not None else []
        status = {"phase": phase, "reason": reason, "containerStatuses": statuses}
        self.core.patch_namespaced_pod_status(pod, NAMESPACE, {"status": status})

    def remove_pod(self, name: str) -> None:
        self.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)

    def pods(self, run: str) -> list[str]:
        found = self.core.list_namespaced_pod(NAMESPACE, label_selector=f"{RUN_LABEL}={run}").items
        return [pod.metadata.name for pod in found]

    def ledgers(self) -> list[str]:
        found = self.core.list_namespaced_config_map(NAMESPACE, label_selector="gameday.dev/ledger=true").items
        return [one.metadata.name for one in found]

    def holders(self) -> dict[str, str]:
        leases = self.coordination.list_namespaced_lease(NAMESPACE).items
        return {lease.metadata.name: lease.spec.holder_identity for lease in leases}


class World(Administrator):
    """The server, an administrator's clients, and adapters with the runner's and the reaper's own rights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = self._serve(0)
        self.url: str = self._server.ready["url"]
        self.admin_kubeconfig = folder / "api" / "admin.kubeconfig"
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            for account in ("gameday-runner", "gameday-reaper", "gameday-repair"):
                seeder.service_account_kubeconfig(account, self.kubeconfig(account))
        api = config.new_client_from_config(str(self.admin_kubeconfig))
        super().__init__(api)
        self.clock = Clock()
        nowhere: Any = {"url": "http://127.0.0.1:9"}
        self._profile = ClusterProfile(name="test", prometheus=nowhere, alertmanager=nowhere, loki=nowhere)
        self._cleared = self._revision()

    def _revision(self) -> str:
        """Return the number of the server's last write."""
        revision: str = self.core.list_namespaced_secret(NAMESPACE, limit=1).metadata.resource_version
        return revision

    def _serve(self, port: int) -> Process:
        data = str(self.folder / "api")
        return Process("kubesim.apiserver", "--data-dir", data, "--port", str(port))

    def restart(self) -> None:
        self.end()
        self._server = self._serve(int(self.url.rpartition(":")[2]))

    def end(self) -> None:
        self._server.end()

    def kubeconfig(self, account: str) -> Path:
        return self.folder / f"{account}.kubeconfig"

    def profile(self, kubeconfig: Path) -> ClusterProfile:
        """Return a profile without servers for observability: a request to one is refused immediately."""
        return self._profile.model_copy(update={"kubeconfig": kubeconfig})

    def profile_of(self, account: str) -> ClusterProfile:
        return self.profile(self.kubeconfig(account))

    def connect(self, profile: ClusterProfile, clock: Clock) -> Servers:
        return Servers(profile, clock)

    def follow(
        self, list_call: Callable[..., Any], on_change: Callable[[str, Any], None], **selection: Any
    ) -> Follower:
        return Follower(list_call, on_change, **selection)

    def clear(self) -> None:
        """Leave nothing of ours to the next test; most tests have written nothing."""
        if self._revision() == self._cleared:
            return
        for job in self.batch.list_namespaced_job(NAMESPACE).items:
            self.batch.delete_namespaced_job(job.metadata.name, NAMESPACE, propagation_policy="Orphan")
        for pod in self.core.list_namespaced_pod(NAMESPACE).items:
            with _gone_is_fine():
                self.remove_pod(pod.metadata.name)
        for name in self.ledgers():
            self.core.delete_namespaced_config_map(name, NAMESPACE)
        for found in self.core.list_namespaced_config_map(NAMESPACE, label_selector="gameday.dev/episode=true").items:
            self.core.delete_namespaced_config_map(found.metadata.name, NAMESPACE)
        for name in self.holders():
            self.coordination.delete_namespaced_lease(name, NAMESPACE)
        # Only those of `add_node`: a module may have a virtual node for all of its tests.
        for node in self.core.list_node().items:
            if node.metadata.name.startswith(f"{_NODE_PREFIX}-"):
                self.core.delete_node(node.metadata.name)
        self._cleared = self._revision()


@contextmanager
def plain_adapter(folder: Path, url: str) -> Iterator[Kubernetes]:
    """Yield an adapter for a server without TLS, and without servers for observability."""
    path = folder / "kubeconfig"
    entry = {"name": "x", "cluster": {"server": url}, "context": {"cluster": "x", "user": "x"}, "user": {"token": "t"}}
    path.write_text(json.dumps({"current-context": "x", "clusters": [entry], "contexts": [entry], "users": [entry]}))
    nowhere: Any = {"url": "http://127.0.0.1:1"}
    found = Kubernetes(ClusterProfile(kubeconfig=path, prometheus=nowhere, alertmanager=nowhere, loki=nowhere))
    try:
        yield found
    finally:
        found.close()


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def termination_message(cleanliness: Cleanliness, *evidence: str, role: str = "inject", error: str = "") -> str:
    """Return an agent's termination message."""
    result = AgentResult(role=role, ok=not error, cleanliness=cleanliness, evidence=evidence, error=error)
    return result.model_dump_json()


class Kubelet:
    """A kubelet that ends the pods of a run: those that are deleted, and immediately those of the role `undo`.

    `messages` maps a pod's role to the termination message it leaves; None leaves none.
    """

    def __init__(self, world: Administrator, run: str, messages: dict[str, str | None]) -> None:
        self._world = world
        self._messages = messages
        self.ended: list[str] = []
        self._follower = world.follow(
            world.core.list_namespaced_pod, self._event, namespace=NAMESPACE, label_selector=f"{RUN_LABEL}={run}"
        )

    def __enter__(self) -> Self:
        self._follower.__enter__()
        assert self._follower.wait_synced(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.stop()

    def _event(self, kind: str, pod: Any) -> None:
        name, role = pod.metadata.name, pod.metadata.labels[ROLE_LABEL]
        deleted, running = pod.metadata.deletion_timestamp is not None, name not in self.ended
        if kind != "DELETED" and running and (deleted or role == "undo"):
            self.ended.append(name)
            with _gone_is_fine():
                self._world.report(name, self._messages.get(role))
        if kind != "DELETED" and deleted:
            with _gone_is_fine():
                self._world.remove_pod(name)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        if error.status != 404:
            raise


def until(follower: Follower, condition: Callable[[], bool]) -> bool:
    """Wait until a follower's changes make the condition true; return False when the time is up."""
    with follower.changed:
        return follower.changed.wait_for(condition, PATIENCE_S)
