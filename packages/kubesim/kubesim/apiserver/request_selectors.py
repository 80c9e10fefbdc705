"""Label and field selectors, parsed once per request into plain predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kubesim.apiserver.errors import bad_request
from kubesim.apiserver.label_grammar import parse
from kubesim.apiserver.resources import Resource
from kubesim.errors import SelectorError

Json = dict[str, Any]
Predicate = Callable[[Json], bool]

# A term of a field selector, which is split at its first operator.
_TERM = re.compile(r"(?P<key>.*?)(?P<op>!=|==|=)(?P<value>.*)", re.DOTALL)

# Fields that may be selected on, by resource, besides metadata.name and metadata.namespace: each with its path and the
# value of an absent one.
# Source: the field label conversions in pkg/apis/*/v1/conversion.go of k8s.io/kubernetes.
_Fields = Mapping[str, tuple[str, str]]


def _plain(*paths: str) -> _Fields:
    return {path: (path, "") for path in paths}


_SPACE = _plain("metadata.namespace")
_EVENT_PARTS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_FIELDS: Mapping[str, _Fields] = {
    "pods": {
        **_SPACE,
        **_plain("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
        "spec.hostNetwork": ("spec.hostNetwork", "false"),
        "spec.host": ("spec.nodeName", ""),
        **_plain("status.phase", "status.podIP", "status.nominatedNodeName"),
        # It is accepted, but matches no pod that has addresses, because they are a list.
        "status.podIPs": ("status.podIPs.none", ""),
    },
    "nodes": {"spec.unschedulable": ("spec.unschedulable", "false")},
    "namespaces": _plain("status.phase"),
    "secrets": {**_SPACE, **_plain("type")},
    "jobs.batch": {**_SPACE, "status.successful": ("status.succeeded", "0")},
    "events": {
        **_SPACE,
        **_plain(*(f"involvedObject.{part}" for part in _EVENT_PARTS), "reason", "reportingComponent", "type"),
        "source": ("source.component", ""),
    },
}


def label_predicate(selector: str) -> Predicate | None:
    """Return the predicate of a labelSelector; None if it selects everything. Raises StatusError 400."""
    try:
        tests = parse(selector)
    except SelectorError as error:
        raise bad_request(str(error)) from None
    if not tests:
        return None

    def predicate(obj: Json) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(test(found) for test in tests)

    return predicate


def _value_at(obj: Json, path: tuple[str, ...], default: str) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return default
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def field_predicate(resource: Resource, selector: str) -> Predicate | None:
    """Return the predicate of a fieldSelector; None if it selects everything. Raises StatusError 400."""
    tests: list[tuple[tuple[str, ...], str, bool, str]] = []
    for key, operator, value in _terms(selector):
        path, default = _field(resource, key)
        tests.append((tuple(path.split(".")), value, operator != "!=", default))
    if not tests:
        return None

    def predicate(obj: Json) -> bool:
        return all((_value_at(obj, path, default) == value) is wanted for path, value, wanted, default in tests)

    return predicate


def _field(resource: Resource, key: str) -> tuple[str, str]:
    """Return the path of a selectable field, and the value of an absent one."""
    if key == "metadata.name":
        return key, ""
    known = _FIELDS.get(resource.qualified, _SPACE)
    if key not in known:
        raise bad_request(f"field label not supported: {key}")
    return known[key]


def _terms(selector: str) -> list[tuple[str, str, str]]:
    """Return (field, operator, value) of each term that is not empty. Raises StatusError 400."""
    terms: list[tuple[str, str, str]] = []
    for term in filter(None, selector.split(",")):
        match = _TERM.fullmatch(term)
        if not match or "=" in match["value"] or "\\" in term:
            raise bad_request(f"invalid field selector: can't understand '{term}' in '{selector}'")
        terms.append((match["key"], match["op"], match["value"]))
    return terms


def pinned_name(selector: str) -> str:
    """Return the name that a fieldSelector requires by metadata.name=…, else empty; RBAC's resourceNames use it."""
    for term in selector.split(","):
        match = _TERM.fullmatch(term)
        if match and match["key"] == "metadata.name" and match["op"] != "!=":
            return match["value"]
    return ""


def conjunction(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """Return a predicate that holds if both do; None selects everything."""
    if first is None or second is None:
        return first or second
    left, right = first, second
    return lambda obj: left(obj) and right(obj)


def selector_predicate(query: Mapping[str, str], resource: Resource) -> Predicate | None:
    """Return a predicate of a request's selectors; None if they select everything.

    Raises:
        StatusError: 400 for a selector that does not parse or that names a field that cannot be selected on.
    """
    return conjunction(
        label_predicate(query.get("labelSelector", "")), field_predicate(resource, query.get("fieldSelector", ""))
    )
