"""Validation of pod specs, in pods and in templates, and of changes to a stored pod.

It checks what the clients here can get wrong; a real server also checks ports, probes, hosts and volumes' contents.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubesim import quantity
from kubesim.apiserver.errors import (
    as_json,
    duplicate,
    forbidden_field,
    missing_reference,
    required,
    unsupported,
    wrong,
)
from kubesim.apiserver.names import label_problems, qualified_problems, subdomain_problems
from kubesim.apiserver.validation import AT_LEAST_0, EFFECTS, Causes, Json, labels_causes, wrongs

ANY_RESTART = ("Always", "OnFailure", "Never")
_INT32_MAX = 2**31 - 1
# The resources without a domain that a container may ask for.
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_UPDATE_HINT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"
)


def pod_spec_causes(spec: Json, path: str, restart: tuple[str, ...] = ANY_RESTART) -> Causes:
    """Return the causes against a pod spec at `path`."""
    causes = _volumes(spec.get("volumes") or [], f"{path}.volumes")
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    seen: set[str] = set()
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or []):
            causes += _container(container, f"{path}.{group}[{index}]", volumes, seen)
    if spec.get("restartPolicy", restart[0]) not in restart:
        causes.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], restart))
    causes += labels_causes(spec.get("nodeSelector"), f"{path}.nodeSelector")
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            causes += wrongs(f"{path}.{name}", spec[name], subdomain_problems(spec[name]))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        hint = f"must be between 1 and {_INT32_MAX}, inclusive"
        causes.append(wrong(f"{path}.activeDeadlineSeconds", deadline, hint))
    return causes + _tolerations(spec.get("tolerations") or [], f"{path}.tolerations")


def _tolerations(tolerations: list[Json], path: str) -> Causes:
    causes: Causes = []
    for index, toleration in enumerate(tolerations):
        at, key, effect = f"{path}[{index}]", toleration.get("key", ""), toleration.get("effect", "")
        operator, value = toleration.get("operator", ""), toleration.get("value", "")
        if key:
            causes += wrongs(f"{at}.key", key, qualified_problems(key))
        elif operator != "Exists":
            hint = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(wrong(f"{at}.operator", operator, hint))
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            causes.append(wrong(f"{at}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
        if operator not in ("", "Equal", "Exists"):
            causes.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
        elif operator == "Exists" and value:
            causes.append(wrong(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
        if effect and effect not in EFFECTS:
            causes.append(unsupported(f"{at}.effect", effect, EFFECTS))
    return causes


def _named(item: Json, path: str, seen: set[str]) -> Causes:
    """Return the causes against the name of a volume or container; `seen` has the names before it."""
    name = item.get("name", "")
    if not name:
        return [required(f"{path}.name")]
    if name in seen:
        return [duplicate(f"{path}.name", name)]
    seen.add(name)
    return wrongs(f"{path}.name", name, label_problems(name))


def _volumes(volumes: list[Json], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        sources = [source for source in volume if source != "name"]
        causes += [
            forbidden_field(f"{at}.{source}", "may not specify more than 1 volume type") for source in sources[1:]
        ]
        causes += _named(volume, at, seen)
    return causes


def _container(container: Json, path: str, volumes: set[Any], seen: set[str]) -> Causes:
    causes = _named(container, path, seen)
    if not container.get("image"):
        causes.append(required(f"{path}.image"))
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            causes.append(required(f"{path}.env[{index}].name"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        at = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(required(f"{at}.name"))
        elif mount["name"] not in volumes:
            causes.append(missing_reference(f"{at}.name", mount["name"]))
        if not mount.get("mountPath"):
            causes.append(required(f"{at}.mountPath"))
    return causes + _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Json, path: str) -> Causes:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes = [
        cause for name, value in sorted(limits.items()) for cause in _amount(name, value, f"{path}.limits[{name}]")
    ]
    for name, value in sorted(requests.items()):
        causes += _amount(name, value, f"{path}.requests[{name}]")
        if name not in limits:
            if "/" in name:
                causes.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
            continue
        asked, limit = quantity.value_of(str(value)), quantity.value_of(str(limits[name]))
        if "/" in name and asked != limit:
            causes.append(wrong(f"{path}.requests", value, f"must be equal to {name} limit of {limits[name]}"))
        elif asked > limit:
            hint = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(wrong(f"{path}.requests", value, hint))
    return causes


def _amount(name: str, value: str, path: str) -> Causes:
    causes = wrongs(path, name, qualified_problems(name))
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        causes.append(wrong(path, name, "must be a standard resource type or fully qualified"))
        causes.append(wrong(path, name, "must be a standard resource for containers"))
    found = quantity.value_of(str(value))
    if found < 0:
        causes.append(wrong(path, value, AT_LEAST_0))
    if "/" in name and found != found.to_integral_value():
        causes.append(wrong(path, value, "must be an integer"))
    return causes


# Updates -------------------------------------------------------------------------------------------------------


def pod_causes(pod: Json, old: Json | None) -> Causes:
    """Return the causes against a pod (over `old`)."""
    causes = pod_spec_causes(pod["spec"], "spec")
    return causes if old is None else causes + _update_causes(pod["spec"], old["spec"])


def _update_causes(spec: Json, was: Json) -> Causes:
    if spec is was:
        return []
    for group, words in (("containers", "containers"), ("initContainers", "init containers")):
        if len(spec.get(group) or []) != len(was.get(group) or []):
            return [forbidden_field(f"spec.{group}", f"pod updates may not add or remove {words}")]
    causes = _deadline(spec.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds"))
    kept = [_without(toleration, ("tolerationSeconds",)) for toleration in spec.get("tolerations") or []]
    if any(_without(toleration, ("tolerationSeconds",)) not in kept for toleration in was.get("tolerations") or []):
        hint = "existing toleration can not be modified except its tolerationSeconds"
        causes.append(forbidden_field("spec.tolerations", hint))
    if not causes and _frozen(spec) != _frozen(was):
        names = [name for name in sorted({*spec, *was}) if spec.get(name) != was.get(name)]
        # The real server prints the fields that differ as Go would.
        shown = [f"-{name}: {as_json(was.get(name))}\n+{name}: {as_json(spec.get(name))}" for name in names]
        causes.append(forbidden_field("spec", _UPDATE_HINT + "\n".join(shown)))
    return causes


def _without(obj: Json, names: Iterable[str]) -> Json:
    return {key: value for key, value in obj.items() if key not in names}


def _deadline(deadline: int | None, was: int | None) -> Causes:
    field = "spec.activeDeadlineSeconds"
    if was is None or deadline == was:
        return []
    if deadline is None:
        return [wrong(field, None, "must not update from a positive integer to nil value")]
    return [wrong(field, deadline, "must be less than or equal to previous value")] if deadline > was else []


def _frozen(spec: Json) -> Json:
    """Return the part of a spec that may not change."""
    kept = _without(spec, ("activeDeadlineSeconds", "tolerations"))
    for group in ("containers", "initContainers"):
        kept[group] = [_without(item, ("image",)) for item in kept.get(group) or []]
    return kept
