"""The Kubernetes API as a game-day needs it: few calls, selectors, pages, and errors that say what to do.

Reads that grow with the cluster ask for tables without objects, so that a
game-day on 5,000 nodes costs what it costs on 100. Everything that waits
waits on a watch (`gameday.cluster.watch`), never on a repeated GET.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from pydantic import BaseModel, ConfigDict

from gameday.cluster.call_counter import CallCounter
from gameday.cluster.kube_errors import hint_of, reason_of
from gameday.cluster.kube_transport import connect, send
from gameday.cluster.profile import ClusterProfile
from gameday.errors import KubernetesError
from gameday.values.nodes import NodeSnapshot, Taint

GPU = "nvidia.com/gpu"
# The device plugin's names for shares of time (nvidia.com/gpu.shared) and, under the mixed strategy, for MIG slices.
_PARTS_OF_GPUS = (f"{GPU}.", "nvidia.com/mig-")
# What the API server sets where a pod does not say.
_DEFAULT_GRACE_S = 30
MANAGER = "gameday"
REASON_ANNOTATION = "gameday.dev/faulty-reason"
# Candidates are chosen among the first page of opted-in nodes: 500 rows of a table are about 150 KB.
CANDIDATE_PAGE = 500
_CONFLICT_TRIES = 8


class ClusterIdentity(BaseModel):
    model_config = ConfigDict(frozen=True)

    server: str
    version: str
    uid: str


class Candidate(BaseModel):
    """An opted-in node as a table row shows it; `status` is kubectl's STATUS column."""

    model_config = ConfigDict(frozen=True)

    name: str
    status: str


class GpuPod(BaseModel):
    """A pod that holds GPUs of a node."""

    model_config = ConfigDict(frozen=True)

    namespace: str
    name: str
    uid: str
    phase: str
    gpus: int
    """Whole ones: what the node's allocatable nvidia.com/gpu counts."""
    partial: bool
    """Whether it has MIG slices or shares of GPUs, which are resources of other names."""
    claims: bool
    """Whether it has ResourceClaims: with dynamic resource allocation GPUs are no resource of its containers."""
    run: str | None
    grace_s: int
    """terminationGracePeriodSeconds."""
    terminating: bool
    disruption: str
    """The reason of its condition DisruptionTarget: evicted, preempted, or deleted for a taint; empty without."""

    @property
    def holds_gpu(self) -> bool:
        """What a ResourceClaim is for only the claim tells: it is taken for GPUs."""
        return bool(self.gpus or self.partial or self.claims)


class DisruptionBudget(BaseModel):
    """A PodDisruptionBudget: how many of the pods it selects may be evicted now."""

    model_config = ConfigDict(frozen=True)

    name: str
    match_labels: dict[str, str]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...]
    """key, operator (In, NotIn, Exists, DoesNotExist), values."""
    selects_nothing: bool
    """A budget without a selector selects no pod; an empty selector selects all of its namespace."""
    allowed: int

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Whether it guards a pod of its namespace that carries these labels."""
        if self.selects_nothing or any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_expressed(labels.get(key), operator, values) for key, operator, values in self.expressions)


class Kubernetes:
    """One cluster. Methods raise KubernetesError, and AdapterError where no configuration can be loaded."""

    def __init__(self, profile: ClusterProfile, counter: CallCounter | None = None) -> None:
        self.counter = counter or CallCounter()
        self.profile = profile
        self.api = connect(profile, self.counter)
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)
        self.coordination = client.CoordinationV1Api(self.api)
        self.server: str = self.api.configuration.host

    def close(self) -> None:
        self.api.rest_client.close()

    @contextmanager
    def explained(self, act: str) -> Iterator[None]:
        """Turn the client's exceptions into one line that names the server, the act and the cause."""
        try:
            yield
        except ApiException as error:
            raise KubernetesError(
                self.server, f"{act}: {reason_of(error)}", hint_of(error), status=error.status
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise KubernetesError(
                self.server, f"{act}: {reason_of(error)}", "is the API server up, and the kubeconfig its own?"
            ) from None
        except (ValueError, TypeError) as error:
            raise KubernetesError(self.server, f"{act}: the answer could not be read: {error}") from None

    def identity(self) -> ClusterIdentity:
        with self.explained("read the server's version"):
            version = client.VersionApi(self.api).get_code().git_version
        with self.explained("read namespace kube-system"):
            uid = self.core.read_namespace("kube-system").metadata.uid
        return ClusterIdentity(server=self.server, version=version, uid=uid)

    def candidates(self, selector: dict[str, str]) -> list[Candidate]:
        """The first CANDIDATE_PAGE nodes by name that carry the labels."""
        query = {
            "labelSelector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
            "limit": str(CANDIDATE_PAGE),
            "includeObject": "None",
        }
        headers = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        with self.explained("list opted-in nodes"):
            answer = json.loads(send(self.api, "GET", "/api/v1/nodes", query=query, headers=headers).data)
        names = [column["name"].lower() for column in answer["columnDefinitions"]]
        name, status = names.index("name"), names.index("status")
        return [Candidate(name=row["cells"][name], status=row["cells"][status]) for row in answer.get("rows") or []]

    def node(self, name: str) -> client.V1Node:
        with self.explained(f"read node {name}"):
            return self.core.read_node(name)

    def node_or_none(self, name: str) -> client.V1Node | None:
        """None for a node that is not (or no longer) there."""
        with self.explained(f"read node {name}"), _absent_is_none():
            return self.core.read_node(name)
        return None

    def gpu_pods(self, node: str) -> list[GpuPod]:
        """Pods that hold GPUs of the node; those that have ended hold none."""
        running = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        with self.explained(f"list the pods of node {node}"):
            pods = self.core.list_pod_for_all_namespaces(field_selector=running).items
        return [found for found in map(gpu_pod, pods) if found.holds_gpu]

    def disruption_budgets(self, namespace: str) -> list[DisruptionBudget]:
        with self.explained(f"list the PodDisruptionBudgets of {namespace}"):
            found = client.PolicyV1Api(self.api).list_namespaced_pod_disruption_budget(namespace).items
        return [_budget(one) for one in found]

    def may(self, verb: str, group: str, resource: str, subresource: str, namespace: str, name: str) -> str | None:
        """None where the API server says that we may; else its reason. An empty namespace: the whole cluster."""
        about = {
            "verb": verb,
            "group": group,
            "resource": resource,
            "subresource": subresource,
            "namespace": namespace,
            "name": name,
        }
        body = {"spec": {"resourceAttributes": about}}
        with self.explained(f"ask whether we may {verb} {resource}"):
            status = client.AuthorizationV1Api(self.api).create_self_subject_access_review(body).status
        return None if status.allowed else status.reason or "no rule grants it"

    def create_pod(self, manifest: dict[str, Any], *, dry_run: bool = False) -> str:
        """The new pod's uid. `dry_run`: ask only whether it would be admitted."""
        name, only = manifest["metadata"]["name"], {"dry_run": "All"} if dry_run else {}
        with self.explained(f"create pod {name}"):
            pod = self.core.create_namespaced_pod(self.profile.namespace, manifest, field_manager=MANAGER, **only)
        uid: str = pod.metadata.uid
        return uid

    def delete_pod(self, name: str) -> str | None:
        """Ask for the pod's deletion; the pod's uid, or None when there is no such pod."""
        with self.explained(f"delete pod {name}"), _absent_is_none():
            uid: str = self.core.delete_namespaced_pod(name, self.profile.namespace).metadata.uid
            return uid
        return None

    def pod_log(self, name: str) -> str:
        with self.explained(f"read the log of pod {name}"):
            answer = self.core.read_namespaced_pod_log(
                name, self.profile.namespace, limit_bytes=1 << 20, _preload_content=False
            )
            content: bytes = answer.data
            return content.decode("utf-8", "replace")

    def create_job(self, manifest: dict[str, Any]) -> None:
        with self.explained(f"create job {manifest['metadata']['name']}"):
            self.batch.create_namespaced_job(self.profile.namespace, manifest, field_manager=MANAGER)

    def delete_job(self, name: str) -> None:
        """Delete a job and its pods; one that is already gone is fine."""
        with self.explained(f"delete job {name}"), _absent_is_none():
            self.batch.delete_namespaced_job(name, self.profile.namespace, propagation_policy="Background")

    def evict(self, namespace: str, name: str) -> bool:
        """Ask for a pod's eviction; False when a PodDisruptionBudget says not now."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        try:
            with self.explained(f"evict pod {namespace}/{name}"), _absent_is_none():
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
        known: client.V1Node | None = None,
    ) -> client.V1Node:
        """Read, let `change` make a merge patch of the node's spec or metadata, write it only if nobody wrote since.

        `change` returns None when there is nothing to do. `known`: the node as a watch last saw it, in place of the
        first reading; that nothing is to do is believed of a reading only. Raises KubernetesError after 8 lost races.
        """
        for _ in range(_CONFLICT_TRIES):
            node = known or self.node(name)
            patch, seen, known = change(node), known, None
            if patch is None and seen is not None:
                continue
            if patch is None:
                return node
            metadata = {**patch.get("metadata", {}), "resourceVersion": node.metadata.resource_version}
            try:
                with self.explained(f"patch node {name}"):
                    return self.core.patch_node(
                        name,
                        {**patch, "metadata": metadata},
                        field_manager=MANAGER,
                        _content_type="application/merge-patch+json",
                    )
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
        known: client.V1Node | None = None,
    ) -> tuple[NodeSnapshot, NodeSnapshot]:
        """Remove the unwanted taints and no others, set the cordon; the node as read before and as stored after.

        `unschedulable` None leaves the cordon as it is. `known` as for `change_node`.
        """
        seen: list[NodeSnapshot] = []

        def change(node: client.V1Node) -> dict[str, Any] | None:
            seen[:] = [snapshot(node)]
            spec: dict[str, Any] = {}
            if any(map(unwanted, taints_of(node))):
                kept = [taint for taint in node.spec.taints or [] if not unwanted(_taint(taint))]
                spec["taints"] = [self.api.sanitize_for_serialization(taint) for taint in kept] or None
            if unschedulable not in (None, bool(node.spec.unschedulable)):
                spec["unschedulable"] = unschedulable or None
            return {"spec": spec} if spec else None

        after = snapshot(self.change_node(name, change, known))
        return seen[0], after

    def cordon(self, name: str) -> None:
        """Make the node unschedulable; one field, so that nobody else's write can be lost."""
        with self.explained(f"cordon node {name}"):
            self.core.patch_node(
                name,
                {"spec": {"unschedulable": True}},
                field_manager=MANAGER,
                _content_type="application/merge-patch+json",
            )


@contextmanager
def _absent_is_none() -> Iterator[None]:
    try:
        yield
    except ApiException as error:
        if error.status != 404:
            raise


def _taint(taint: client.V1Taint) -> Taint:
    return Taint(key=taint.key, value=taint.value or "", effect=taint.effect)


def _expressed(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    """One matchExpressions entry, as the API server evaluates it."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def _budget(budget: client.V1PodDisruptionBudget) -> DisruptionBudget:
    selector = budget.spec.selector
    expressions = (selector.match_expressions if selector else None) or []
    return DisruptionBudget(
        name=budget.metadata.name,
        match_labels=(selector.match_labels if selector else None) or {},
        expressions=tuple((one.key, one.operator, tuple(one.values or ())) for one in expressions),
        selects_nothing=selector is None,
        allowed=(budget.status.disruptions_allowed if budget.status else None) or 0,
    )


def taints_of(node: client.V1Node) -> tuple[Taint, ...]:
    return tuple(_taint(taint) for taint in node.spec.taints or [])


def snapshot(node: client.V1Node) -> NodeSnapshot:
    """The parts of a Node a game-day may change, or may be blamed for changing."""
    gpus = (node.status.allocatable or {}).get(GPU)
    return NodeSnapshot(
        node=node.metadata.name,
        resource_version=node.metadata.resource_version or "",
        unschedulable=bool(node.spec.unschedulable),
        taints=taints_of(node),
        labels=node.metadata.labels or {},
        annotations=node.metadata.annotations or {},
        conditions={condition.type: condition.status for condition in node.status.conditions or []},
        boot_id=node.status.node_info.boot_id if node.status.node_info else "",
        allocatable_gpus=int(gpus) if gpus is not None else None,
    )


def taint_manager(node: client.V1Node) -> str | None:
    """Who last wrote spec.taints, by managedFields; None where the server tells none.

    The API server owns spec.taints as one field (it is an atomic list), so this
    names the last writer of the whole list.
    """
    write = _last_taint_write(node)
    return write.manager if write else None


def taints_written_at(node: client.V1Node) -> datetime | None:
    """When spec.taints was last written, to the second, by managedFields; None where the server tells none."""
    write = _last_taint_write(node)
    return write.time if write else None


def _last_taint_write(node: client.V1Node) -> client.V1ManagedFieldsEntry | None:
    owners = [
        entry
        for entry in node.metadata.managed_fields or []
        if "f:taints" in ((entry.fields_v1 or {}).get("f:spec") or {})
    ]
    owners.sort(key=lambda entry: (entry.time is not None, entry.time))
    return owners[-1] if owners else None


def decided_at(node: client.V1Node) -> datetime | None:
    """When our node-health controller decided to quarantine the node, as its annotation says; other detectors say
    nothing of the kind."""
    try:
        reason = json.loads((node.metadata.annotations or {})[REASON_ANNOTATION])
        decided = datetime.fromisoformat(reason["decided"])
    except (KeyError, ValueError, TypeError):
        return None
    return decided if decided.tzinfo else None


def gpu_pod(pod: client.V1Pod) -> GpuPod:
    conditions = (pod.status.conditions if pod.status else None) or []
    disrupted = [one.reason for one in conditions if one.type == "DisruptionTarget" and one.status == "True"]
    return GpuPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=(pod.status.phase if pod.status else None) or "Unknown",
        gpus=_gpus_of(pod.spec),
        partial=any(map(_asks_parts, [*pod.spec.containers, *(pod.spec.init_containers or [])])),
        claims=bool(pod.spec.resource_claims),
        run=(pod.metadata.labels or {}).get("gameday.dev/run"),
        grace_s=_DEFAULT_GRACE_S
        if pod.spec.termination_grace_period_seconds is None
        else pod.spec.termination_grace_period_seconds,
        terminating=pod.metadata.deletion_timestamp is not None,
        disruption=(disrupted[0] or "DisruptionTarget") if disrupted else "",
    )


def _gpus_of(spec: client.V1PodSpec) -> int:
    """As the scheduler counts: init containers run one after the other, before the rest; sidecars beside it."""
    first = spec.init_containers or []
    sidecars = [one for one in first if one.restart_policy == "Always"]
    return max(sum(map(_gpus_asked, [*spec.containers, *sidecars])), *map(_gpus_asked, first), 0)


def _gpus_asked(container: client.V1Container) -> int:
    return int(_limits(container).get(GPU, 0))


def _asks_parts(container: client.V1Container) -> bool:
    return any(name.startswith(_PARTS_OF_GPUS) for name in _limits(container))


def _limits(container: client.V1Container) -> dict[str, str]:
    return (container.resources.limits if container.resources else None) or {}
