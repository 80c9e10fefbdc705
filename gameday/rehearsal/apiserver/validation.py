"""What the server refuses with 422: names, label syntax, required fields, immutable fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gameday.rehearsal.apiserver.errors import cause, invalid, required, unsupported, wrong
from gameday.rehearsal.apiserver.resources import Resource

Json = dict[str, Any]
Causes = list[Json]

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_QUALIFIED = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
_CONFIG_KEY = re.compile(r"^[-._a-zA-Z0-9]+$")
_SUBDOMAIN_HINT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)
_LABEL_HINT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character"
)
_QUALIFIED_HINT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character"
)
_LABEL_NAMED = frozenset({"namespaces", "services"})
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESTART = ("Always", "OnFailure", "Never")
# Totals of k8s.io/kubernetes: annotations 256 KiB, ConfigMap and Secret data 1 MiB.
_ANNOTATIONS_MAX = 256 * 1024
_DATA_MAX = 1024 * 1024


def check(resource: Resource, obj: Json, old: Json | None = None) -> None:
    """Raise ApiError 422 with every cause when `obj` may not be stored (over `old`)."""
    causes = _metadata(resource, obj)
    specific = _CHECKS.get(resource.store_key)
    if specific is not None:
        causes += specific(obj, old)
    if causes:
        raise invalid(resource, obj["metadata"].get("name") or obj["metadata"].get("generateName", ""), causes)


def _metadata(resource: Resource, obj: Json) -> Causes:
    meta = obj["metadata"]
    name = meta.get("name", "")
    causes: Causes = []
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif "rbac" in resource.group:
        if "/" in name or "%" in name or name in (".", ".."):
            causes.append(wrong("metadata.name", name, "may not contain '/' or '%'"))
    elif resource.plural in _LABEL_NAMED:
        if not _LABEL.match(name):
            causes.append(wrong("metadata.name", name, _LABEL_HINT))
    elif len(name) > 253 or not _SUBDOMAIN.match(name):
        causes.append(wrong("metadata.name", name, _SUBDOMAIN_HINT))
    causes += labels_causes(meta.get("labels"), "metadata.labels")
    causes += _annotations(meta.get("annotations"))
    for index, owner in enumerate(meta.get("ownerReferences") or []):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                causes.append(required(f"metadata.ownerReferences[{index}].{field}"))
    return causes


def _key_causes(key: str, field: str) -> Causes:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or len(prefix) > 253 or not _SUBDOMAIN.match(prefix)):
        return [wrong(field, key, f"prefix part {_SUBDOMAIN_HINT}")]
    if len(name) > 63:
        return [wrong(field, key, "name part must be no more than 63 characters")]
    if not _QUALIFIED.match(name):
        return [wrong(field, key, _QUALIFIED_HINT)]
    return []


def labels_causes(labels: Any, field: str) -> Causes:
    """What is wrong with a label map."""
    if labels is None:
        return []
    if not isinstance(labels, dict):
        return [wrong(field, labels, "must be a map of strings")]
    causes: Causes = []
    for key, value in labels.items():
        causes += _key_causes(key, field)
        if not isinstance(value, str):
            causes.append(wrong(field, value, "must be a string"))
        elif len(value) > 63:
            causes.append(wrong(field, value, "must be no more than 63 characters"))
        elif value and not _QUALIFIED.match(value):
            causes.append(wrong(field, value, "a valid label must be an empty string or " + _QUALIFIED_HINT[15:]))
    return causes


def _annotations(annotations: Any) -> Causes:
    field = "metadata.annotations"
    if annotations is None:
        return []
    if not isinstance(annotations, dict) or not all(isinstance(value, str) for value in annotations.values()):
        return [wrong(field, "annotations", "must be a map of strings")]
    causes = [problem for key in annotations for problem in _key_causes(key.lower(), field)]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATIONS_MAX:
        causes.append(cause("FieldValueTooLong", field, f"Too long: may not be more than {_ANNOTATIONS_MAX} bytes"))
    return causes


def pod_spec_causes(spec: Any, path: str, restart: tuple[str, ...] = _RESTART) -> Causes:
    """What is wrong with a pod spec at `path`."""
    if not isinstance(spec, dict):
        return [required(f"{path}.containers")]
    containers = spec.get("containers")
    if not isinstance(containers, list) or not containers:
        return [required(f"{path}.containers")]
    causes: Causes = []
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            causes += _container(container, f"{path}.{group}[{index}]", seen)
    if spec.get("restartPolicy", restart[0]) not in restart:
        causes.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], restart))
    for index, toleration in enumerate(spec.get("tolerations") or []):
        field = f"{path}.tolerations[{index}]"
        if toleration.get("operator", "Equal") not in ("Equal", "Exists"):
            causes.append(unsupported(f"{field}.operator", toleration["operator"], ("Equal", "Exists")))
        if toleration.get("effect", "") not in ("", *_EFFECTS):
            causes.append(unsupported(f"{field}.effect", toleration["effect"], _EFFECTS))
    return causes


def _container(container: Any, path: str, seen: set[str]) -> Causes:
    if not isinstance(container, dict):
        return [wrong(path, container, "must be an object")]
    causes: Causes = []
    name = container.get("name")
    if not name:
        causes.append(required(f"{path}.name"))
    elif not _LABEL.match(name):
        causes.append(wrong(f"{path}.name", name, _LABEL_HINT))
    elif name in seen:
        causes.append(cause("FieldValueDuplicate", f"{path}.name", f'Duplicate value: "{name}"'))
    seen.add(name or "")
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    resources = container.get("resources") or {}
    for resource, limit in (resources.get("limits") or {}).items():
        asked = (resources.get("requests") or {}).get(resource, limit)
        if "/" in resource and str(asked) != str(limit):
            causes.append(wrong(f"{path}.resources.requests", str(asked), f"must be equal to {resource} limit"))
    return causes


# Fields of a stored pod's spec that may still change.
_POD_MUTABLE = frozenset({"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "nodeName"})
_POD_IMMUTABLE_HINT = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _pod(pod: Json, old: Json | None) -> Causes:
    causes = pod_spec_causes(pod.get("spec"), "spec")
    if old is None or causes:
        return causes
    if _frozen_pod_spec(pod["spec"]) != _frozen_pod_spec(old["spec"]):
        causes.append(cause("FieldValueForbidden", "spec", _POD_IMMUTABLE_HINT))
    if any(toleration not in (pod["spec"].get("tolerations") or []) for toleration in old["spec"]["tolerations"]):
        hint = "Forbidden: existing toleration can not be modified except its tolerationSeconds"
        causes.append(cause("FieldValueForbidden", "spec.tolerations", hint))
    if old["spec"].get("nodeName", "") != pod["spec"].get("nodeName", ""):
        causes.append(cause("FieldValueForbidden", "spec.nodeName", _POD_IMMUTABLE_HINT))
    return causes


def _frozen_pod_spec(spec: Json) -> Json:
    kept = {key: value for key, value in spec.items() if key not in _POD_MUTABLE}
    for group in ("containers", "initContainers"):
        if group in kept:
            kept[group] = [{key: value for key, value in item.items() if key != "image"} for item in kept[group]]
    return kept


def _template_causes(obj: Json, restart: tuple[str, ...]) -> Causes:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        return [required("spec.template")]
    template = spec.get("template")
    if not isinstance(template, dict):
        return [required("spec.template")]
    labels = (template.get("metadata") or {}).get("labels")
    causes = labels_causes(labels, "spec.template.metadata.labels")
    return causes + pod_spec_causes(template.get("spec"), "spec.template.spec", restart)


def _immutable(obj: Json, old: Json | None, *fields: str) -> Causes:
    if old is None:
        return []
    hint = "field is immutable"
    changed = [field for field in fields if obj["spec"].get(field) != old["spec"].get(field)]
    return [wrong(f"spec.{field}", "changed", hint) for field in changed]


def _job(job: Json, old: Json | None) -> Causes:
    causes = _template_causes(job, ("OnFailure", "Never"))
    if not causes and "restartPolicy" not in job["spec"]["template"]["spec"]:
        hint = 'Required value: valid values: "OnFailure", "Never"'
        causes.append(cause("FieldValueRequired", "spec.template.spec.restartPolicy", hint))
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        value = (job.get("spec") or {}).get(field, 0)
        if not isinstance(value, int) or value < 0:
            causes.append(wrong(f"spec.{field}", value, "must be greater than or equal to 0"))
    return causes or _immutable(job, old, "selector", "completions", "template", "completionMode")


def _selected(obj: Json, old: Json | None) -> Causes:
    causes = _template_causes(obj, ("Always",))
    spec = obj.get("spec") or {}
    selector = spec.get("selector")
    if not selector:
        return [*causes, required("spec.selector")]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        field = "spec.template.metadata.labels"
        causes.append(wrong(field, str(labels), "`selector` does not match template `labels`"))
    return causes or _immutable(obj, old, "selector")


def _node(node: Json, _old: Json | None) -> Causes:
    causes: Causes = []
    spec = node.get("spec") or {}
    taints = spec.get("taints") or []
    if not isinstance(taints, list):
        return [wrong("spec.taints", taints, "must be a list")]
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        field = f"spec.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        causes += _key_causes(key, f"{field}.key") if key else [required(f"{field}.key")]
        value = taint.get("value", "")
        if value and not _QUALIFIED.match(value):
            causes.append(wrong(f"{field}.value", value, _QUALIFIED_HINT))
        if not effect:
            causes.append(required(f"{field}.effect"))
        elif effect not in _EFFECTS:
            causes.append(unsupported(f"{field}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            causes.append(cause("FieldValueDuplicate", field, f'Duplicate value: "{key}:{effect}"'))
        seen.add((key, effect))
    return causes


def _data(obj: Json, old: Json | None) -> Causes:
    causes: Causes = []
    total = 0
    for field in ("data", "binaryData", "stringData"):
        for key, value in (obj.get(field) or {}).items():
            if len(key) > 253 or not _CONFIG_KEY.match(key):
                causes.append(wrong(f"{field}[{key}]", key, "a valid config key must consist of [-._a-zA-Z0-9]+"))
            if not isinstance(value, str):
                causes.append(wrong(f"{field}[{key}]", value, "must be a string"))
                continue
            total += len(value)
    if total > _DATA_MAX:
        causes.append(cause("FieldValueTooLong", "data", f"Too long: may not be more than {_DATA_MAX} bytes"))
    if old and old.get("immutable"):
        causes += [
            cause("FieldValueForbidden", field, "Forbidden: field is immutable when `immutable` is set")
            for field in ("data", "binaryData", "immutable")
            if obj.get(field) != old.get(field)
        ]
    if old and obj.get("type", old.get("type")) != old.get("type"):
        causes.append(wrong("type", obj.get("type"), "field is immutable"))
    return causes


def _lease(lease: Json, _old: Json | None) -> Causes:
    duration = (lease.get("spec") or {}).get("leaseDurationSeconds", 1)
    if not isinstance(duration, int) or duration <= 0:
        return [wrong("spec.leaseDurationSeconds", duration, "must be greater than 0")]
    return []


def _pdb(pdb: Json, _old: Json | None) -> Causes:
    spec = pdb.get("spec") or {}
    if "minAvailable" in spec and "maxUnavailable" in spec:
        return [wrong("spec", "both set", "minAvailable and maxUnavailable cannot be both set")]
    return []


def _role(role: Json, _old: Json | None) -> Causes:
    rules = enumerate(role.get("rules") or [])
    return [required(f"rules[{index}].verbs", "verbs must contain at least one value") for index, rule in rules
            if not rule.get("verbs")]  # fmt: skip


def _binding(binding: Json, old: Json | None) -> Causes:
    if not (binding.get("roleRef") or {}).get("name"):
        return [required("roleRef.name")]
    if old is not None and _role_ref(binding) != _role_ref(old):
        return [wrong("roleRef", _role_ref(binding), "cannot change roleRef")]
    return []


def _role_ref(binding: Json) -> tuple[str, str]:
    return binding["roleRef"].get("kind", ""), binding["roleRef"]["name"]


_CHECKS: dict[str, Callable[[Json, Json | None], Causes]] = {
    "clusterrolebindings.rbac.authorization.k8s.io": _binding,
    "clusterroles.rbac.authorization.k8s.io": _role,
    "configmaps": _data,
    "daemonsets.apps": _selected,
    "deployments.apps": _selected,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _lease,
    "nodes": _node,
    "poddisruptionbudgets.policy": _pdb,
    "pods": _pod,
    "replicasets.apps": _selected,
    "rolebindings.rbac.authorization.k8s.io": _binding,
    "roles.rbac.authorization.k8s.io": _role,
    "secrets": _data,
    "statefulsets.apps": _selected,
}
