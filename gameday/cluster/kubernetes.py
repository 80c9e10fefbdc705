"""The Kubernetes API as a game-day needs it: few calls, selectors, pages, and errors that say what to do.

Reads that grow with the cluster ask for tables without objects, so that a game-day on 5,000 nodes costs the same as on
100. Everything that waits uses a watch (`gameday.cluster.watch`), never a repeated GET.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from pydantic import BaseModel, ConfigDict

from gameday.clock import Clock
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.creation import create
from gameday.cluster.disruption_budgets import DisruptionBudget, disruption_budget
from gameday.cluster.gpu_pods import GpuPod, gpu_pod, is_ended_by_somebody
from gameday.cluster.json_api import MERGE_PATCH, JsonApi
from gameday.cluster.kube_errors import explained
from gameday.cluster.kube_transport import connect, send
from gameday.cluster.nodes import readiness, snapshot, taints_of, to_taint
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from gameday.errors import KubernetesError
from gameday.values.nodes import VIRTUAL_PROVIDER, NodeReadiness, NodeSnapshot, Taint

MANAGER = "gameday"
"""The field manager of all our writes."""
CANDIDATE_PAGE = 500
"""Candidates are chosen from the first page of opted-in nodes: 500 rows of a table are about 150 KB."""

_OBJECT_PAGE = 500
"""Whole objects per answer, as in client-go's pager (defaultPageSize): 5 MB of nodes."""
_CONFLICT_TRIES = 8
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
# The kubelet begins a new file at 10 MiB (containerLogMaxSize; it checks every 10 s) and serves only the last one.
_LOG_BYTES = 16 << 20


class ClusterIdentity(BaseModel):
    """The cluster's server, version, and the uid of its namespace kube-system, which is unique to the cluster."""

    model_config = ConfigDict(frozen=True)

    server: str
    version: str
    uid: str


class Candidate(BaseModel):
    """An opted-in node as a table row shows it; `status` is kubectl's STATUS column."""

    model_config = ConfigDict(frozen=True)

    name: str
    status: str
    virtual: bool = False
    """No machine is behind it: its container runtime is the rehearsal's."""


class Kubernetes:
    """The API of one cluster. Methods raise KubernetesError if the server refuses or does not answer."""

    def __init__(self, profile: ClusterProfile, counter: CallCounter | None = None, clock: Clock = Clock()) -> None:
        """Prepare a client; nothing is sent yet.

        Args:
            profile: The cluster's.
            counter: Counts the requests; None starts a new count.
            clock: The clock of its user.

        Raises:
            AdapterError: No configuration can be loaded.
        """
        self.counter = counter or CallCounter()
        self.profile = profile
        self.clock = clock
        self.api = connect(profile, self.counter, clock)
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)
        self.coordination = client.CoordinationV1Api(self.api)
        self.server: str = self.api.configuration.host

    @property
    def json(self) -> JsonApi:
        """The same API as plain JSON."""
        return JsonApi(self.api, self.profile.namespace, MANAGER)

    def close(self) -> None:
        """Close all connections to the server."""
        self.api.rest_client.close()

    def explained(self, act: str) -> AbstractContextManager[None]:
        """Turn the client's exceptions into a KubernetesError of one line: the server, the act and the cause."""
        return explained(self.server, act)

    def follow(
        self,
        list_call: Callable[..., Any],
        on_change: Callable[[str, Any], None] | None = None,
        decode: Callable[[dict[str, Any]], Any] | None = None,
        /,
        **selection: Any,
    ) -> Follower:
        """Return a watch, not started yet, of the objects that a list call selects; arguments as for `Follower`."""
        return Follower(list_call, on_change, decode, clock=self.clock, **selection)

    def identity(self) -> ClusterIdentity:
        """Read which cluster this is."""
        with self.explained("read the server's version"):
            version = client.VersionApi(self.api).get_code().git_version
        with self.explained("read namespace kube-system"):
            uid = self.core.read_namespace("kube-system").metadata.uid
        return ClusterIdentity(server=self.server, version=version, uid=uid)

    def candidates(self, selector: dict[str, str], lacking: str = "") -> list[Candidate]:
        """Return the first CANDIDATE_PAGE nodes with these labels, by name.

        Args:
            selector: The labels.
            lacking: A label that they must not carry, with any value; empty: none.
        """
        return self._page_of_candidates(selector, lacking, "")[0]

    def all_candidates(self, selector: dict[str, str]) -> list[Candidate]:
        """Return all nodes with these labels, by name, page by page."""
        found, after = self._page_of_candidates(selector, "", "")
        while after:
            more, after = self._page_of_candidates(selector, "", after)
            found += more
        return found

    def _page_of_candidates(self, selector: dict[str, str], lacking: str, after: str) -> tuple[list[Candidate], str]:
        """Return a page of nodes, and the token of the next page; empty after the last."""
        wanted = [f"{key}={value}" for key, value in sorted(selector.items())]
        query = {
            "labelSelector": ",".join([*wanted, *([f"!{lacking}"] if lacking else [])]),
            "limit": str(CANDIDATE_PAGE),
            "includeObject": "None",
            **({"continue": after} if after else {}),
        }
        with self.explained("list opted-in nodes"):
            answer = json.loads(send(self.api, "GET", "/api/v1/nodes", query=query, headers={"Accept": _TABLE}).data)
        names = [column["name"].lower() for column in answer["columnDefinitions"]]
        name, status, runtime = (names.index(column) for column in ("name", "status", "container-runtime"))
        cells = [row["cells"] for row in answer.get("rows") or []]
        found = [
            Candidate(name=one[name], status=one[status], virtual=one[runtime].startswith(VIRTUAL_PROVIDER))
            for one in cells
        ]
        return found, (answer.get("metadata") or {}).get("continue") or ""

    def node(self, name: str) -> client.V1Node:
        """Read a node."""
        with self.explained(f"read node {name}"):
            return self.core.read_node(name)

    def node_or_none(self, name: str) -> client.V1Node | None:
        """Read a node; return None if there is none of that name any more."""
        with self.explained(f"read node {name}"), absent_is_none():
            return self.core.read_node(name)
        return None

    def readiness_of_nodes(self) -> dict[str, NodeReadiness]:
        """Return the readiness of every node by name, from pages of whole objects."""
        return {node["metadata"]["name"]: readiness(node) for node in self._pages("list the nodes", "/api/v1/nodes")}

    def pods_left_alone(self) -> dict[str, str]:
        """Return UID and namespace/name of every pod on a node that is not being ended and has not failed."""
        placed = "spec.nodeName!=,status.phase!=Failed"
        return {
            pod["metadata"]["uid"]: f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self._pages("list the pods", "/api/v1/pods", placed)
            if not is_ended_by_somebody(pod)
        }

    def _pages(self, act: str, path: str, field_selector: str = "") -> Iterator[dict[str, Any]]:
        """Yield whole objects as plain JSON, a page at a time: typed models of a large cluster's take gigabytes."""
        after = ""
        while True:
            given = {"fieldSelector": field_selector, "continue": after}
            query = {"limit": str(_OBJECT_PAGE)} | {name: value for name, value in given.items() if value}
            with self.explained(act):
                page = json.loads(send(self.api, "GET", path, query=query).data)
            yield from page.get("items") or ()
            after = page["metadata"].get("continue") or ""
            if not after:
                return

    def gpu_pods(self, node: str) -> list[GpuPod]:
        """Return the pods that hold GPUs of the node; pods that have ended hold none."""
        running = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        with self.explained(f"list the pods of node {node}"):
            pods = self.core.list_pod_for_all_namespaces(field_selector=running).items
        return [found for found in map(gpu_pod, pods) if found.holds_gpu]

    def disruption_budgets(self, namespace: str) -> list[DisruptionBudget]:
        """Return the PodDisruptionBudgets of a namespace."""
        with self.explained(f"list the PodDisruptionBudgets of {namespace}"):
            found = client.PolicyV1Api(self.api).list_namespaced_pod_disruption_budget(namespace).items
        return list(map(disruption_budget, found))

    def why_forbidden(
        self, verb: str, group: str, resource: str, subresource: str, namespace: str, name: str
    ) -> str | None:
        """Return the API server's reason why this account may not do something; None if it may.

        An empty namespace means the whole cluster, an empty name every object.
        """
        attributes = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        body = {"spec": {"resourceAttributes": attributes}}
        with self.explained(f"ask whether we may {verb} {resource}"):
            status = client.AuthorizationV1Api(self.api).create_self_subject_access_review(body).status
        return None if status.allowed else status.reason or "no rule grants it"

    def create_pod(self, manifest: dict[str, Any], *, dry_run: bool = False) -> str:
        """Create a pod in the profile's namespace, or with `dry_run` only test its admission; return its uid."""
        name, namespace = manifest["metadata"]["name"], self.profile.namespace
        only = {"dry_run": "All"} if dry_run else {}
        with self.explained(f"create pod {name}"):
            pod = create(
                self.clock, lambda: self.core.create_namespaced_pod(namespace, manifest, field_manager=MANAGER, **only)
            ) or self._created_pod(name)
        uid: str = pod.metadata.uid
        return uid

    def _created_pod(self, name: str) -> client.V1Pod:
        """Return the pod of this name if it is not about to go."""
        found = self.core.list_namespaced_pod(self.profile.namespace, field_selector=f"metadata.name={name}").items
        if not found or found[0].metadata.deletion_timestamp is not None:
            raise ApiException(status=409, reason="it was there, and is going or gone")
        return found[0]

    def delete_pod(self, name: str, *, grace_period_s: int | None = None) -> str | None:
        """Request a pod's deletion; return its uid, or None if there is no such pod.

        Args:
            name: The pod, in the profile's namespace.
            grace_period_s: Seconds that its node gives it; None: its own, 0: do not wait for a node that is gone.
        """
        grace = {} if grace_period_s is None else {"grace_period_seconds": grace_period_s}
        with self.explained(f"delete pod {name}"), absent_is_none():
            uid: str = self.core.delete_namespaced_pod(name, self.profile.namespace, **grace).metadata.uid
            return uid
        return None

    def pod_log(self, name: str) -> str:
        """Return a pod's log, at most its first 16 MiB, which is more than a kubelet keeps in one file."""
        with self.explained(f"read the log of pod {name}"):
            answer = self.core.read_namespaced_pod_log(
                name, self.profile.namespace, limit_bytes=_LOG_BYTES, _preload_content=False
            )
            content: bytes = answer.data
            return content.decode("utf-8", "replace")

    def create_job(self, manifest: dict[str, Any]) -> None:
        """Create a job in the profile's namespace."""
        name, namespace = manifest["metadata"]["name"], self.profile.namespace
        with self.explained(f"create job {name}"):
            create(self.clock, lambda: self.batch.create_namespaced_job(namespace, manifest, field_manager=MANAGER))

    def delete_job(self, name: str) -> None:
        """Delete a job and its pods, if it exists."""
        with self.explained(f"delete job {name}"), absent_is_none():
            self.batch.delete_namespaced_job(name, self.profile.namespace, propagation_policy="Background")

    def evict(self, namespace: str, name: str) -> bool:
        """Request a pod's eviction; return False if a PodDisruptionBudget does not allow it now."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            with self.explained(f"evict pod {namespace}/{name}"), absent_is_none():
                self.core.create_namespaced_pod_eviction(name, namespace, body)
        except KubernetesError as error:
            if error.status == 429:
                return False
            raise
        return True

    def change_node(
        self,
        name: str,
        change: Callable[[client.V1Node], dict[str, Any] | None],
        last_seen: client.V1Node | None = None,
    ) -> client.V1Node:
        """Write a merge patch of a node's spec or metadata, only if the node was not written since it was read.

        Args:
            name: The node.
            change: Returns the patch for the node as it was read; None if there is nothing to do.
            last_seen: The node as a watch last showed it, which saves the first read. If there is nothing to do, it is
                read once more to be sure.

        Returns:
            The node as it is stored afterwards.

        Raises:
            KubernetesError: Also after 8 lost races.
        """
        for _ in range(_CONFLICT_TRIES):
            was_read = last_seen is None
            node, last_seen = last_seen or self.node(name), None
            patch = change(node)
            if patch is None and was_read:
                return node
            if patch is None:
                continue
            metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
            try:
                return self._patch_node(name, {**patch, "metadata": metadata}, f"patch node {name}")
            except KubernetesError as error:
                if error.status != 409:
                    raise
        raise KubernetesError(
            self.server, f"patch node {name}: lost {_CONFLICT_TRIES} races for it", "who else writes this node?"
        )

    def restore_node(
        self,
        name: str,
        unwanted: Callable[[Taint], bool],
        unschedulable: bool | None,
        last_seen: client.V1Node | None = None,
    ) -> tuple[NodeSnapshot, NodeSnapshot]:
        """Remove the unwanted taints and no others, and set the cordon.

        Args:
            name: The node.
            unwanted: True for the taints to remove.
            unschedulable: The cordon; None leaves it as it is.
            last_seen: As for `change_node`.

        Returns:
            The node as it was read before, and as it is stored afterwards.
        """
        read: list[NodeSnapshot] = []

        def change(node: client.V1Node) -> dict[str, Any] | None:
            read[:] = [snapshot(node)]
            spec: dict[str, Any] = {}
            if any(map(unwanted, taints_of(node))):
                kept = [taint for taint in node.spec.taints or [] if not unwanted(to_taint(taint))]
                spec["taints"] = [self.api.sanitize_for_serialization(taint) for taint in kept] or None
            if unschedulable not in (None, bool(node.spec.unschedulable)):
                spec["unschedulable"] = unschedulable or None
            return {"spec": spec} if spec else None

        after = snapshot(self.change_node(name, change, last_seen))
        return read[0], after

    def cordon(self, name: str) -> None:
        """Make the node unschedulable; it writes one field, so that no other write can be lost."""
        self._patch_node(name, {"spec": {"unschedulable": True}}, f"cordon node {name}")

    def _patch_node(self, name: str, patch: dict[str, Any], act: str) -> client.V1Node:
        with self.explained(act):
            return self.core.patch_node(name, patch, field_manager=MANAGER, _content_type=MERGE_PATCH)


@contextmanager
def absent_is_none() -> Iterator[None]:
    """Leave the block if the server answers that there is no such object."""
    try:
        yield
    except ApiException as error:
        if error.status != 404:
            raise
