"""Look at a cluster, read only: its GPU nodes, detectors, rules, and what this account may not see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.detectors.load import known_detectors, read_detector
from gameday.detectors.models import DetectorProfile
from gameday.errors import AdapterError, KubernetesError, RefusedError
from gameday.ledger.lease import CLUSTER_LEASE
from gameday.values.nodes import VIRTUAL_PROVIDER
from gameday_prove.images import image_with_shell
from gameday_prove.monitoring import find_alertmanager, find_prometheus
from gameday_prove.recognise import Found, recognised
from gameday_prove.values import Monitoring, NodeFound, Surroundings, Unseen, Workload

MOST_REQUESTS = 30
_PAGE = 500
"""Objects in one answer; of a longer list the first page is enough to choose a node."""
_GPU_NODES = "nvidia.com/gpu.present=true"
_MOST_CONFIG_MAPS = 6
_FORBIDDEN = (401, 403)
_ORDINARY = (GPU_RESOURCE, "sku")
"""Keys of taints that keep other work off healthy GPU nodes; `sku` is AKS'."""


def profiles() -> list[DetectorProfile]:
    """Return every detector profile that is installed."""
    return [read_detector(path) for path in known_detectors().values()]


class Look:
    """A look: each question costs one request, and a refusal is noted and not raised."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._unseen: list[Unseen] = []

    def around(self, node: str | None, image: str, detectors: Sequence[str]) -> Surroundings:
        """Return everything that can be seen.

        Args:
            node: The node to play on; None: choose one.
            image: The image to play with; empty: one that the node has.
            detectors: Names of detectors that are there, although they cannot be seen.

        Raises:
            RefusedError: There is no GPU node, or none that is fit.
            KubernetesError: The API server cannot be asked at all.
        """
        identity = self._version()
        nodes = self._nodes()
        found = [_node_found(one) for one in nodes]
        chosen = _chosen(nodes, found, node)
        name = chosen["metadata"]["name"]
        workloads = [*self._workloads("daemonsets", "DaemonSet"), *self._workloads("deployments", "Deployment")]
        pods = self._list("pods on the node", "/api/v1/pods", "pods", fieldSelector=f"spec.nodeName={name}")
        here = Found(
            workloads=tuple(workloads),
            labels=chosen["metadata"].get("labels") or {},
            conditions=frozenset(one["type"] for one in chosen["status"].get("conditions") or ()),
            on_node=_states(pods or ()),
            config=self._config_of(),
            pods_known=pods is not None,
        )
        installed = recognised(profiles(), here, detectors)
        services = self._list("services", "/api/v1/services", "services") or []
        self._game_day()
        prometheus, alertmanager = self._prometheus(services), self._alertmanager(services)
        return Surroundings(
            server=self._kubernetes.server,
            version=identity,
            uid=self._uid(),
            nodes=tuple(found),
            node=name,
            image=image or image_with_shell([one.get("names") or () for one in chosen["status"].get("images") or ()]),
            detectors=tuple(installed),
            prometheus=prometheus,
            alertmanager=alertmanager,
            work=tuple(f"{one['metadata']['namespace']}/{one['metadata']['name']}" for one in work_on(pods or ())),
            unseen=tuple(self._unseen),
            requests=self._kubernetes.counter.cost().requests,
            bystanders=sum(not one.unfit and one.name != name for one in found),
        )

    def _version(self) -> str:
        return str(self._kubernetes.json.request("GET", "/version", act="read the server's version")["gitVersion"])

    def _uid(self) -> str:
        """Return the cluster's own id; empty if it may not be read, which nothing here depends on."""
        try:
            found = self._kubernetes.json.request("GET", "/api/v1/namespaces/kube-system")
        except KubernetesError:
            return ""
        return str(found["metadata"]["uid"])

    def _nodes(self) -> list[dict[str, Any]]:
        """Return the GPU nodes. Raises KubernetesError, because nothing can be done without them."""
        labelled = self._page("list the GPU nodes", "/api/v1/nodes", labelSelector=_GPU_NODES)
        found = labelled or self._page("list the nodes", "/api/v1/nodes")
        with_gpus = [one for one in found if labelled or _gpus(one)]
        if not with_gpus:
            raise RefusedError(
                f"no GPU node: none of {len(found)} nodes has the label {_GPU_NODES} or offers {GPU_RESOURCE}",
                "is this the right context? `kubectl config current-context`",
            )
        return with_gpus

    def _page(self, act: str, path: str, **query: str) -> list[dict[str, Any]]:
        answer = self._kubernetes.json.request("GET", path, query={"limit": str(_PAGE)} | query, act=act)
        return list(answer.get("items") or ())

    def _list(self, what: str, path: str, resource: str, group: str = "", **query: str) -> list[dict[str, Any]] | None:
        """Return the first page of a list; None if it cannot be seen, which is noted."""
        try:
            return self._page(f"list {what}", path, **query)
        except KubernetesError as error:
            verb = "list" if error.status in _FORBIDDEN else ""
            self._unseen.append(Unseen(what=what, why=error.cause, verb=verb, resource=resource, group=group))
            return None

    def _workloads(self, plural: str, kind: str) -> list[Workload]:
        items = self._list(plural, f"/apis/apps/v1/{plural}", plural, "apps") or ()
        return [_workload(kind, one) for one in items]

    def _config_of(self) -> Any:
        """Return a reader of a workload's ConfigMaps, which asks for each at most once, and for few."""
        asked: dict[tuple[str, str], str | None] = {}

        def text(workload: Workload) -> str | None:
            found = []
            for name in workload.config_maps:
                key = (workload.namespace, name)
                if key not in asked and len(asked) < _MOST_CONFIG_MAPS:
                    asked[key] = self._config_map(*key)
                if (content := asked.get(key)) is not None:
                    found.append(content)
            return "\n".join(found) if found or not workload.config_maps else None

        return text

    def _config_map(self, namespace: str, name: str) -> str | None:
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        try:
            found = self._kubernetes.json.request("GET", path, act=f"read ConfigMap {namespace}/{name}")
        except KubernetesError as error:
            verb = "get" if error.status in _FORBIDDEN else ""
            what = f"ConfigMap {namespace}/{name}"
            self._unseen.append(Unseen(what=what, why=error.cause, verb=verb, resource="configmaps"))
            return None
        return "\n".join((found.get("data") or {}).values())

    def _game_day(self) -> None:
        """Refuse to play beside a game-day. Raises RefusedError."""
        field, path = f"metadata.name={CLUSTER_LEASE}", "/apis/coordination.k8s.io/v1/leases"
        leases = self._list("leases of game-days", path, "leases", "coordination.k8s.io", fieldSelector=field) or ()
        for lease in leases:
            if holder := (lease.get("spec") or {}).get("holderIdentity"):
                where = lease["metadata"]["namespace"]
                raise RefusedError(
                    f"{holder} holds the lease {where}/{CLUSTER_LEASE}: a game-day or another proof runs here",
                    "wait for its end; if it is dead: `gameday prove --clean`, or `gameday reap` for a game-day",
                )

    def _prometheus(self, services: Sequence[dict[str, Any]]) -> Monitoring | None:
        try:
            return find_prometheus(self._kubernetes, services)
        except AdapterError as error:
            self._note_proxy("Prometheus", error)
            return None

    def _alertmanager(self, services: Sequence[dict[str, Any]]) -> str:
        try:
            return find_alertmanager(self._kubernetes, services)
        except AdapterError as error:
            self._note_proxy("Alertmanager", error)
            return ""

    def _note_proxy(self, what: str, error: AdapterError) -> None:
        verb = "get" if error.status in _FORBIDDEN else ""
        self._unseen.append(Unseen(what=what, why=error.cause, verb=verb, resource="services/proxy"))


def _chosen(nodes: list[dict[str, Any]], found: list[NodeFound], wanted: str | None) -> dict[str, Any]:
    """Return the node to play on. Raises RefusedError if it is not there or not fit."""
    by_name = {one["metadata"]["name"]: one for one in nodes}
    if wanted:
        if wanted not in by_name:
            some = ", ".join(sorted(by_name)[:5])
            raise RefusedError(f"no GPU node is called {wanted}", f"GPU nodes are {some} …" if some else "")
        seen = next(one for one in found if one.name == wanted)
        if seen.unfit:
            raise RefusedError(f"node {wanted} is not fit: {seen.unfit}", "name another with --node")
        return by_name[wanted]
    fit = sorted(one.name for one in found if not one.unfit)
    if not fit:
        why = "; ".join(f"{one.name}: {one.unfit}" for one in found[:3])
        raise RefusedError(f"none of {len(found)} GPU nodes is fit: {why}", "see to one of them first")
    return by_name[fit[0]]


def _node_found(node: dict[str, Any]) -> NodeFound:
    provider = str(node.get("spec", {}).get("providerID") or "")
    return NodeFound(
        name=node["metadata"]["name"],
        gpus=_gpus(node) or "none",
        unfit=_unfit(node),
        virtual=provider.startswith(VIRTUAL_PROVIDER),
    )


def _gpus(node: dict[str, Any]) -> str:
    """Return the GPUs that a node offers: whole ones, shares of time, MIG slices."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    parts = [
        f"{count} {name.removeprefix('nvidia.com/')}"
        for name, count in sorted(offered.items())
        if name.startswith((GPU_RESOURCE, "nvidia.com/mig-")) and count != "0"
    ]
    return ", ".join(parts)


def _unfit(node: dict[str, Any]) -> str:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready = next((one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"), "Unknown")
    if ready != "True":
        return f"its condition Ready is {ready}"
    if spec.get("unschedulable"):
        return "it is cordoned"
    taints = [one["key"] for one in spec.get("taints") or () if one["key"] not in _ORDINARY]
    return f"it has the taint {', '.join(taints)}" if taints else ""


def _workload(kind: str, item: dict[str, Any]) -> Workload:
    spec, status, meta = item["spec"], item.get("status") or {}, item["metadata"]
    pod = spec["template"]["spec"]
    containers = [*(pod.get("initContainers") or ()), *pod["containers"]]
    maps = [one["configMap"]["name"] for one in pod.get("volumes") or () if one.get("configMap")]
    maps += [
        one["configMapRef"]["name"] for each in containers for one in each.get("envFrom") or () if "configMapRef" in one
    ]
    return Workload(
        kind=kind,
        namespace=meta["namespace"],
        name=meta["name"],
        images=tuple(str(one.get("image") or "") for one in containers),
        words=" ".join(word for one in containers for word in _words(one)),
        config_maps=tuple(dict.fromkeys(maps)),
        ready=int(status.get("numberReady") or status.get("readyReplicas") or 0),
        node_selector=pod.get("nodeSelector") or {},
    )


def _words(container: dict[str, Any]) -> list[str]:
    environment = [f"{one['name']}={one.get('value') or ''}" for one in container.get("env") or ()]
    return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()), *environment)]


def _owner(pod: dict[str, Any]) -> tuple[str, str, str]:
    """Return the kind, the namespace and the name of the workload that a pod belongs to."""
    meta = pod["metadata"]
    owner = next(iter(meta.get("ownerReferences") or ()), None) or {"kind": "", "name": meta["name"]}
    kind, name = owner["kind"], owner["name"]
    if kind == "ReplicaSet":
        kind, name = "Deployment", name.rpartition("-")[0]
    return kind, meta["namespace"], name


def _states(pods: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    states: dict[tuple[str, str], str] = {}
    for pod in pods:
        _, namespace, name = _owner(pod)
        status = pod.get("status") or {}
        ready = next((one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"), "False")
        if ready == "True" or (namespace, name) not in states:
            states[namespace, name] = "ready" if ready == "True" else _why_not_ready(status)
    return states


def _why_not_ready(status: dict[str, Any]) -> str:
    for one in status.get("containerStatuses") or ():
        if waiting := (one.get("state") or {}).get("waiting"):
            return str(waiting.get("reason") or "waiting")
    return str(status.get("phase") or "Unknown")


def work_on(pods: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the pods that a drain would move: those of no DaemonSet, not static and not ended."""
    return [
        pod
        for pod in pods
        if _owner(pod)[0] not in ("DaemonSet", "Node")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
