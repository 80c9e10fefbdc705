"""How lists and maps of the built-in kinds merge: what strategic merge patch, server-side apply and
managedFields need to know of the types, and nothing more. Source: the patchStrategy, patchMergeKey, listType
and mapType markers of k8s.io/api (core/v1 types.go and friends).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListRule:
    """How a list of maps merges.

    `patch_key`: strategic merge's key, "" when the patch replaces the list. `apply_keys`: server-side apply's
    keys with their defaults (None: no default), () when the list is atomic.
    """

    patch_key: str = ""
    apply_keys: tuple[tuple[str, object], ...] = ()
    retain_keys: bool = False


ATOMIC = ListRule()


def _keyed(key: str) -> ListRule:
    return ListRule(key, ((key, None),))


_BY_FIELD: dict[str, ListRule] = {
    "addresses": _keyed("type"),
    "conditions": _keyed("type"),
    "containers": _keyed("name"),
    "env": _keyed("name"),
    "ephemeralContainers": _keyed("name"),
    "hostAliases": _keyed("ip"),
    "imagePullSecrets": _keyed("name"),
    "initContainers": _keyed("name"),
    "ownerReferences": _keyed("uid"),
    "podIPs": _keyed("ip"),
    "resourceClaims": _keyed("name"),
    "schedulingGates": _keyed("name"),
    "secrets": _keyed("name"),
    "topologySpreadConstraints": ListRule("topologyKey", (("topologyKey", None), ("whenUnsatisfiable", None))),
    "volumeDevices": _keyed("devicePath"),
    "volumeMounts": _keyed("mountPath"),
    "volumes": ListRule("name", (("name", None),), retain_keys=True),
    "claims": ListRule("", (("name", None),)),
}
_CONTAINER_PORTS = ListRule("containerPort", (("containerPort", None), ("protocol", "TCP")))
_SERVICE_PORTS = ListRule("port", (("port", None), ("protocol", "TCP")))

# Lists of scalars that merge as sets. Node.spec.taints and pod tolerations have no patch strategy: atomic.
_SETS = frozenset({"finalizers", "podCIDRs"})

# Maps (not structs): a newly added one is itself a member of the writer's field set.
_MAPS = frozenset(
    {
        "annotations",
        "labels",
        "data",
        "stringData",
        "binaryData",
        "capacity",
        "allocatable",
        "limits",
        "requests",
        "parameters",
    }
)
# Maps and structs replaced as a whole (mapType or structType atomic).
_ATOMIC_MAPS = frozenset(
    {
        "selector",
        "nodeSelector",
        "matchLabels",
        "labelSelector",
        "namespaceSelector",
        "podSelector",
        "involvedObject",
        "regarding",
        "related",
        "secretKeyRef",
        "configMapKeyRef",
        "fieldRef",
        "resourceFieldRef",
        "roleRef",
        "topology",
    }
)


def list_rule(path: tuple[str, ...]) -> ListRule:
    """The rule of the list of maps at a path of field names (list items do not appear in it)."""
    field = path[-1]
    if field == "ports":
        if "subsets" in path:
            return ATOMIC
        return _CONTAINER_PORTS if len(path) > 1 and path[-2].endswith("ontainers") else _SERVICE_PORTS
    if field == "imagePullSecrets" and len(path) == 1:
        return ListRule("name", ())  # ServiceAccount's, atomic for apply
    if field == "secrets" and len(path) > 1:
        return ATOMIC
    return _BY_FIELD.get(field, ATOMIC)


def is_set(path: tuple[str, ...]) -> bool:
    """Whether the list of scalars at the path merges as a set."""
    return path[-1] in _SETS


def is_map(path: tuple[str, ...]) -> bool:
    """Whether the object at the path is a map rather than a struct."""
    return path[-1] in _MAPS


def is_atomic_map(path: tuple[str, ...]) -> bool:
    """Whether the object at the path is owned and replaced as a whole."""
    return path[-1] in _ATOMIC_MAPS and path[:1] != ("data",)
