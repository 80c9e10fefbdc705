"""Label and field selectors, parsed once per request into plain predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from gameday.rehearsal.apiserver.errors import bad_request
from gameday.rehearsal.apiserver.resources import Resource

Json = dict[str, Any]
Predicate = Callable[[Json], bool]
LabelTest = Callable[[Mapping[str, str]], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=,()<>]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*)\s*$")
_ORDER = re.compile(r"^\s*(?P<key>[^\s!=,()<>]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)\s*$")
_EXISTS = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=,()]+)\s*$")

# Fields besides metadata.name and metadata.namespace that may be selected on: path and what an absent one counts as.
_FIELDS: dict[str, dict[str, str]] = {
    "pods": {
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "false",
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    },
    "nodes": {"spec.unschedulable": "false"},
    "namespaces": {"status.phase": ""},
    "secrets": {"type": ""},
    "jobs.batch": {"status.successful": "0"},
    "events": {
        **{
            f"involvedObject.{name}": ""
            for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
        },
        "reason": "",
        "reportingComponent": "",
        "source": "",
        "type": "",
    },
    "replicasets.apps": {"status.replicas": "0"},
    "replicationcontrollers": {"status.replicas": "0"},
}
_RENAMED = {
    ("events", "source"): "source.component",
    ("jobs.batch", "status.successful"): "status.succeeded",
}


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _label_test(part: str) -> LabelTest:
    for pattern, make in _FORMS:
        match = pattern.match(part)
        if match:
            return make(match)
    raise bad_request(f"unable to parse requirement: found {part.strip()!r}, expected a label selector requirement")


def _in_set(match: re.Match[str]) -> LabelTest:
    key, values = match["key"], frozenset(value.strip() for value in match["values"].split(","))
    if match["op"] == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: key not in labels or labels[key] not in values


def _equals(match: re.Match[str]) -> LabelTest:
    key, value = match["key"], match["value"]
    if match["op"] == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _exists(match: re.Match[str]) -> LabelTest:
    key = match["key"]
    if match["no"]:
        return lambda labels: key not in labels
    return lambda labels: key in labels


def _ordered(match: re.Match[str]) -> LabelTest:
    key, operator, bound = match["key"], match["op"], int(match["value"])

    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if operator == ">" else value < bound

    return test


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], LabelTest]], ...] = (
    (_SET, _in_set),
    (_EQUAL, _equals),
    (_ORDER, _ordered),
    (_EXISTS, _exists),
)


def labels(selector: str) -> Predicate | None:
    """Predicate of a labelSelector; None when it selects everything. Raises ApiError 400."""
    if not selector.strip():
        return None
    tests = [_label_test(part) for part in _split(selector)]

    def predicate(obj: Json) -> bool:
        found = obj["metadata"].get("labels") or {}
        return all(test(found) for test in tests)

    return predicate


def matches_label_selector(selector: Json | None, found: Mapping[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions) against labels; None matches nothing, {} everything."""
    if selector is None:
        return False
    if any(found.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expression_holds(term, found) for term in selector.get("matchExpressions") or [])


def _expression_holds(term: Json, found: Mapping[str, str]) -> bool:
    key, values = term.get("key", ""), term.get("values") or []
    match term.get("operator"):
        case "In":
            return found.get(key) in values
        case "NotIn":
            return key not in found or found[key] not in values
        case "Exists":
            return key in found
        case "DoesNotExist":
            return key not in found
    return False


def _value_at(obj: Json, path: tuple[str, ...], default: str) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return default
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def fields(resource: Resource, selector: str) -> Predicate | None:
    """Predicate of a fieldSelector; None when it selects everything. Raises ApiError 400."""
    if not selector.strip():
        return None
    known = {"metadata.name": "", "metadata.namespace": "", **_FIELDS.get(resource.store_key, {})}
    tests: list[tuple[tuple[str, ...], str, bool, str]] = []
    for part in selector.split(","):
        match = _EQUAL.match(part)
        if not match:
            raise bad_request(f"invalid selector: {selector!r}; can't understand {part!r}")
        if match["key"] not in known:
            raise bad_request(f"field label not supported: {match['key']}")
        path = _RENAMED.get((resource.store_key, match["key"]), match["key"])
        tests.append((tuple(path.split(".")), match["value"], match["op"] != "!=", known[match["key"]]))

    def predicate(obj: Json) -> bool:
        return all((_value_at(obj, path, default) == value) is wanted for path, value, wanted, default in tests)

    return predicate


def name_in(selector: str) -> str:
    """The name a fieldSelector pins with metadata.name=…, else empty; RBAC's resourceNames use it."""
    for part in selector.split(","):
        match = _EQUAL.match(part)
        if match and match["key"] == "metadata.name" and match["op"] != "!=":
            return match["value"]
    return ""


def both(first: Predicate | None, second: Predicate | None) -> Predicate | None:
    """The conjunction."""
    if first is None or second is None:
        return first or second
    left, right = first, second
    return lambda obj: left(obj) and right(obj)
