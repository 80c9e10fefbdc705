"""The LISTs that a client can send, by their encoding and by how fresh the answer must be."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NAMESPACE = "gameday-load"
"""The namespace of every object that loads and API canaries make."""
LOAD_LABEL = "gameday.dev/load"
"""The label of every object that a load makes; an undo after a killed run finds them by it."""
_META = "g=meta.k8s.io;v=v1"


class Form(StrEnum):
    """The encoding of a LIST's answer."""

    JSON = "json"
    PROTOBUF = "protobuf"
    YAML = "yaml"
    TABLE = "table"
    METADATA = "metadata"


class Read(StrEnum):
    """The way to read a LIST: how fresh it must be, and whether it comes as a watch."""

    LATEST = "latest"
    ANY = "any"
    EXACT = "exact"
    WATCH_LIST = "watch-list"


_ACCEPT = {
    Form.JSON: "application/json",
    Form.PROTOBUF: "application/vnd.kubernetes.protobuf",
    Form.YAML: "application/yaml",
    Form.TABLE: f"application/json;as=Table;{_META}",
    Form.METADATA: f"application/json;as=PartialObjectMetadataList;{_META}",
}
_QUERY = {
    Read.LATEST: {},
    Read.ANY: {"resourceVersion": "0"},
    Read.EXACT: {"resourceVersionMatch": "Exact"},
    Read.WATCH_LIST: {
        "watch": "1",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    },
}


@dataclass(frozen=True)
class ListRequest:
    """A LIST as it is sent."""

    path: str
    query: dict[str, str]
    accept: str


def list_request(resource: str, form: Form, read: Read, resource_version: str) -> ListRequest:
    """Return the LIST of a resource in the load's namespace.

    Args:
        resource: Plural of a resource of the core group.
        form: The answer's encoding; a watch-list answers with events, each in this encoding.
        read: How fresh the answer must be.
        resource_version: The version that `Read.EXACT` asks for; other reads ignore it.
    """
    query = dict(_QUERY[read])
    if read is Read.EXACT:
        query["resourceVersion"] = resource_version
    if form is Form.TABLE:
        query["includeObject"] = "Object"
    accept = _ACCEPT[form]
    if read is Read.WATCH_LIST:
        accept = accept.replace("PartialObjectMetadataList", "PartialObjectMetadata")
    return ListRequest(f"/api/v1/namespaces/{NAMESPACE}/{resource}", query, accept)
