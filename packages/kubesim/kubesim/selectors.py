"""Evaluate selector objects: LabelSelector, nodeSelector and node affinity."""

from __future__ import annotations

from collections.abc import Mapping

from kubesim.client import Object

Labels = Mapping[str, str]


def _requirement_holds(values: Labels, requirement: Object) -> bool:
    """Evaluate one entry of matchExpressions or matchFields; unknown operators match nothing."""
    present = requirement["key"] in values
    value = values.get(requirement["key"], "")
    wanted = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return present and value in wanted
        case "NotIn":
            return not present or value not in wanted
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case "Gt" | "Lt" as operator:
            return present and _compares(value, operator, wanted)
        case _:
            return False


def _compares(value: str, operator: str, wanted: list[str] | tuple[str, ...]) -> bool:
    try:
        left, right = int(value), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right


def matches_labels(selector: Object | None, labels: Labels) -> bool:
    """Evaluate a LabelSelector: None selects nothing, an empty one selects everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_requirement_holds(labels, each) for each in selector.get("matchExpressions") or ())


def matches_node_term(term: Object, node: Object) -> bool:
    """Evaluate a NodeSelectorTerm: all its expressions and fields must hold; an empty term matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    named = {"metadata.name": node["metadata"]["name"]}
    return all(_requirement_holds(labels, e) for e in expressions) and all(_requirement_holds(named, f) for f in fields)


def node_affinity(spec: Object) -> Object:
    affinity: Object = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity


def matches_node(spec: Object, node: Object) -> bool:
    """Return True if a node fits a pod spec's nodeSelector and at least one term of its required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(matches_node_term(term, node) for term in required.get("nodeSelectorTerms") or ())


def only_nodes(spec: Object) -> frozenset[str] | None:
    """Return the nodes that every affinity term pins a pod to, as with daemon pods; None without a pin."""
    required = node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required or not required.get("nodeSelectorTerms"):
        return None
    names: set[str] = set()
    for term in required["nodeSelectorTerms"]:
        pins = [f for f in term.get("matchFields") or () if f["key"] == "metadata.name" and f["operator"] == "In"]
        if not pins:
            return None
        names.update(set.intersection(*(set(pin["values"]) for pin in pins)))
    return frozenset(names)
