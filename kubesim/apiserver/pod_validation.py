"""The errors of a pod spec, of a pod or of a template, and the fields that may not change in a stored pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from kubesim.apiserver.validation import Causes, Json, labels_causes, wrongs

ANY_RESTART = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_INT32_MAX = 2**31 - 1
_PORT_MAX = 65535
_AT_LEAST_0 = "must be greater than or equal to 0"
# Resources without a domain that a container may ask for.
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_POD_FIELDS = ("metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations",
               "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP",
               "status.podIPs")  # fmt: skip
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
            causes += _Container(container, f"{path}.{group}[{index}]", spec, volumes).causes(seen)
    if spec.get("restartPolicy", restart[0]) not in restart:
        causes.append(unsupported(f"{path}.restartPolicy", spec["restartPolicy"], restart))
    if spec.get("dnsPolicy", _DNS[0]) not in _DNS:
        causes.append(unsupported(f"{path}.dnsPolicy", spec["dnsPolicy"], _DNS))
    causes += labels_causes(spec.get("nodeSelector"), f"{path}.nodeSelector")
    causes += _named(spec, path, ("serviceAccountName", "nodeName"), subdomain_problems)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _INT32_MAX:
        causes.append(
            wrong(f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_INT32_MAX}, inclusive")
        )
    causes += _named(spec, path, ("hostname", "subdomain"), label_problems)
    return causes + tolerations_causes(spec.get("tolerations") or [], f"{path}.tolerations")


def _named(spec: Json, path: str, names: Iterable[str], problems: Callable[[str], list[str]]) -> Causes:
    """Return the causes against the names in a pod spec."""
    return [cause for name in names if spec.get(name)
            for cause in wrongs(f"{path}.{name}", spec[name], problems(spec[name]))]  # fmt: skip


def tolerations_causes(tolerations: list[Json], path: str) -> Causes:
    """Return the causes against tolerations."""
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
        if effect and effect not in _EFFECTS:
            causes.append(unsupported(f"{at}.effect", effect, _EFFECTS))
    return causes


def _volumes(volumes: list[Json], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at, name = f"{path}[{index}]", volume.get("name", "")
        sources = [source for source in volume if source != "name"]
        causes += [
            forbidden_field(f"{at}.{source}", "may not specify more than 1 volume type") for source in sources[1:]
        ]
        host = (volume.get("hostPath") or {}).get("path", "") if sources[:1] == ["hostPath"] else ""
        if ".." in host.split("/"):
            causes.append(wrong(f"{at}.hostPath.path", host, "must not contain '..'"))
        if sources[:1] == ["configMap"] and not volume["configMap"].get("name"):
            causes.append(required(f"{at}.configMap.name"))
        if sources[:1] == ["secret"] and not volume["secret"].get("secretName"):
            causes.append(required(f"{at}.secret.secretName"))
        if not name:
            causes.append(required(f"{at}.name"))
        elif name in seen:
            causes.append(duplicate(f"{at}.name", name))
        else:
            causes += wrongs(f"{at}.name", name, label_problems(name))
        seen.add(name)
    return causes


class _Container:
    """The causes against one container."""

    def __init__(self, container: Json, path: str, spec: Json, volumes: set[Any]) -> None:
        self._container = container
        self._path = path
        self._spec = spec
        self._volumes = volumes

    def causes(self, seen: set[str]) -> Causes:
        """Return all causes; `seen` are the names of the containers before it."""
        container, path, name = self._container, self._path, self._container.get("name", "")
        causes: Causes = []
        if not name:
            causes.append(required(f"{path}.name"))
        elif name in seen:
            causes.append(duplicate(f"{path}.name", name))
        else:
            causes += wrongs(f"{path}.name", name, label_problems(name))
        seen.add(name)
        image = container.get("image", "")
        if not image:
            causes.append(required(f"{path}.image"))
        elif image != image.strip():
            causes.append(wrong(f"{path}.image", image, "must not have leading or trailing whitespace"))
        for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
            if probe in container:
                causes += _probe(container[probe], f"{path}.{probe}", probe)
        policies = ("Always", "IfNotPresent", "Never")
        if container.get("imagePullPolicy", policies[0]) not in policies:
            causes.append(unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], policies))
        return causes + self._ports() + self._env() + self._mounts() + self._resources()

    def _ports(self) -> Causes:
        causes: Causes = []
        host = self._spec.get("hostNetwork")
        for index, port in enumerate(self._container.get("ports") or []):
            at, number = f"{self._path}.ports[{index}]", port.get("containerPort", 0)
            if not number:
                causes.append(required(f"{at}.containerPort"))
            elif not 1 <= number <= _PORT_MAX:
                causes.append(wrong(f"{at}.containerPort", number, f"must be between 1 and {_PORT_MAX}, inclusive"))
            if host and port.get("hostPort", number) != number:
                hint = "must match `containerPort` when `hostNetwork` is true"
                causes.append(wrong(f"{at}.hostPort", port["hostPort"], hint))
            protocols = ("SCTP", "TCP", "UDP")
            if port.get("protocol", "TCP") not in protocols:
                causes.append(unsupported(f"{at}.protocol", port["protocol"], protocols))
        return causes

    def _env(self) -> Causes:
        causes: Causes = []
        for index, variable in enumerate(self._container.get("env") or []):
            at, source = f"{self._path}.env[{index}]", variable.get("valueFrom")
            if not variable.get("name"):
                causes.append(required(f"{at}.name"))
            if source is None:
                continue
            if variable.get("value"):
                causes.append(wrong(f"{at}.valueFrom", "", "may not be specified when `value` is not empty"))
            field = (source.get("fieldRef") or {}).get("fieldPath")
            if field and field.partition("[")[0] not in _POD_FIELDS:
                hint = f"error converting fieldPath: field label not supported: {field}"
                causes.append(wrong(f"{at}.valueFrom.fieldRef.fieldPath", field, hint))
        return causes

    def _mounts(self) -> Causes:
        causes: Causes = []
        for index, mount in enumerate(self._container.get("volumeMounts") or []):
            at = f"{self._path}.volumeMounts[{index}]"
            if not mount.get("name"):
                causes.append(required(f"{at}.name"))
            elif mount["name"] not in self._volumes:
                causes.append(missing_reference(f"{at}.name", mount["name"]))
            if not mount.get("mountPath"):
                causes.append(required(f"{at}.mountPath"))
        return causes

    def _resources(self) -> Causes:
        resources, path = self._container.get("resources") or {}, f"{self._path}.resources"
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        causes = [
            cause for name, value in sorted(limits.items()) for cause in _amount(name, value, f"{path}.limits[{name}]")
        ]
        for name, value in sorted(requests.items()):
            causes += _amount(name, value, f"{path}.requests[{name}]")
            if name not in limits:
                if "/" in name:
                    hint = "Limit must be set for non overcommitable resources"
                    causes.append(required(f"{path}.limits", hint))
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
        causes.append(wrong(path, value, _AT_LEAST_0))
    if "/" in name and found != found.to_integral_value():
        causes.append(wrong(path, value, "must be an integer"))
    return causes


def _probe(probe: Json, path: str, kind: str) -> Causes:
    handlers = [handler for handler in _HANDLERS if handler in probe]
    causes = [forbidden_field(f"{path}.{one}", "may not specify more than 1 handler type") for one in handlers[1:]]
    if not handlers:
        causes.append(required(path, "must specify a handler type"))
    for name in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if probe.get(name, 0) < 0:
            causes.append(wrong(f"{path}.{name}", probe[name], _AT_LEAST_0))
    if kind != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        causes.append(wrong(f"{path}.successThreshold", probe["successThreshold"], "must be 1"))
    return causes


# Updates -------------------------------------------------------------------------------------------------------


def pod_causes(pod: Json, old: Json | None) -> Causes:
    """Return the causes against a pod (over `old`)."""
    causes = pod_spec_causes(pod["spec"], "spec")
    if old is None:
        if pod["spec"].get("schedulingGates") and pod["spec"].get("nodeName"):
            hint = "cannot be set until all schedulingGates have been cleared"
            causes.append(forbidden_field("spec.nodeName", hint))
        return causes
    if pod.get("status") is not old.get("status"):
        for index, condition in enumerate((pod.get("status") or {}).get("conditions") or []):
            kind = condition.get("type", "")
            causes += wrongs(f"status.conditions[{index}].Type", kind, qualified_problems(kind))
    return causes + _update_causes(pod["spec"], old["spec"])


def _update_causes(spec: Json, was: Json) -> Causes:
    if spec is was:
        return []
    for group in ("containers", "initContainers"):
        if len(spec.get(group) or []) != len(was.get(group) or []):
            return [forbidden_field(f"spec.{group}", f"pod updates may not add or remove {_words(group)}")]
    causes = _deadline(spec.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds"))
    kept = [_without(toleration, ("tolerationSeconds",)) for toleration in spec.get("tolerations") or []]
    if any(_without(toleration, ("tolerationSeconds",)) not in kept for toleration in was.get("tolerations") or []):
        hint = "existing toleration can not be modified except its tolerationSeconds"
        causes.append(forbidden_field("spec.tolerations", hint))
    if not causes and _frozen(spec, was) != _frozen(was, was):
        causes.append(forbidden_field("spec", _UPDATE_HINT + _difference(spec, was)))
    return causes


def _words(group: str) -> str:
    return "init containers" if group == "initContainers" else group


def _without(obj: Json, names: Iterable[str]) -> Json:
    return {key: value for key, value in obj.items() if key not in names}


def _deadline(deadline: int | None, was: int | None) -> Causes:
    field = "spec.activeDeadlineSeconds"
    if was is None or deadline == was:
        return []
    if deadline is None:
        return [wrong(field, None, "must not update from a positive integer to nil value")]
    return [wrong(field, deadline, "must be less than or equal to previous value")] if deadline > was else []


def _frozen(spec: Json, was: Json) -> Json:
    """The part of a spec that may not change."""
    kept = _without(spec, ("activeDeadlineSeconds", "tolerations"))
    if was.get("terminationGracePeriodSeconds", 0) < 0 and spec.get("terminationGracePeriodSeconds") == 1:
        kept["terminationGracePeriodSeconds"] = was["terminationGracePeriodSeconds"]
    if was.get("schedulingGates"):
        # A pod that still waits may lose gates and be given more about where to run.
        kept = _without(kept, ("schedulingGates", "nodeSelector", "affinity"))
    for group in ("containers", "initContainers"):
        kept[group] = [_without(item, ("image",)) for item in kept.get(group) or []]
    return kept


def _difference(spec: Json, was: Json) -> str:
    """The fields that differ; the real server prints them as Go would."""
    names = [name for name in sorted({*spec, *was}) if spec.get(name) != was.get(name)]
    return "\n".join(f"-{name}: {as_json(was.get(name))}\n+{name}: {as_json(spec.get(name))}" for name in names)
