"""Refusals of names, labels and annotations, kind by kind where kinds have rules of their own."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import MERGE, Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]


@script
def validation_names(c: Client) -> None:
    dry = {"dryRun": "All"}
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    for name in ("A", "a_b", "-a", "a-", "a..b", "a.b-c", ".", "..", "a/b", "a%b", "ä", "1", "x" * 253, "x" * 254, " "):
        shown = name if len(name) < 20 else f"{len(name)} letters"
        c.send(f"configmap {shown!r}", "POST", configmaps, {"metadata": {"name": name}}, query=dry, only=_short)
    for path, name, spec in (
        ("/api/v1/namespaces", "a.b", {}),
        ("/api/v1/namespaces", "x" * 64, {}),
        ("/api/v1/nodes", "A", {}),
        ("/api/v1/nodes", "a.b", {}),
        (f"/apis/coordination.k8s.io/v1/namespaces/{c.ns}/leases", "A", {}),
        (f"/api/v1/namespaces/{c.ns}/secrets", "A", {}),
        (f"/api/v1/namespaces/{c.ns}/serviceaccounts", "A", {}),
        (f"/apis/policy/v1/namespaces/{c.ns}/poddisruptionbudgets", "A", {}),
        (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}/roles", "A:b/c", {}),
        (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}/roles", "A:b%", {}),
        (f"/apis/rbac.authorization.k8s.io/v1/namespaces/{c.ns}/roles", "A:b c", {}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "A", {"value": 1}),
    ):
        body = {"metadata": {"name": name}, **spec}
        shown = name if len(name) < 20 else f"{len(name)} letters"
        c.send(f"{path.rpartition('/')[2]} {shown!r}", "POST", path, body, query=dry, only=_short)


def _short(body: Any) -> Any:
    """The refusal in full; of what is accepted the name."""
    return body if body["kind"] == "Status" else len(body["metadata"]["name"])


@script
def validation_labels(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    dry = {"dryRun": "All"}
    for number, (key, value) in enumerate((
        ("a", "b c"), ("a", "-b"), ("a", "b" * 64), ("a", "B_1.x"), ("", "b"), ("a b", "c"), ("-a", "b"),
        ("a" * 64, "b"),
        ("/a", "b"), ("example.com/", "b"), ("Example.com/a", "b"), ("a/b/c", "d"), ("x" * 254 + "/a", "b"),
        ("example.com/A_b", ""), ("a", "ä"),
    )):  # fmt: skip
        c.send(f"label {number}", "POST", configmaps, {"metadata": {"name": "one", "labels": {key: value}}},
               query=dry, only=_short)  # fmt: skip
    for number, key in enumerate(("", "a b", "A.b/c", "example.com/a", "/a", "a/b/c", "UPPER", "a" * 64, "-a")):
        c.send(f"annotation {number}", "POST", configmaps, {"metadata": {"name": "one",
                                                                         "annotations": {key: "any thing"}}},
               query=dry, only=_short)  # fmt: skip
    many = {"name": "One", "labels": {"a": "b c"}, "annotations": {"d e": ""}}
    c.send("all at once", "POST", configmaps, {"metadata": many})
    c.do("POST", configmaps, {"metadata": {"name": "one"}})
    c.send("a label by patch", "PATCH", f"{configmaps}/one", {"metadata": {"labels": {"a": "b c"}}}, content_type=MERGE)
    c.send("a label by update", "PUT", f"{configmaps}/one", {"metadata": {"name": "one", "labels": {"a b": "c"}}})
    c.do("POST", "/api/v1/nodes", {"metadata": {"name": "validation-labels-1"}})
    c.send("a node's label", "PATCH", "/api/v1/nodes/validation-labels-1", {"metadata": {"labels": {"a": "b c"}}},
           content_type=MERGE)  # fmt: skip


@script
def validation_immutable_metadata(c: Client) -> None:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    made = c.do("POST", configmaps, {"metadata": {"name": "one", "generateName": "o"}})
    meta = {"name": "one"}
    one = f"{configmaps}/one"
    c.send("another name by PUT", "PUT", one, {"metadata": {"name": "two"}})
    c.send("no name by PUT", "PUT", one, {"metadata": {}})
    c.send("another namespace by PUT", "PUT", one, {"metadata": {**meta, "namespace": "elsewhere"}})
    c.send("the same uid by PUT", "PUT", one, {"metadata": {**meta, "uid": made["metadata"]["uid"]}})
    c.send(
        "another creationTimestamp by PUT",
        "PUT",
        one,
        {"metadata": {**meta, "creationTimestamp": "2020-01-01T00:00:00Z"}},
    )
    c.send(
        "a deletionTimestamp by PUT", "PUT", one, {"metadata": {**meta, "deletionTimestamp": "2020-01-01T00:00:00Z"}}
    )
    c.send("a generation by PUT", "PUT", one, {"metadata": {**meta, "generation": 7}})
    c.send("another generateName by PUT", "PUT", one, {"metadata": {**meta, "generateName": "p"}})

    def patch(step: str, change: Json) -> None:
        c.send(step, "PATCH", one, {"metadata": change}, content_type=MERGE)

    patch("another name by patch", {"name": "two"})
    patch("no name by patch", {"name": None})
    patch("another namespace by patch", {"namespace": "elsewhere"})
    patch("another uid by patch", {"uid": "11111111-2222-3333-4444-555555555555"})
    patch("another creationTimestamp by patch", {"creationTimestamp": "2020-01-01T00:00:00Z"})
    patch("no creationTimestamp by patch", {"creationTimestamp": None})
    patch("a deletionTimestamp by patch", {"deletionTimestamp": "2020-01-01T00:00:00Z"})
    patch("a generation by patch", {"generation": 7})
