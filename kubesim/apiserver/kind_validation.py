"""The rules of single kinds: workloads, nodes, budgets, leases, roles, configmaps and secrets, events."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any

from kubesim import quantity
from kubesim.apiserver.errors import (
    duplicate,
    failed,
    forbidden_field,
    invalid,
    required,
    too_long,
    unsupported,
    wrong,
)
from kubesim.apiserver.names import qualified_problems, subdomain_problems, value_problems
from kubesim.apiserver.pod_validation import pod_causes, pod_spec_causes
from kubesim.apiserver.resources import CANONICAL, Resource
from kubesim.apiserver.validation import Causes, Json, labels_causes, metadata_causes, selector_causes, wrongs
from kubesim.selectors import matches_labels

_AT_LEAST_0 = "must be greater than or equal to 0"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
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
_RBAC = "rbac.authorization.k8s.io"
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_USER_PRIORITY_MAX = 1_000_000_000
_SECRET_KEYS = {
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_POD_SECURITY = "pod-security.kubernetes.io/"
# ActionLengthLimit and its like, and NoteLengthLimit, of pkg/apis/core/validation/events.go, in bytes.
_EVENT_PART_MAX, _EVENT_NOTE_MAX = 128, 1024


def check(resource: Resource, obj: Json, old: Json | None = None) -> None:
    """Raise StatusError 422 with every cause when `obj` may not be stored (over `old`)."""
    causes = metadata_causes(resource, obj, old)
    specific = _CHECKS.get(resource.store_key)
    if specific is not None:
        causes += specific(obj, old)
    if resource.store_key == "events":
        causes += _event(resource, obj)
        causes += _new_event(obj) if resource.group and old is None else []
    if causes:
        raise invalid(CANONICAL[resource.store_key], obj["metadata"].get("name", ""), causes)


def _numbers(spec: Json, names: tuple[str, ...]) -> Causes:
    return [wrong(f"spec.{name}", spec[name], _AT_LEAST_0) for name in names if (spec.get(name) or 0) < 0]


def _fixed(spec: Json, was: Json | None, *names: str) -> Causes:
    """Fields of the spec that may not change."""
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
    modes = ("NonIndexed", "Indexed")
    if spec.get("completionMode", modes[0]) not in modes:
        causes.append(unsupported("spec.completionMode", spec["completionMode"], modes))
    uid_label = "batch.kubernetes.io/controller-uid"
    if old is None and not spec.get("manualSelector"):
        wanted = {"matchLabels": {uid_label: job["metadata"]["uid"]}}
        if spec.get("selector") != wanted:
            causes.append(wrong("spec.selector", spec.get("selector"), "`selector` not auto-generated"))
    causes += _unselected(spec)
    # The restart policy of a Job has its own message.
    causes += _template(spec, (spec.get("template", {}).get("spec", {}).get("restartPolicy", ""), "OnFailure", "Never"))
    if spec.get("template", {}).get("spec", {}).get("restartPolicy") not in ("OnFailure", "Never"):
        causes.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    fixed = ["selector", "completionMode"]
    if was and (not was.get("suspend") or spec.get("template") == was.get("template")):
        fixed.append("template")
    if was and (spec.get("completionMode") != "Indexed" or spec.get("completions") != spec.get("parallelism")):
        fixed.insert(0, "completions")
    return causes + _fixed(spec, was, *fixed)


def _cronjob(cronjob: Json, _old: Json | None) -> Causes:
    schedule = cronjob["spec"].get("schedule", "")
    if not schedule:
        return [required("spec.schedule")]
    fields = schedule.split()
    if len(fields) != 5 and not schedule.startswith("@"):
        hint = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        return [wrong("spec.schedule", schedule, hint)]
    return []


def _selected(obj: Json, old: Json | None, kind: str) -> Causes:
    """A workload with a selector and a template; `kind` is how messages call it."""
    spec, selector = obj["spec"], obj["spec"].get("selector")
    causes: Causes = []
    if selector is None:
        if kind != "daemonset":
            causes.append(required("spec.selector"))
    else:
        problems = selector_causes(selector, "spec.selector")
        if problems and kind != "daemonset":
            problems.append(wrong("spec.selector", selector, "invalid label selector"))
        causes += problems
        if not selector:
            causes.append(wrong("spec.selector", selector, f"empty selector is invalid for {kind}"))
    causes += _numbers(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"))
    if selector is None or (selector and not causes):
        causes += _unselected(spec)
    causes += _template(spec, ("Always",))
    return causes + _fixed(spec, old["spec"] if old else None, "selector")


def _deployment(obj: Json, old: Json | None) -> Causes:
    return _selected(obj, old, "deployment")


def _statefulset(obj: Json, old: Json | None) -> Causes:
    return _selected(obj, old, "statefulset")


def _daemonset(obj: Json, old: Json | None) -> Causes:
    causes = _selected(obj, old, "daemonset")
    strategy = obj["spec"].get("updateStrategy") or {}
    field = "spec.updateStrategy"
    if strategy.get("type") not in ("RollingUpdate", "OnDelete"):
        shown = {"Type": strategy.get("type", ""), "RollingUpdate": None}
        causes.append(unsupported(field, shown, ("RollingUpdate", "OnDelete")))
    rolling = strategy.get("rollingUpdate") or {}
    if strategy.get("type") == "RollingUpdate" and {rolling.get("maxUnavailable"), rolling.get("maxSurge")} <= {
        0,
        "0%",
        None,
    }:
        causes.append(required(f"{field}.rollingUpdate.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes


def _node(node: Json, old: Json | None) -> Causes:
    spec = node.get("spec") or {}
    was = (old or {}).get("spec") or {}
    causes = _taints(spec.get("taints") or []) if spec.get("taints") is not was.get("taints") else []
    for index, block in enumerate(spec.get("podCIDRs") or []):
        if not _is_network(block):
            hint = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            causes.append(wrong(f"spec.podCIDRs[{index}]", block, hint))
    if was.get("providerID") and spec.get("providerID") != was["providerID"]:
        causes.append(wrong("spec.providerID", None, "field cannot be modified once set"))
    status, before = node.get("status") or {}, (old or {}).get("status") or {}
    for name in ("capacity", "allocatable"):
        if status.get(name) is before.get(name):
            continue
        for resource, value in sorted((status.get(name) or {}).items()):
            number, at = quantity.value_of(str(value)), f"status.{name}.{resource}"
            if number < 0:
                causes.append(wrong(at, value, _AT_LEAST_0))
            if _is_counted(resource) and number != number.to_integral_value():
                causes.append(wrong(at, value, "must be an integer"))
    return causes


def _is_counted(resource: str) -> bool:
    """Return whether there are only whole ones of a node's resource: pods, and devices under a domain of their own."""
    domain, slash, _ = resource.partition("/")
    return resource == "pods" or bool(slash and not domain.endswith("kubernetes.io"))


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _taints(taints: list[Json]) -> Causes:
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        # The real server says metadata.taints, and not spec.taints.
        field = f"metadata.taints[{index}]"
        key, effect, value = taint.get("key", ""), taint.get("effect", ""), taint.get("value", "")
        causes += wrongs(f"{field}.key", key, qualified_problems(key))
        causes += wrongs(f"{field}.value", value, value_problems(value))
        if not effect:
            causes.append(required(f"{field}.effect"))
        elif effect not in _EFFECTS:
            causes.append(unsupported(f"{field}.effect", effect, _EFFECTS))
        if (key, effect) in seen:
            shown = {"Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            causes.append(duplicate(field, shown, "taints must be unique by key and effect pair"))
        seen.add((key, effect))
    return causes


def _namespace(namespace: Json, _old: Json | None) -> Causes:
    causes: Causes = []
    for label, value in sorted((namespace["metadata"].get("labels") or {}).items()):
        mode = label.removeprefix(_POD_SECURITY)
        field = f"metadata.labels[{label}]"
        if mode in ("enforce", "audit", "warn") and value not in ("privileged", "baseline", "restricted"):
            causes.append(wrong(field, value, "must be one of privileged, baseline, restricted"))
        elif mode in ("enforce-version", "audit-version", "warn-version") and not re.fullmatch(
            r"latest|v1\.\d+", value
        ):
            causes.append(wrong(field, value, 'must be "latest" or "v1.x"'))
    return causes


def _data(obj: Json, old: Json | None) -> Causes:
    causes: Causes = []
    total = 0
    for field in ("data", "binaryData"):
        for key, value in sorted((obj.get(field) or {}).items()):
            causes += _config_key(key, f"{field}[{key}]")
            if field == "data" and key in (obj.get("binaryData") or {}):
                causes.append(wrong(f"{field}[{key}]", key, "duplicate of key present in binaryData"))
            # Base64 is three quarters data; so far the real server counts what it decoded.
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


def _secret(secret: Json, old: Json | None) -> Causes:
    causes = _data(secret, old)
    kind = secret.get("type", "")
    missing = [key for key in _SECRET_KEYS.get(kind, ()) if key not in (secret.get("data") or {})]
    if kind == "kubernetes.io/basic-auth" and len(missing) == 1:
        missing = []
    causes += [required(f"data[{key}]") for key in missing]
    account = "kubernetes.io/service-account.name"
    if kind == "kubernetes.io/service-account-token" and not (secret["metadata"].get("annotations") or {}).get(account):
        causes.append(required(f"metadata.annotations[{account}]"))
    if old is not None and kind != old.get("type"):
        causes.append(wrong("type", kind, "field is immutable"))
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
    policies = ("AlwaysAllow", "IfHealthyBudget")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in policies:
        causes.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, policies))
    return causes + selector_causes(spec.get("selector"), "spec.selector")


def _share(value: Any, field: str) -> Causes:
    """A number or a percentage."""
    if isinstance(value, int):
        return [wrong(field, value, _AT_LEAST_0)] if value < 0 else []
    if value is None:
        return []
    if not _PERCENT.fullmatch(value):
        return [wrong(field, value, _PERCENT_HINT)]
    return [wrong(field, value, "must not be greater than 100%")] if int(value[:-1]) > 100 else []


def _role(role: Json, _old: Json | None) -> Causes:
    return _rules(role, namespaced="namespace" in role["metadata"])


def _rules(role: Json, *, namespaced: bool) -> Causes:
    causes: Causes = []
    for index, rule in enumerate(role.get("rules") or []):
        at, urls = f"rules[{index}]", rule.get("nonResourceURLs")
        if not rule.get("verbs"):
            causes.append(required(f"{at}.verbs"))
        if urls and namespaced:
            causes.append(wrong(f"{at}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs"))
        elif urls and (rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames")):
            hint = "rules cannot apply to both regular resources and non-resource URLs"
            causes.append(wrong(f"{at}.nonResourceURLs", urls, hint))
        if urls:
            continue
        if not rule.get("apiGroups"):
            causes.append(required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            causes.append(required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def _binding(binding: Json, old: Json | None) -> Causes:
    ref = binding.get("roleRef") or {}
    namespaced = "namespace" in binding["metadata"]
    if ref.get("kind") not in ("Role", "ClusterRole"):
        # The check that nobody gives away more rights than their own comes first, and fails on it.
        raise failed(f'unsupported role reference kind: "{ref.get("kind", "")}"')
    causes: Causes = []
    if ref.get("apiGroup") != _RBAC:
        causes.append(unsupported("roleRef.apiGroup", ref.get("apiGroup", ""), (_RBAC,)))
    if not namespaced and ref["kind"] != "ClusterRole":
        causes.append(unsupported("roleRef.kind", ref["kind"], ("ClusterRole",)))
    if not ref.get("name"):
        causes.append(required("roleRef.name"))
    causes += _subjects(binding.get("subjects") or [], namespaced)
    if old is not None and ref != old.get("roleRef"):
        causes.append(wrong("roleRef", ref, "field is immutable"))
    return causes


def _subjects(subjects: list[Json], namespaced: bool) -> Causes:
    kinds = ("ServiceAccount", "User", "Group")
    first: Causes = []
    nameless: Causes = []
    for index, subject in enumerate(subjects):
        at, kind, name = f"subjects[{index}]", subject.get("kind", ""), subject.get("name", "")
        if not name:
            nameless.append(required(f"{at}.name"))
        if kind not in kinds:
            first.append(unsupported(f"{at}.kind", kind, kinds))
        elif kind == "ServiceAccount":
            first += wrongs(f"{at}.name", name, subdomain_problems(name)) if name else []
            if not namespaced and not subject.get("namespace"):
                first.append(required(f"{at}.namespace"))
    return first + nameless


def _priority_class(item: Json, old: Json | None) -> Causes:
    name, value = item["metadata"].get("name", ""), item.get("value", 0)
    causes: Causes = []
    if old is None and name.startswith("system-") and _SYSTEM_PRIORITIES.get(name) != value:
        hint = "priority class names with 'system-' prefix are reserved for system use only. error: "
        causes.append(forbidden_field("metadata.name", f"{hint}{name} is not a known system priority class"))
    elif value > _USER_PRIORITY_MAX and name not in _SYSTEM_PRIORITIES:
        hint = f"maximum allowed value of a user defined priority is {_USER_PRIORITY_MAX}"
        causes.append(forbidden_field("value", hint))
    policies = ("PreemptLowerPriority", "Never")
    if item.get("preemptionPolicy", policies[0]) not in policies:
        causes.append(unsupported("preemptionPolicy", item["preemptionPolicy"], policies))
    if old is not None and value != old.get("value", 0):
        causes.append(forbidden_field("value", "may not be changed in an update."))
    return causes


def _event(resource: Resource, event: Json) -> Causes:
    """Check an Event; one with an eventTime has more rules (legacyValidateEvent in pkg/apis/core/validation)."""
    about = (event.get("involvedObject") or {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    # Events about what lies in no namespace lie in `default`.
    fits = about == namespace or (not about and namespace == "default")
    if event.get("eventTime"):
        fits = bool(about) or namespace in ("default", "kube-system")
    causes = [] if fits else [wrong("involvedObject.namespace", about, "does not match event.namespace")]
    return causes + (_timed_event(resource, event) if event.get("eventTime") else [])


def _timed_event(resource: Resource, event: Json) -> Causes:
    field, controller = "reportingController" if resource.group else "reportingComponent", "reportingComponent"
    causes = [] if event.get(controller) else [required(field)]
    causes += wrongs(field, event.get(controller, ""), qualified_problems(event.get(controller, "")))
    for name in ("reportingInstance", "action", "reason"):
        if not event.get(name):
            causes.append(required(name))
        elif len(event[name].encode()) > _EVENT_PART_MAX:
            causes.append(wrong(name, "", f"can have at most {_EVENT_PART_MAX} characters"))
    if len(event.get("message", "").encode()) > _EVENT_NOTE_MAX:
        causes.append(wrong("message", "", f"can have at most {_EVENT_NOTE_MAX} characters"))
    return causes


def _new_event(event: Json) -> Causes:
    """Check an Event that is created by way of events.k8s.io."""
    causes: Causes = []
    series = event.get("series")
    if series is not None and series.get("count", 0) < 2:
        causes.append(wrong("series.count", "", "should be at least 2"))
    if not event.get("eventTime"):
        causes.append(required("eventTime"))
    kind = event.get("type", "")
    if kind not in ("Normal", "Warning"):
        causes.append(wrong("type", "", f"has invalid value: {kind}"))
    old_parts = ("firstTimestamp", "lastTimestamp", "count", "source")
    return causes + [wrong(part, "", "needs to be unset") for part in old_parts if event.get(part)]


def _pod_template(template: Json, _old: Json | None) -> Causes:
    inner = template.get("template") or {}
    return pod_spec_causes(inner.get("spec") or {}, "template.spec")


_CHECKS: dict[str, Callable[[Json, Json | None], Causes]] = {
    f"clusterrolebindings.{_RBAC}": _binding,
    f"clusterroles.{_RBAC}": _role,
    "configmaps": _data,
    "cronjobs.batch": _cronjob,
    "daemonsets.apps": _daemonset,
    "deployments.apps": _deployment,
    "jobs.batch": _job,
    "leases.coordination.k8s.io": _lease,
    "namespaces": _namespace,
    "nodes": _node,
    "poddisruptionbudgets.policy": _pdb,
    "pods": pod_causes,
    "podtemplates": _pod_template,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "replicasets.apps": _deployment,
    f"rolebindings.{_RBAC}": _binding,
    f"roles.{_RBAC}": _role,
    "secrets": _secret,
    "statefulsets.apps": _statefulset,
}
