"""The rules of single kinds: jobs, daemonsets, nodes, budgets, leases, configmaps and secrets, events."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kubesim import quantity
from kubesim.apiserver.errors import duplicate, forbidden_field, invalid, required, too_long, unsupported, wrong
from kubesim.apiserver.names import qualified_problems, value_problems
from kubesim.apiserver.pod_validation import pod_causes, pod_spec_causes
from kubesim.apiserver.resources import Resource
from kubesim.apiserver.validation import AT_LEAST_0, EFFECTS, Causes, Json, labels_causes, metadata_causes, wrongs
from kubesim.selectors import matches_labels

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_HINT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    f"'key-name', regex used for validation is '{_CONFIG_KEY.pattern}')"
)
_CONFIG_KEY_MAX = 253
# Total of k8s.io/kubernetes: ConfigMap and Secret data 1 MiB.
_DATA_MAX = 1024 * 1024
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_HINT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    f"validation is '{_PERCENT.pattern}')"
)


def check(resource: Resource, obj: Json, old: Json | None = None) -> None:
    """Raise StatusError 422 with every cause when `obj` may not be stored (over `old`)."""
    causes = metadata_causes(resource, obj, old)
    specific = _CHECKS.get(resource.qualified)
    if specific is not None:
        causes += specific(obj, old)
    if causes:
        raise invalid(resource, obj["metadata"].get("name", ""), causes)


def _numbers(spec: Json, names: tuple[str, ...]) -> Causes:
    return [wrong(f"spec.{name}", spec[name], AT_LEAST_0) for name in names if (spec.get(name) or 0) < 0]


def _fixed(spec: Json, was: Json | None, *names: str) -> Causes:
    """Return the causes against changes of fields that may not change."""
    if was is None:
        return []
    return [
        wrong(f"spec.{name}", spec.get(name), "field is immutable") for name in names if spec.get(name) != was.get(name)
    ]


def _template(spec: Json, restart: tuple[str, ...]) -> Causes:
    template = spec.get("template") or {}
    causes = labels_causes((template.get("metadata") or {}).get("labels"), "spec.template.metadata.labels")
    return causes + pod_spec_causes(template.get("spec") or {}, "spec.template.spec", restart)


def _unselected(spec: Json) -> Causes:
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if spec.get("selector") and matches_labels(spec["selector"], labels or {}):
        return []
    shown = dict(sorted(labels.items())) if labels else None
    return [wrong("spec.template.metadata.labels", shown, "`selector` does not match template `labels`")]


def _job(job: Json, old: Json | None) -> Causes:
    spec, was = job["spec"], old["spec"] if old else None
    causes = _numbers(spec, ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit"))
    causes += _numbers(spec, ("ttlSecondsAfterFinished",))
    uid_label = "batch.kubernetes.io/controller-uid"
    if old is None and not spec.get("manualSelector"):
        wanted = {"matchLabels": {uid_label: job["metadata"]["uid"]}}
        if spec.get("selector") != wanted:
            causes.append(wrong("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
    causes += _unselected(spec)
    # The restart policy of a Job has its own message.
    policy = spec.get("template", {}).get("spec", {}).get("restartPolicy", "")
    causes += _template(spec, (policy, "OnFailure", "Never"))
    if policy not in ("OnFailure", "Never"):
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    fixed = ["selector", "completionMode"]
    if was and (not was.get("suspend") or spec.get("template") == was.get("template")):
        fixed.append("template")
    if was and (spec.get("completionMode") != "Indexed" or spec.get("completions") != spec.get("parallelism")):
        fixed.insert(0, "completions")
    return causes + _fixed(spec, was, *fixed)


def _daemonset(obj: Json, old: Json | None) -> Causes:
    spec, selector = obj["spec"], obj["spec"].get("selector")
    causes = labels_causes((selector or {}).get("matchLabels"), "spec.selector.matchLabels")
    if selector is not None and not selector:
        causes.append(wrong("spec.selector", selector, "empty selector is invalid for daemonset"))
    causes += _numbers(spec, ("minReadySeconds", "revisionHistoryLimit"))
    if selector is None or (selector and not causes):
        causes += _unselected(spec)
    causes += _template(spec, ("Always",))
    causes += _fixed(spec, old["spec"] if old else None, "selector")
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type", ""), "RollingUpdate": None}
        causes.append(unsupported("spec.updateStrategy", shown, ("RollingUpdate", "OnDelete")))
    return causes


def _node(node: Json, old: Json | None) -> Causes:
    spec = node.get("spec") or {}
    was = (old or {}).get("spec") or {}
    causes = _taints(spec.get("taints") or []) if spec.get("taints") is not was.get("taints") else []
    status, before = node.get("status") or {}, (old or {}).get("status") or {}
    for name in ("capacity", "allocatable"):
        if status.get(name) is before.get(name):
            continue
        for resource, value in sorted((status.get(name) or {}).items()):
            number, at = quantity.value_of(str(value)), f"status.{name}.{resource}"
            if number < 0:
                causes.append(wrong(at, value, AT_LEAST_0))
            if _is_counted(resource) and number != number.to_integral_value():
                causes.append(wrong(at, value, "must be an integer"))
    return causes


def _is_counted(resource: str) -> bool:
    """Return True if a node's resource comes in whole numbers: pods, and devices under a domain of their own."""
    domain, slash, _ = resource.partition("/")
    return resource == "pods" or bool(slash and not domain.endswith("kubernetes.io"))


def _taints(taints: list[Json]) -> Causes:
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # The real server says metadata.taints here, not spec.taints.
        field = f"metadata.taints[{index}]"
        key, effect, value = taint.get("key", ""), taint.get("effect", ""), taint.get("value", "")
        causes += wrongs(f"{field}.key", key, qualified_problems(key))
        causes += wrongs(f"{field}.value", value, value_problems(value))
        if not effect:
            causes.append(required(f"{field}.effect"))
        elif effect not in EFFECTS:
            causes.append(unsupported(f"{field}.effect", effect, EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            causes.append(duplicate(field, shown, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return causes


def _data(obj: Json, old: Json | None) -> Causes:
    causes: Causes = []
    total = 0
    for field in ("data", "binaryData"):
        for key, value in sorted((obj.get(field) or {}).items()):
            causes += _config_key(key, f"{field}[{key}]")
            if field == "data" and key in (obj.get("binaryData") or {}):
                causes.append(wrong(f"{field}[{key}]", key, "duplicate of key present in binaryData"))
            # The real server counts decoded bytes, which are three quarters of the base64.
            total += len(value.encode()) if field == "data" and "type" not in obj else len(value) * 3 // 4
    if total > _DATA_MAX:
        causes.append(too_long("data" if "type" in obj else "", _DATA_MAX))
    if old is None:
        return causes
    if old.get("immutable"):
        hint = "field is immutable when `immutable` is set"
        changed = [field for field in ("immutable", "data", "binaryData") if obj.get(field) != old.get(field)]
        causes += [forbidden_field(field, hint) for field in changed]
    return causes


def _config_key(key: str, field: str) -> Causes:
    causes: Causes = []
    if len(key) > _CONFIG_KEY_MAX:
        causes.append(wrong(field, key, f"must be no more than {_CONFIG_KEY_MAX} characters"))
    if not _CONFIG_KEY.fullmatch(key):
        causes.append(wrong(field, key, _CONFIG_KEY_HINT))
    elif key in (".", "..") or key.startswith(".."):
        causes.append(wrong(field, key, f"must not be '{key}'" if key in (".", "..") else "must not start with '..'"))
    return causes


def _lease(lease: Json, _old: Json | None) -> Causes:
    spec = lease.get("spec") or {}
    causes: Causes = []
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        causes.append(wrong("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    return causes + _numbers(spec, ("leaseTransitions",))


def _pdb(pdb: Json, _old: Json | None) -> Causes:
    spec = pdb.get("spec") or {}
    causes: Causes = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {
            "MinAvailable": spec["minAvailable"],
            "Selector": spec.get("selector"),
            "MaxUnavailable": spec["maxUnavailable"],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        causes.append(wrong("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        causes += _share(spec.get(name), f"spec.{name}")
    return causes


def _share(value: Any, field: str) -> Causes:
    """Return the causes against a value that must be a number or a percentage."""
    if isinstance(value, int):
        return [wrong(field, value, AT_LEAST_0)] if value < 0 else []
    if value is None:
        return []
    if not _PERCENT.fullmatch(value):
        return [wrong(field, value, _PERCENT_HINT)]
    return [wrong(field, value, "must not be greater than 100%")] if int(value[:-1]) > 100 else []


def _event(event: Json, _old: Json | None) -> Causes:
    """Check that an Event is in the namespace of its object, or in `default` if that has none."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if about == namespace or (not about and namespace == "default"):
        return []
    return [wrong("involvedObject.namespace", about, "does not match event.namespace")]


_CHECKS: dict[str, Callable[[Json, Json | None], Causes]] = {
    "configmaps": _data,
    "daemonsets.apps": _daemonset,
    "events": _event,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _lease,
    "nodes": _node,
    "poddisruptionbudgets.policy": _pdb,
    "pods": pod_causes,
    "secrets": _data,
}
