"""Fill the empty embedded cluster: our RBAC, our service accounts' kubeconfigs, training jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from gameday.cluster.json_api import MERGE_PATCH
from gameday.errors import SeedError
from gameday.faults.component_pods import Component, component_of
from gameday.shipped import shipped
from gameday.values.cuda_switch import ANNOTATION, LIBRARY, MAY_FAIL
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass
from gameday_health.episodes.store import record_data, record_metadata, record_name
from gameday_rehearsal.nodes.dra import API_GROUP, claim_template, device_class
from gameday_rehearsal.nodes.gpu_operator import DEPLOY, OPERANDS, GpuOperator
from gameday_rehearsal.repeat_offender import offender_record
from kubesim.kubeconfig import Kubeconfig, write_kubeconfig

RBAC = shipped("deploy") / "rbac"
"""The manifests of a real cluster, used here too."""

JOB_LOG = shipped("deploy") / "job-log" / "log.yaml"
"""The right to read the logs of one namespace's pods."""

CUDA_ERROR = shipped("deploy") / "cuda-error"
"""The account of the fault cuda_error, and its rights in one namespace."""

CONTROL_PLANE = shipped("deploy") / "control-plane"
"""The manifests that a game-day of the control plane needs as well."""

CONTROL_PLANE_HERE = Path(__file__).parent / "control-plane.yaml"
"""The rights for such game-days that no real cluster should give."""

GUEST_RBAC = Path(__file__).parent / "guest.yaml"
GUEST_ACCOUNT = "gameday-guest"
"""Name of a guest's service account, and of its namespace."""

KUBE_STATE_METRICS_RBAC = Path(__file__).parent / "kube_state_metrics" / "rbac.yaml"
_KUBE_STATE_METRICS = "kube-state-metrics"  # its service account, and its namespace

FAKE_DETECTOR_RBAC = Path(__file__).parent / "fake_detector" / "rbac.yaml"
_NAMESPACE = "gameday"
_RUNTIME_API = "node.k8s.io/v1"
_TRAINING = "training"
_JOBS = f"/apis/batch/v1/namespaces/{_TRAINING}/jobs"
_TOKEN_SECONDS = 24 * 3600
_TIMEOUT_S = 30.0
_NOT_READY = "node.kubernetes.io/not-ready"
_STALLED_AFTER_S = 120
# Five pods a node are nothing here, but 5,000 on a thousand nodes.
_COMPONENTS_UP_TO = 32
_MOST_PODS_OF_A_JOB = 512  # our choice: a job's controller reads all pods of the job whenever one of them changes
_TRAINS_WITHIN_S = 300
OFFENDER_LABEL = "gameday.dev/repeat-offender"
"""The label by which a plan chooses the node that was repaired several times."""
WEAKLY_COOLED_LABEL = "gameday.dev/weakly-cooled"
"""The label by which a plan chooses the node with a GPU that gets too hot under full load."""
LOG_STORE_LABEL = "virtual-node.gameday.dev/log-store"
"""The label of the node that runs the log store's pod."""
GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
_LOG_STORE_NODE = "gpu-node-1"
# Namespace, name and labels as the GPU operator, deploy/dmesg-shipper and the logging charts have them.
_OPERATOR = "gpu-operator"
_COMPONENTS = (
    (_OPERATOR, "nvidia-device-plugin-daemonset", {"app": "nvidia-device-plugin-daemonset"}),
    (_OPERATOR, "nvidia-dcgm", {"app": "nvidia-dcgm"}),
    (_OPERATOR, "nvidia-dcgm-exporter", {"app": "nvidia-dcgm-exporter"}),
    ("dmesg-logging", "dmesg", {"app.kubernetes.io/name": "dmesg"}),
    ("logging", "otel-collector", {"app.kubernetes.io/name": "opentelemetry-collector"}),
    ("logging", "loki", {"app.kubernetes.io/name": "loki"}),
)
_SELECTORS: dict[str, dict[str, str]] = {"loki": {LOG_STORE_LABEL: "true"}, "otel-collector": {}}
"""The nodes for the components that are not only for GPU nodes."""
_PLURALS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "PriorityClass": "priorityclasses",
}


class Seeder:
    """The cluster's administrator while it is being set up.

    It speaks plain JSON, because the official client's start costs more than all the requests.
    """

    def __init__(self, http: httpx.Client, cluster: dict[str, Any]) -> None:
        self._http = http
        self._cluster = cluster

    def rights(self) -> None:
        """Create what deploy/rbac describes: namespaces, accounts, rights, a priority class. Raises SeedError."""
        for manifest in sorted(RBAC.glob("*.yaml"), key=lambda path: (path.stem != "namespace", path.stem)):
            self._apply(manifest)
        self._create("/api/v1/namespaces", {"metadata": {"name": _TRAINING}})
        self._apply(JOB_LOG, namespace=_TRAINING)
        self._apply(CUDA_ERROR / "account" / "account.yaml")
        self._apply(CUDA_ERROR / "pods.yaml", namespace=_TRAINING)

    def control_plane_rights(self) -> None:
        """Create what deploy/control-plane describes, and the rights that only a rehearsal gives. Raises SeedError."""
        kustomization = YAML(typ="safe", pure=True).load((CONTROL_PLANE / "kustomization.yaml").read_text("utf-8"))
        for name in kustomization["resources"]:
            self._apply(CONTROL_PLANE / name)
        self._apply(CONTROL_PLANE / "webhook" / "webhook.yaml")
        self._apply(CONTROL_PLANE_HERE)

    def fake_detector_kubeconfig(self, path: Path) -> Path:
        """Create a detector stand-in's account and rights, and write its kubeconfig. Raises SeedError."""
        self._apply(FAKE_DETECTOR_RBAC)
        return self.service_account_kubeconfig("detector-stand-in", path)

    def guest_kubeconfig(self, path: Path) -> Path:
        """Create a guest's account and rights, and write its kubeconfig. Raises SeedError."""
        self._apply(GUEST_RBAC)
        return self.service_account_kubeconfig(GUEST_ACCOUNT, path, namespace=GUEST_ACCOUNT)

    def kube_state_metrics_kubeconfig(self, path: Path) -> Path:
        """Create the account and rights of kube-state-metrics, and write its kubeconfig. Raises SeedError."""
        self._apply(KUBE_STATE_METRICS_RBAC)
        return self.service_account_kubeconfig(_KUBE_STATE_METRICS, path, namespace=_KUBE_STATE_METRICS)

    def _apply(self, manifest: Path, namespace: str | None = None) -> None:
        """Create what a manifest describes; `namespace` is kubectl's -n. Raises SeedError."""
        for document in YAML(typ="safe", pure=True).load_all(manifest.read_text(encoding="utf-8")):
            if document and namespace:
                document["metadata"].setdefault("namespace", namespace)
            if document:
                self._create(collection_of(document), document)

    def service_account_kubeconfig(self, account: str, path: Path, namespace: str = _NAMESPACE) -> Path:
        """Write a kubeconfig (mode 0600) with only the service account's own token. Raises SeedError."""
        request = {"spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS}}
        answer = self._create(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
        user = {"token": answer["status"]["token"]}
        write_kubeconfig(path, account, cluster=self._cluster, user=user, namespace=namespace, context="gameday")
        return path

    def await_schedulable(self, nodes: int, stalled_after_s: int = _STALLED_AFTER_S) -> None:
        """Wait until `nodes` nodes have lost the taint that each new node has until a controller finds it Ready.

        Raises:
            SeedError: No further node lost it for `stalled_after_s`, regardless of how many are still to come.
        """
        ready: set[str] = set()
        while len(ready) < nodes:
            before = len(ready)
            self._watch_schedulable(ready, nodes, stalled_after_s)
            if len(ready) == before:
                raise SeedError(
                    f"{len(ready)} of {nodes} nodes lost the taint {_NOT_READY}, and none did for {stalled_after_s} s"
                )

    def _await_gpus(self, nodes: int, gpus: int) -> None:
        """Wait until `nodes` nodes offer their GPUs, which they do once their device plugin's pod runs.

        Raises:
            SeedError: No node does so for two minutes.
        """
        offering: set[str] = set()
        for node in self._watched("/api/v1/nodes", _STALLED_AFTER_S):
            if node["status"].get("allocatable", {}).get("nvidia.com/gpu") == str(gpus):
                offering.add(node["metadata"]["name"])
            if len(offering) >= nodes:
                return
        raise SeedError(f"{len(offering)} of {nodes} nodes offer {gpus} GPUs within {_STALLED_AFTER_S} s")

    def _watch_schedulable(self, ready: set[str], nodes: int, timeout_s: int) -> None:
        """Add nodes without the taint to `ready` until there are enough or the time is over. Raises SeedError."""
        for node in self._watched("/api/v1/nodes", timeout_s):
            keys = [taint["key"] for taint in node.get("spec", {}).get("taints", [])]
            if _NOT_READY not in keys:
                ready.add(node["metadata"]["name"])
            if len(ready) >= nodes:
                return

    def _watched(self, path: str, seconds: int) -> Iterator[Any]:
        """Yield the objects of a collection, and each again when it changes, for `seconds`. Raises SeedError."""
        query = {"watch": "true", "resourceVersion": "0", "timeoutSeconds": str(seconds)}
        try:
            with self._http.stream("GET", path, params=query, timeout=seconds + _TIMEOUT_S) as answer:
                for line in answer.iter_lines():
                    yield json.loads(line)["object"]
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise SeedError(f"watch of {path}: {type(error).__name__}: {error}") from None

    def components(self, nodes: int, gpus: int, operator: GpuOperator, quarantine_keys: Iterable[str]) -> None:
        """Create the pods with which most clusters watch and serve their GPUs, and the log store's, on the first node.

        A GPU operator's operands are placed by its labels, and the nodes are awaited until they offer their GPUs.
        Without an operator, a large fleet gets none of these pods, because they would be most of the rehearsal's work.
        Operands tolerate what docs/empty-cluster.md tells people to set, the keys of the detector's taints; the log
        shippers tolerate everything, as there. Raises SeedError.
        """
        operands_tolerate = [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            *({"key": key, "operator": "Exists"} for key in quarantine_keys),
        ]
        if operator is GpuOperator.NONE and nodes > _COMPONENTS_UP_TO:
            return
        for namespace in dict.fromkeys(namespace for namespace, *_ in _COMPONENTS):
            self._create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._label(_LOG_STORE_NODE, {LOG_STORE_LABEL: "true"})
        by_app = {operand.app: f"{DEPLOY}{label}" for label, operand in OPERANDS.items()}
        discovery = (_OPERATOR, "gpu-feature-discovery", {"app": "gpu-feature-discovery"})
        with_operator = operator is not GpuOperator.NONE
        for namespace, name, labels in (*_COMPONENTS, *([discovery] if with_operator else [])):
            label = by_app.get(labels.get("app", ""), GPU_PRESENT_LABEL) if with_operator else GPU_PRESENT_LABEL
            selector = _SELECTORS.get(name, {label: "true"})
            tolerations = operands_tolerate if namespace == _OPERATOR else [{"operator": "Exists"}]
            component = _component(namespace, name, labels, selector, tolerations)
            if component_of(labels) is Component.DEVICE_PLUGIN:
                _set_up_device_plugin(component["spec"]["template"], operator)
            self._create(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", component)
        if with_operator:
            self._await_gpus(nodes, gpus)

    def _label(self, node: str, labels: dict[str, str]) -> None:
        path = f"/api/v1/nodes/{node}"
        try:
            answer = self._http.patch(
                path, json={"metadata": {"labels": labels}}, headers={"Content-Type": "application/merge-patch+json"}
            )
        except httpx.HTTPError as error:
            raise SeedError(f"PATCH {path}: {type(error).__name__}: {error}") from None
        if answer.is_error:
            raise SeedError(f"PATCH {path}: {answer.status_code}: {answer.text[:300]}")

    def objects_of_the_lab(self, operator: GpuOperator, *, dra: bool) -> None:
        """Create what only a real API server knows: RuntimeClasses, and the DRA driver's class. Raises SeedError."""
        for name in operator.runtime_classes:
            self._create(f"/apis/{_RUNTIME_API}/runtimeclasses", _runtime_class(name))
        if dra:
            self.device_class()

    def device_class(self) -> None:
        """Create the DeviceClass of the nodes' DRA driver. Raises SeedError."""
        self._create(f"/apis/{API_GROUP}/v1/deviceclasses", device_class())

    def training(self, nodes: int, gpus: int, *, dra: bool = False) -> dict[str, int]:
        """Keep three quarters of the GPUs busy with two kinds of training jobs, so that charts show a busy cluster.

        A quarter stays free: without room for resubmitted jobs and canaries, their waiting would prove nothing about
        taints. Nodes of one GPU stay empty. With `dra` the jobs hold their GPUs by claims. Returns each job's number of
        pods, by its name. Raises SeedError.
        """
        jobs: dict[str, int] = {}
        for name, share, load in (("pretrain", gpus // 2, "0.95"), ("finetune", gpus // 4, "0.7")):
            if share and dra:
                templates = f"/apis/{API_GROUP}/v1/namespaces/{_TRAINING}/resourceclaimtemplates"
                self._create(templates, claim_template(name, share))
            for first in range(0, nodes if share else 0, _MOST_PODS_OF_A_JOB):
                pods = min(_MOST_PODS_OF_A_JOB, nodes - first)
                job = _training_job(name, pods, share, load, dra=dra)
                if first:
                    job["metadata"]["name"] = f"{name}-{first}"
                self._create(_JOBS, job)
                jobs[job["metadata"]["name"]] = pods
        return jobs

    def await_training(self, jobs: Mapping[str, int]) -> None:
        """Wait until every pod of the training jobs runs. Raises SeedError if that takes more than five minutes.

        `jobs` has each job's number of pods by its name, as returned by `training`.
        """
        missing = dict(jobs)
        for job in self._watched(_JOBS, _TRAINS_WITHIN_S) if missing else ():
            missing[job["metadata"]["name"]] = job["spec"]["parallelism"] - job.get("status", {}).get("ready", 0)
            if not any(missing.values()):
                return
        if missing:
            raise SeedError(f"{sum(missing.values())} pods of training jobs do not run within {_TRAINS_WITHIN_S} s")

    def weakly_cooled(self, node: str) -> None:
        """Give a node the label of weak cooling. Raises SeedError."""
        self._label(node, {WEAKLY_COOLED_LABEL: "true"})

    def gpu_classes(self, nodes: int) -> None:
        """Label the nodes with GPU classes, as `gameday fleet` would, but without measuring. Raises SeedError.

        The last quarter is fast and the first node slow, because a scheduler that knows no classes fills equal nodes
        from the first name on.
        """
        fast = max(1, nodes // 4)
        for number in range(1, nodes + 1):
            ordinary = GpuClass.SLOW if number == 1 else GpuClass.TYPICAL
            gpu_class = GpuClass.FAST if number > nodes - fast else ordinary
            self._label(f"gpu-node-{number}", {GPU_CLASS_LABEL: str(gpu_class)})

    def repeat_offender(self, node: str) -> None:
        """Give a node the record and the label of one that was repaired and returned three times within a day.

        Raises SeedError.
        """
        found = self._http.get(f"/api/v1/nodes/{node}").json()
        episode = offender_record(node, found["metadata"]["uid"], datetime.now(UTC))
        body = {"metadata": record_metadata(record_name(node)), "data": record_data(episode)}
        self._create(f"/api/v1/namespaces/{_NAMESPACE}/configmaps", body)
        label = {"metadata": {"labels": {OFFENDER_LABEL: "true"}}}
        answer = self._http.patch(f"/api/v1/nodes/{node}", json=label, headers={"Content-Type": MERGE_PATCH})
        if answer.is_error:
            raise SeedError(f"PATCH node {node}: {answer.status_code}: {answer.text[:300]}")

    def _create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise SeedError(f"POST {path}: {type(error).__name__}: {error}") from None
        if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
            raise SeedError(f"POST {path}: {answer.status_code}: {answer.text[:300]}")
        created: dict[str, Any] = answer.json()
        return created


@contextmanager
def seeding(admin: Path) -> Iterator[Seeder]:
    """Yield a seeder with the rights of this kubeconfig."""
    kubeconfig = Kubeconfig.load(admin)
    headers = {"Authorization": f"Bearer {kubeconfig.token}"} if kubeconfig.token else {}
    cluster = YAML(typ="safe", pure=True).load(admin.read_text(encoding="utf-8"))["clusters"][0]["cluster"]
    with httpx.Client(
        base_url=kubeconfig.server, headers=headers, verify=kubeconfig.tls or True, timeout=_TIMEOUT_S, trust_env=False
    ) as http:
        yield Seeder(http, cluster)


def collection_of(document: dict[str, Any]) -> str:
    """Return the path to which new objects of this kind are posted."""
    version = document["apiVersion"]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{scope}/{_PLURALS[document['kind']]}"


def _component(
    namespace: str, name: str, labels: dict[str, str], selector: dict[str, str], tolerations: list[dict[str, str]]
) -> dict[str, Any]:
    """Return a pod that only looks like one: the virtual node does its work, and stops while the pod is frozen."""
    image, resources = f"ghcr.io/example/{name}:1", {"requests": {"cpu": "10m"}}
    container: dict[str, Any] = {"name": name, "image": image, "resources": resources}
    if name == "nvidia-dcgm-exporter":  # without it an exporter runs a host engine of its own
        container["env"] = [{"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": "localhost:5555"}]
    pod = {
        "nodeSelector": selector,
        "tolerations": tolerations,
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _set_up_device_plugin(template: dict[str, Any], operator: GpuOperator) -> None:
    """Give the device plugin's pod the operator's settings, which say how it hands GPUs over."""
    (container,) = template["spec"]["containers"]
    container["env"] = [{"name": name, "value": value} for name, value in operator.device_plugin_settings.items()]
    template["metadata"]["annotations"] = operator.device_plugin_annotations(container["name"])


def _runtime_class(name: str) -> dict[str, Any]:
    return {
        "apiVersion": _RUNTIME_API,
        "kind": "RuntimeClass",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/component": "gpu-operator"}},
        "handler": name,
    }


def _training_job(name: str, pods: int, gpus: int, load: str, *, dra: bool) -> dict[str, Any]:
    """Return a job. With `dra` each pod has a claim from the template of the job's name, else it counts GPUs."""
    requests = {"cpu": "4", "memory": "32Gi"}
    by_claim = {"claims": [{"name": "gpus"}], "requests": requests}
    counted = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": requests}
    claims = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": name}]} if dra else {}
    container = {
        "name": "trainer",
        "image": "ghcr.io/example/trainer:1",
        "command": ["python", "train.py"],
        "resources": by_claim if dra else counted,
        "env": [
            {"name": "LD_PRELOAD", "value": f"/gameday-cuda/{LIBRARY}"},
            {"name": "GAMEDAY_CUDA_SWITCH", "value": "/gameday-cuda-switch/cuda-error"},
        ],
        "volumeMounts": [
            {"name": "gameday-cuda", "mountPath": "/gameday-cuda"},
            {"name": "gameday-cuda-switch", "mountPath": "/gameday-cuda-switch"},
        ],
    }
    annotation = {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}
    # As in deploy/cuda-error/pod-patch.yaml, without the init container that copies the library.
    volumes = [
        {"name": "gameday-cuda", "emptyDir": {}},
        {"name": "gameday-cuda-switch", "downwardAPI": {"items": [{"path": "cuda-error", "fieldRef": annotation}]}},
    ]
    return {
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 1000,
            # Otherwise every drain counts as a failure, and the job's back-off leaves GPUs idle for up to ten minutes.
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": {
                "metadata": {
                    "labels": {"app": name, MAY_FAIL[0]: MAY_FAIL[1]},
                    "annotations": {"virtual-node.gameday.dev/gpu-load": load},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 2,
                    "containers": [container],
                    "volumes": volumes,
                    **claims,
                },
            },
        },
    }
