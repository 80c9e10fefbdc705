"""Values that the real server fills in before it stores an object.

They are the kinds' defaults, and the values that their strategies set or reset on creation; admission.py has those that
admission adds.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]

# Values of k8s.io/kubernetes pkg/apis/core/v1/defaults.go and pkg/apis/batch/v1/defaults.go.
GRACE_S = 30
JOB_BACKOFF_LIMIT = 6
_FILE_MODE = 0o644
_TOKEN_S = 3600


def pod_spec(spec: Json) -> None:
    """Fill a pod spec (of a pod or a template) in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_S)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        _container(container)
        for port in container.get("ports") or [] if spec.get("hostNetwork") else []:
            port.setdefault("hostPort", port.get("containerPort"))
    for volume in spec.get("volumes") or []:
        _pod_volume(volume)


def _container(container: Json) -> None:
    # The tag of a reference follows its colon; a registry's port and a digest are no tags.
    tagged = container.get("image", "").partition("@")[0].rpartition("/")[2]
    digested = "@" in container.get("image", "")
    latest = tagged.endswith(":latest") or (":" not in tagged and not digested)
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
    for env in container.get("env") or []:
        source = env.get("valueFrom") or {}
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
        if "resourceFieldRef" in source:
            source["resourceFieldRef"].setdefault("divisor", "0")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            _probe(container[name])
    for hook in (container.get("lifecycle") or {}).values():
        _handler(hook)


def _probe(probe: Json) -> None:
    _handler(probe)
    for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):
        probe.setdefault(key, value)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _handler(handler: Any) -> None:
    if isinstance(handler, dict) and "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")


def _pod_volume(volume: Json) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "downwardAPI", "projected"):
        if source in volume:
            volume[source].setdefault("defaultMode", _FILE_MODE)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for source in [*(volume.get("projected") or {}).get("sources", []), volume]:
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_S)
        for item in (source.get("downwardAPI") or {}).get("items") or []:
            if "fieldRef" in item:
                item["fieldRef"].setdefault("apiVersion", "v1")


def _counted(amounts: Json | None) -> dict[str, str]:
    return {name: str(value) for name, value in (amounts or {}).items() if name in ("cpu", "memory") and value != "0"}


def qos_class(spec: Json) -> str:
    """Return Guaranteed, Burstable or BestEffort, by cpu and memory."""
    requests: list[dict[str, str]] = []
    guaranteed = True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") or {}
        asked = _counted(resources.get("requests"))
        limit = _counted(resources.get("limits"))
        requests.append({**asked, **limit})
        guaranteed = guaranteed and len(limit) == 2 and all(asked.get(k, v) == v for k, v in limit.items())
    if not any(requests):
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _pod(pod: Json) -> None:
    spec = pod["spec"]
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        # A limit without a request becomes the request, in pods but not in templates.
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def _new_pod(pod: Json) -> None:
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(pod["spec"])}
    if pod["spec"].get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        gated["message"] = "Scheduling is blocked due to non-empty scheduling gates"
        pod["status"]["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": None}]


def _template(obj: Json) -> None:
    pod_spec(obj["spec"]["template"].setdefault("spec", {}))


def _job(job: Json) -> None:
    spec = job["spec"]
    _template(job)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else JOB_BACKOFF_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or []:
        for condition in rule.get("onPodConditions") or []:
            condition["status"] = condition.get("status") or "True"


def _new_job(job: Json) -> None:
    spec, meta = job["spec"], job["metadata"]
    job["status"] = {}
    if spec["manualSelector"]:
        return
    uid, label = meta["uid"], "batch.kubernetes.io/controller-uid"
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), label: uid}
    labels = spec["template"]["metadata"].setdefault("labels", {})
    labels.update({label: uid, "controller-uid": uid})
    labels.update({"batch.kubernetes.io/job-name": meta["name"], "job-name": meta["name"]})
    # A job without labels of its own gets its template's.
    meta.setdefault("labels", dict(labels))


def _daemonset(daemonset: Json) -> None:
    _template(daemonset)
    spec = daemonset["spec"]
    strategy = spec.setdefault("updateStrategy", {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _new_daemonset(daemonset: Json) -> None:
    zeros = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
    daemonset["status"] = dict.fromkeys(zeros, 0)
    meta = daemonset["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: "1"}


def _changed_daemonset(daemonset: Json, old: Json) -> None:
    """Count the template's generation in an annotation, even if the client writes another value."""
    count = int((old["metadata"].get("annotations") or {}).get(_TEMPLATE_GENERATION, "0"))
    if daemonset["spec"]["template"] != old["spec"]["template"]:
        count += 1
    meta = daemonset["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), _TEMPLATE_GENERATION: str(count)}


def _namespace(namespace: Json) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _new_namespace(namespace: Json) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _new_pdb(pdb: Json) -> None:
    zeros = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    pdb["status"] = dict.fromkeys(zeros, 0)


def _node(node: Json) -> None:
    spec, status = node["spec"], node["status"]
    if spec.get("podCIDR"):
        spec.setdefault("podCIDRs", [spec["podCIDR"]])
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _secret(secret: Json) -> None:
    secret.setdefault("type", "Opaque")
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _rbac_binding(binding: Json) -> None:
    group = "rbac.authorization.k8s.io"
    ref = binding["roleRef"]
    ref["apiGroup"] = ref.get("apiGroup") or group
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", group)


def _priority_class(item: Json) -> None:
    item.setdefault("preemptionPolicy", "PreemptLowerPriority")


_DEFAULTS: dict[str, Callable[[Json], None]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _rbac_binding,
    "daemonsets.apps": _daemonset,
    "jobs.batch": _job,
    "namespaces": _namespace,
    "nodes": _node,
    "pods": _pod,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "rolebindings.rbac.authorization.k8s.io": _rbac_binding,
    "secrets": _secret,
}
_NEW: dict[str, Callable[[Json], None]] = {
    "daemonsets.apps": _new_daemonset,
    "jobs.batch": _new_job,
    "namespaces": _new_namespace,
    "poddisruptionbudgets.policy": _new_pdb,
    "pods": _new_pod,
}


def fill(key: str, obj: Json) -> None:
    """Fill the defaults of a decoded object in place; `key` is its collection."""
    defaulted = _DEFAULTS.get(key)
    if defaulted is not None:
        defaulted(obj)


def fill_status(key: str, obj: Json, old: Json) -> None:
    """Fill, in place, the defaults of a status that a client wrote and what clients cannot change."""
    if key == "nodes":
        obj["status"] = {**obj["status"]}
        _node(obj)
    elif key == "pods" and "qosClass" in old.get("status", {}):
        obj["status"] = {**obj["status"], "qosClass": old["status"]["qosClass"]}


def before_create(key: str, obj: Json) -> None:
    """Apply what a new object's strategy sets or resets, after admission, before validation."""
    made = _NEW.get(key)
    if made is not None:
        made(obj)


def before_update(key: str, obj: Json, old: Json) -> None:
    """Apply what a changed object's strategy sets or keeps as it was."""
    if key == "daemonsets.apps":
        _changed_daemonset(obj, old)
    elif key == "namespaces":
        obj["spec"] = old.get("spec", {})
