"""Validation that ends in 422: names, labels, annotations, and metadata that may not change.

The kinds' own rules are in pod_validation.py and kind_validation.py. Messages and their order are the real server's.
"""

from __future__ import annotations

from typing import Any

from kubesim.apiserver.errors import required, too_long, wrong
from kubesim.apiserver.names import label_problems, qualified_problems, subdomain_problems, value_problems
from kubesim.apiserver.resources import Resource

Json = dict[str, Any]
Causes = list[Json]

# Kinds with DNS labels as names, because those become parts of host names.
_LABEL_NAMED = frozenset({"namespaces"})
# Kinds with names that must only fit into a path.
_PATH_NAMED = frozenset({"poddisruptionbudgets"})
_CHECKED = ("labels", "annotations")
# The total of k8s.io/apimachinery's TotalAnnotationSizeLimitB.
_ANNOTATIONS_MAX = 256 * 1024
AT_LEAST_0 = "must be greater than or equal to 0"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
"""The effects of taints."""


def wrongs(field: str, value: str, problems: list[str]) -> Causes:
    """Return a cause for each problem of one value."""
    return [wrong(field, value, problem) for problem in problems]


def labels_causes(labels: Json | None, field: str) -> Causes:
    """Return the causes against a label map."""
    causes: Causes = []
    for key, value in sorted((labels or {}).items()):
        causes += wrongs(field, key, qualified_problems(key)) + wrongs(field, value, value_problems(value))
    return causes


def _name_problems(resource: Resource, name: str) -> list[str]:
    if "rbac" in resource.group or resource.plural in _PATH_NAMED:
        if name in (".", ".."):
            return [f"may not be '{name}'"]
        return [f"may not contain '{letter}'" for letter in "/%" if letter in name]
    if resource.plural in _LABEL_NAMED:
        if "." in name:
            return ["must not contain dots"]
        return label_problems(name)
    return subdomain_problems(name)


# Metadata ------------------------------------------------------------------------------------------------------


def metadata_causes(resource: Resource, obj: Json, old: Json | None) -> Causes:
    """Return the causes against an object's metadata (over those of `old`)."""
    meta = obj["metadata"]
    name, prefix = meta.get("name", ""), meta.get("generateName", "")
    causes: Causes = []
    if prefix and old is None:
        # The suffix that will be generated counts as letters.
        causes += wrongs("metadata.generateName", prefix, _name_problems(resource, prefix.rstrip("-.") or "x"))
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif old is None:
        causes += wrongs("metadata.name", name, _name_problems(resource, name))
    if old is not None:
        causes += _immutable(meta, old["metadata"])
        # Parts that are those of the stored object were checked when it was stored.
        if all(meta.get(part) is old["metadata"].get(part) for part in _CHECKED):
            return causes
    causes += labels_causes(meta.get("labels"), "metadata.labels")
    return causes + _annotations(meta.get("annotations"))


def _immutable(meta: Json, was: Json) -> Causes:
    names = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
    return [
        wrong(f"metadata.{name}", meta.get(name), "field is immutable")
        for name in names
        if meta.get(name) != was.get(name)
    ]


def _annotations(annotations: Json | None) -> Causes:
    field = "metadata.annotations"
    found = sorted((annotations or {}).items())
    causes = [problem for key, _ in found for problem in wrongs(field, key, qualified_problems(key.lower()))]
    if sum(len(key.encode()) + len(value.encode()) for key, value in found) > _ANNOTATIONS_MAX:
        causes.append(too_long(field, _ANNOTATIONS_MAX))
    return causes
