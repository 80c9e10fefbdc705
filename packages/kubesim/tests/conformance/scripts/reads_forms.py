"""The forms in which a client can ask for what it reads: JSON and bare metadata."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@script
def media_types(c: Client) -> None:
    one = f"/api/v1/namespaces/{c.ns}/configmaps/one"
    configmaps, only_one = f"/api/v1/namespaces/{c.ns}/configmaps", {"fieldSelector": "metadata.name=one"}
    made = {"metadata": {"name": "one", "labels": {"a": "b"}}, "data": {"k": "v"}, "binaryData": {"b": "AAEC"}}
    c.do("POST", configmaps, made)

    def ask(step: str, accept: str, path: str = one, **options: Any) -> None:
        c.get(step, path, only_one if path == configmaps else None, headers={"Accept": accept}, **options)

    only_headers = {"raw": True, "only": lambda text: None}

    ask("anything", "*/*")
    ask("HTML, as browsers ask", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
    ask("JSON of a strange charset", "application/json;charset=latin1")
    ask("JSON in a stream", "application/json;stream=watch")
    ask("protobuf, else JSON", f"{PROTOBUF},application/json", **only_headers)
    ask("JSON, else protobuf", f"application/json,{PROTOBUF}")


@script
def partial_metadata(c: Client) -> None:
    one, configmaps = f"/api/v1/namespaces/{c.ns}/configmaps/one", f"/api/v1/namespaces/{c.ns}/configmaps"
    c.do("POST", configmaps, {"metadata": {"name": "one", "annotations": {"a": "b"}}, "data": {"k": "v"}})
    by_name = {"fieldSelector": "metadata.name=one"}
    c.get("one object", one, headers={"Accept": PARTIAL})
    c.get("a list", configmaps, by_name, headers={"Accept": PARTIAL_LIST})
    c.get("else JSON", one, headers={"Accept": f"{PARTIAL},application/json"})
    old = "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"
    c.get("the beta version", one, headers={"Accept": old})
    c.get("no object", f"{configmaps}/nobody", headers={"Accept": PARTIAL})
    made = {"metadata": {"name": "two"}, "data": {"k": "v"}}
    c.send("of what was created", "POST", configmaps, made, headers={"Accept": PARTIAL})
