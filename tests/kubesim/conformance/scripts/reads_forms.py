"""The forms in which a client can ask for what it reads: JSON, YAML, protobuf, bare metadata, pretty or not."""

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
    ask("any application", "application/*")
    ask("YAML", "application/yaml")
    ask("a list as YAML", "application/yaml", configmaps)
    ask("HTML, as browsers ask", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
    ask("only XML", "application/xml")
    ask("a list only as XML", "application/xml", configmaps)
    ask("no object, only as XML", "application/xml", f"{configmaps}/nobody")
    ask("malformed", "nonsense")
    ask("XML, else JSON", "application/xml,application/json")
    ask("JSON of a strange charset", "application/json;charset=latin1")
    ask("JSON in a stream", "application/json;stream=watch")
    ask("quality prefers YAML", "application/json;q=0.1,application/yaml;q=0.9")
    ask("protobuf, else JSON", f"{PROTOBUF},application/json", **only_headers)
    ask("JSON, else protobuf", f"application/json,{PROTOBUF}")
    ask("only protobuf", PROTOBUF, **only_headers)
    ask("a list only as protobuf", PROTOBUF, configmaps, **only_headers)
    ask("no object, only as protobuf", PROTOBUF, f"{configmaps}/nobody", **only_headers)
    ask("CBOR, which is off by default", "application/cbor")


@script
def partial_metadata(c: Client) -> None:
    one, configmaps = f"/api/v1/namespaces/{c.ns}/configmaps/one", f"/api/v1/namespaces/{c.ns}/configmaps"
    c.do("POST", configmaps, {"metadata": {"name": "one", "annotations": {"a": "b"}}, "data": {"k": "v"}})
    by_name = {"fieldSelector": "metadata.name=one"}
    c.get("one object", one, headers={"Accept": PARTIAL})
    c.get("a list", configmaps, by_name, headers={"Accept": PARTIAL_LIST})
    c.get("an object as a list", one, headers={"Accept": PARTIAL_LIST})
    c.get("a list as an object", configmaps, by_name, headers={"Accept": PARTIAL})
    c.get("else JSON", one, headers={"Accept": f"{PARTIAL},application/json"})
    c.get("an unknown group", one, headers={"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=nonsense"})
    c.get("an unknown version", one, headers={"Accept": "application/json;as=PartialObjectMetadata;v=v9;g=meta.k8s.io"})
    c.get("an unknown form", one, headers={"Accept": "application/json;as=Nonsense;v=v1;g=meta.k8s.io"})
    old = "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"
    c.get("the beta version", one, headers={"Accept": old})
    c.get("no object", f"{configmaps}/nobody", headers={"Accept": PARTIAL})
    made = {"metadata": {"name": "two"}, "data": {"k": "v"}}
    c.send("of what was created", "POST", configmaps, made, headers={"Accept": PARTIAL})


@script
def pretty(c: Client) -> None:
    def first_lines(text: Any) -> list[str]:
        return str(text).splitlines()[:3]

    one = f"/api/v1/namespaces/{c.ns}/configmaps/one"
    c.do("POST", f"/api/v1/namespaces/{c.ns}/configmaps", {"metadata": {"name": "one"}, "data": {"k": "v"}})
    c.get("asked for", one, {"pretty": "true"}, raw=True, only=first_lines)
    c.get("asked for with 1", one, {"pretty": "1"}, raw=True, only=first_lines)
    c.get("refused", one, {"pretty": "false"}, raw=True, only=lambda text: text.count("\n"))
    c.get("not mentioned", one, raw=True, only=lambda text: text.count("\n"))
    c.get("by a browser", one, headers={"User-Agent": "Mozilla/5.0"}, raw=True, only=first_lines)
    c.get("in the media type", one, headers={"Accept": "application/json;pretty=1"}, raw=True, only=first_lines)
    c.get("by curl", one, headers={"User-Agent": "curl/8.0"}, raw=True, only=first_lines)
    c.get("a list", f"/api/v1/namespaces/{c.ns}/pods", {"pretty": "true"}, raw=True, only=first_lines)
    c.get("YAML", one, {"pretty": "true"}, headers={"Accept": "application/yaml"}, raw=True, only=first_lines)
    c.get("discovery", "/api/v1", {"pretty": "true"}, raw=True, only=first_lines)
    c.get("the version", "/version", raw=True, only=first_lines)
    c.get("a failure", f"{one}-not", {"pretty": "true"}, raw=True, only=first_lines)
