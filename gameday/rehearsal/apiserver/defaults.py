"""What the real server fills in before it stores an object: API defaults and the admission steps that
schedulers, kubelets and Job controllers rely on (DefaultTolerationSeconds, ServiceAccount, Priority)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

# Values of k8s.io/kubernetes pkg/apis/core/v1/defaults.go and pkg/apis/batch/v1/defaults.go.
GRACE_S = 30
EVICTION_TOLERATION_S = 300
JOB_BACKOFF_LIMIT = 6


def pod_spec(spec: Json) -> None:
    """Fill a pod spec (of a pod or a template) in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        if isinstance(container, dict):
            _container(container)


def _container(container: Json) -> None:
    image = container.get("image") or ""
    tagless = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if tagless and "@" not in image else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    for name, limit in (resources.get("limits") or {}).items():
        resources["requests"] = {name: limit, **(resources.get("requests") or {})}
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for env in container.get("env") or []:
        field = (env.get("valueFrom") or {}).get("fieldRef")
        if field:
            field.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe:
            for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1)):
                probe.setdefault(key, value)
            probe.setdefault("failureThreshold", 3)


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory."""
    requests: list[dict[str, str]] = []
    guaranteed = True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        asked = {k: v for k, v in (resources.get("requests") or {}).items() if k in ("cpu", "memory")}
        limit = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory")}
        requests.append({**asked, **limit})
        guaranteed = guaranteed and len(limit) == 2 and all(asked.get(k, v) == v for k, v in limit.items())
    if not any(requests):
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _pod(pod: Json) -> None:
    spec = pod["spec"]
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("priority", 0)
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    tolerations = list(spec.get("tolerations") or [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates_eviction(toleration, key) for toleration in tolerations):
            seconds = {"tolerationSeconds": EVICTION_TOLERATION_S}
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", **seconds})
    spec["tolerations"] = tolerations
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}


def _tolerates_eviction(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in ("NoExecute", "")


def _template(obj: Json) -> None:
    template = obj["spec"].get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        template.setdefault("metadata", {})
        pod_spec(template["spec"])


def _job(job: Json) -> None:
    spec, meta = job["spec"], job["metadata"]
    _template(job)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else JOB_BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    job["status"] = {}
    if spec["manualSelector"]:
        return
    uid, template = meta["uid"], spec.get("template")
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    if isinstance(template, dict):
        labels = template["metadata"].setdefault("labels", {}) if "metadata" in template else {}
        labels.update({"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid})
        labels.update({"batch.kubernetes.io/job-name": meta["name"], "job-name": meta["name"]})


def _cronjob(cronjob: Json) -> None:
    spec = cronjob["spec"]
    for key, value in (("concurrencyPolicy", "Allow"), ("suspend", False)):
        spec.setdefault(key, value)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    cronjob["status"] = {}


def _daemonset(daemonset: Json) -> None:
    _template(daemonset)
    spec = daemonset["spec"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec.setdefault("updateStrategy", rolling)
    spec.setdefault("revisionHistoryLimit", 10)
    zeros = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    daemonset["status"] = dict.fromkeys(zeros, 0)


def _replicated(obj: Json) -> None:
    _template(obj)
    obj["spec"].setdefault("replicas", 1)
    obj["status"] = {"replicas": 0}


def _deployment(deployment: Json) -> None:
    _template(deployment)
    spec = deployment["spec"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    for key, value in (("replicas", 1), ("revisionHistoryLimit", 10), ("progressDeadlineSeconds", 600)):
        spec.setdefault(key, value)
    spec.setdefault("strategy", rolling)
    deployment["status"] = {}


def _namespace(namespace: Json) -> None:
    namespace["spec"] = {**(namespace.get("spec") or {}), "finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]


def _pdb(pdb: Json) -> None:
    zeros = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    pdb["status"] = dict.fromkeys(zeros, 0)


def _node(node: Json) -> None:
    # TaintNodesByCondition: a node proves itself Ready before work is placed on it.
    spec = node.setdefault("spec", {})
    not_ready = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    taints = spec.get("taints") or []
    if not any(taint.get("key") == not_ready["key"] and taint.get("effect") == "NoSchedule" for taint in taints):
        spec["taints"] = [*taints, not_ready]
    node.setdefault("status", {})


def _secret(secret: Json) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _event(event: Json) -> None:
    event.setdefault("source", {})
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def _service(service: Json) -> None:
    spec = service["spec"]
    for key, value in (("type", "ClusterIP"), ("sessionAffinity", "None"), ("internalTrafficPolicy", "Cluster")):
        spec.setdefault(key, value)
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    service["status"] = {"loadBalancer": {}}


def _rbac_binding(binding: Json) -> None:
    group = "rbac.authorization.k8s.io"
    binding.setdefault("roleRef", {}).setdefault("apiGroup", group)
    for subject in binding.get("subjects") or []:
        subject.setdefault("apiGroup", "" if subject.get("kind") == "ServiceAccount" else group)
        if not subject["apiGroup"]:
            del subject["apiGroup"]


def _priority_class(item: Json) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")


_CREATE: dict[str, Callable[[Json], None]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _rbac_binding,
    "cronjobs.batch": _cronjob,
    "daemonsets.apps": _daemonset,
    "deployments.apps": _deployment,
    "events": _event,
    "jobs.batch": _job,
    "namespaces": _namespace,
    "nodes": _node,
    "poddisruptionbudgets.policy": _pdb,
    "pods": _pod,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": _replicated,
    "replicationcontrollers": _replicated,
    "rolebindings.rbac.authorization.k8s.io": _rbac_binding,
    "secrets": _secret,
    "services": _service,
    "statefulsets.apps": _replicated,
}
_UPDATE: dict[str, Callable[[Json], None]] = {
    "daemonsets.apps": _template,
    "deployments.apps": _template,
    "jobs.batch": _template,
    "pods": lambda pod: pod_spec(pod["spec"]),
    "replicasets.apps": _template,
    "secrets": _secret,
    "statefulsets.apps": _template,
}


def on_create(key: str, obj: Json) -> None:
    """Fill a new object in place; `key` is its store key, the spec has been validated."""
    fill = _CREATE.get(key)
    if fill is not None:
        fill(obj)


def on_update(key: str, obj: Json) -> None:
    """Fill a replaced object in place: what was left out falls back to its default again."""
    fill = _UPDATE.get(key)
    if fill is not None:
        fill(obj)
