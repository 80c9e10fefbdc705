"""What the server says in passing about objects that it takes, in Warning headers."""

from __future__ import annotations

from typing import Any

from kubesim import quantity
from kubesim.apiserver.resources import Resource

Json = dict[str, Any]

_OLD_SELECTORS = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
}
_TEMPLATED = frozenset({"daemonsets", "deployments", "jobs", "replicasets", "replicationcontrollers", "statefulsets"})


def of(resource: Resource, obj: Json) -> list[str]:
    """The warnings about a new object of a kind that has any."""
    name, meta = resource.plural, obj["metadata"]
    if name == "pods":
        hint = "this is used in the Pod's hostname, which can result in surprising behavior"
        return _dots(meta["name"], hint) + _pod(obj["spec"], meta.get("annotations") or {}, "")
    if name == "jobs":
        hint = "this is used in Pod names and hostnames, which can result in surprising behavior"
        found = _dots(meta["name"], hint)
    else:
        found = _service(obj["spec"]) if name == "services" else []
    if name in _TEMPLATED:
        template = obj["spec"].get("template") or {}
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        found += _pod(template.get("spec") or {}, annotations, "spec.template.")
    return found


def of_update(resource: Resource, obj: Json, old: Json) -> list[str]:
    """The warnings about an object that changed."""
    if resource.plural == "services":
        return _service(obj["spec"])
    if resource.plural != "pods" and obj.get("spec") != old.get("spec"):
        return of(resource, obj)
    return []


def _service(spec: Json) -> list[str]:
    if spec.get("clusterIP") == "None" and spec.get("sessionAffinity") != "None":
        return ["spec.SessionAffinity is ignored for headless services"]
    return []


def _dots(name: str, hint: str) -> list[str]:
    return [f"metadata.name: {hint}; a DNS label is recommended: [must not contain dots]"] if "." in name else []


def _pod(spec: Json, annotations: Json, path: str) -> list[str]:
    found: list[str] = []
    for label, (since, instead) in _OLD_SELECTORS.items():
        if label in (spec.get("nodeSelector") or {}):
            found.append(f'{path}spec.nodeSelector[{label}]: deprecated since {since}; use "{instead}" instead')
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or []):
        if "labelSelector" not in constraint:
            hint = "a null labelSelector results in matching no pod"
            found.append(f"{path}spec.topologySpreadConstraints[{index}].labelSelector: {hint}")
    seccomp = "seccomp.security.alpha.kubernetes.io/pod"
    if seccomp in annotations:
        hint = 'non-functional in v1.27+; use the "seccompProfile" field instead'
        found.append(f"{path}metadata.annotations[{seccomp}]: {hint}")
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group) or []):
            found += _container(container, f"{path}spec.{group}[{index}]")
    return found


def _container(container: Json, path: str) -> list[str]:
    found: list[str] = []
    for part in ("limits", "requests"):
        for resource, value in sorted(((container.get("resources") or {}).get(part) or {}).items()):
            number = quantity.value_of(str(value))
            if resource in ("memory", "ephemeral-storage") and number != number.to_integral_value():
                hint = f'fractional byte value "{value}" is invalid, must be an integer'
                found.append(f"{path}.resources.{part}[{resource}]: {hint}")
    names: set[str] = set()
    for index, variable in enumerate(container.get("env") or []):
        if variable["name"] in names:
            hint = f'hides previous definition of "{variable["name"]}", which may be dropped when using apply'
            found.append(f"{path}.env[{index}]: {hint}")
        names.add(variable["name"])
    return found + _ports(container.get("ports") or [], path)


def _ports(ports: list[Json], path: str) -> list[str]:
    found: list[str] = []
    seen: dict[tuple[Any, ...], int] = {}
    for index, port in enumerate(ports):
        key = tuple(port.get(part) for part in ("containerPort", "protocol", "hostPort", "hostIP"))
        first = seen.setdefault(key, index)
        if first != index:
            found.append(f"{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]")
    return found
