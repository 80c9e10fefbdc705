"""Validation that the server refuses with 422: names, labels, annotations, owners, finalizers.

The kinds' own rules are in pod_validation.py and kind_validation.py. Messages and their order are the real server's.
"""

from __future__ import annotations

from typing import Any

from kubesim.apiserver.errors import forbidden_field, required, too_long, wrong
from kubesim.apiserver.names import label_problems, qualified_problems, subdomain_problems, value_problems
from kubesim.apiserver.resources import Resource

Json = dict[str, Any]
Causes = list[Json]

# Kinds whose names are DNS labels, since they become parts of host names.
_LABEL_NAMED = frozenset({"namespaces", "services"})
# Kinds whose names nobody checks beyond what a path can hold.
_PATH_NAMED = frozenset({"poddisruptionbudgets"})
_STANDARD_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})
_CHECKED = ("labels", "annotations", "ownerReferences", "finalizers")
# The total of k8s.io/apimachinery's TotalAnnotationSizeLimitB.
_ANNOTATIONS_MAX = 256 * 1024


def wrongs(field: str, value: str, problems: list[str]) -> Causes:
    """A cause for each problem of one value."""
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
        # The generated suffix counts as letters.
        causes += wrongs("metadata.generateName", prefix, _name_problems(resource, prefix.rstrip("-.") or "x"))
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif old is None:
        causes += wrongs("metadata.name", name, _name_problems(resource, name))
    if old is not None:
        causes += _immutable(meta, old["metadata"])
        # Parts that a status or a patch of the spec shares with the stored object were checked when it was stored.
        if all(meta.get(part) is old["metadata"].get(part) for part in _CHECKED):
            return causes
    causes += labels_causes(meta.get("labels"), "metadata.labels")
    causes += _annotations(meta.get("annotations"))
    causes += _owners(meta.get("ownerReferences") or [])
    causes += _finalizers(meta.get("finalizers") or [])
    if old is not None and "deletionTimestamp" in old["metadata"]:
        before = old["metadata"].get("finalizers") or []
        added = sorted(name for name in meta.get("finalizers") or [] if name not in before)
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            hint = "no new finalizers can be added if the object is being deleted, found new finalizers "
            causes.append(forbidden_field("metadata.finalizers", f"{hint}[]string{{{shown}}}"))
    return causes


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


def _owners(owners: list[Json]) -> Causes:
    field = "metadata.ownerReferences"
    causes: Causes = []
    for index, owner in enumerate(owners):
        at, version = f"{field}[{index}]", owner.get("apiVersion", "")
        if not version:
            causes.append(required(f"{at}.apiVersion", "must not be empty"))
        elif version.count("/") > 1:
            causes.append(wrong(f"{at}.apiVersion", version, "must be <group>/<version> or <version>"))
        causes += [
            required(f"{at}.{part}", "must not be empty") for part in ("kind", "name", "uid") if not owner.get(part)
        ]
        if (version, owner.get("kind")) == ("v1", "Event"):
            causes.append(wrong(at, owner, "/v1, Kind=Event is disallowed from being an owner"))
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        one, two = (f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        hint = f'Only one reference can have Controller set to true. Found "true" in references for {one} and {two}'
        causes.append(wrong(field, owners, hint))
    return causes


def _finalizers(finalizers: list[str]) -> Causes:
    field = "metadata.finalizers"
    causes: Causes = []
    for index, name in enumerate(finalizers):
        causes += wrongs(field, name, qualified_problems(name))
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            hint = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(wrong(f"{field}[{index}]", name, hint))
    if {"orphan", "foregroundDeletion"} <= {*finalizers}:
        causes.append(wrong(field, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    return causes


def selector_causes(selector: Json | None, field: str) -> Causes:
    """Return the causes against a label selector."""
    causes = labels_causes((selector or {}).get("matchLabels"), f"{field}.matchLabels")
    for index, term in enumerate((selector or {}).get("matchExpressions") or []):
        at, operator, values = f"{field}.matchExpressions[{index}]", term.get("operator", ""), term.get("values")
        if operator in ("In", "NotIn") and not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            hint = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden_field(f"{at}.values", hint))
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            causes.append(wrong(f"{at}.operator", operator, "not a valid selector operator"))
        causes += wrongs(f"{at}.key", term.get("key", ""), qualified_problems(term.get("key", "")))
    return causes
