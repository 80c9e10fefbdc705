"""Read targets, verbs and forms from requests, and make answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from kubesim.apiserver import codec, errors, negotiation
from kubesim.apiserver.resources import BY_PATH, Resource
from kubesim.apiserver.store import Stored
from kubesim.apiserver.tables import INCLUDES, Table
from kubesim.apiserver.watching import ListForm, is_true

Json = dict[str, Any]

READS = frozenset({"GET", "HEAD"})
VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class ResourcePath:
    """The parts of a path, which may name something that is not served."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    deeper: bool = False


@dataclass(frozen=True)
class Target:
    """A served resource, or an object or subresource of it."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> ResourcePath | None:
    """Return the resource that a path names; None if it names none."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    name, subresource = (*rest[1:3], "", "")[:2]
    return ResourcePath(group, version, rest[0], namespace, name, subresource, len(rest) > 3)


def resolve(place: ResourcePath) -> Target | None:
    """Return the target that is served there; None if nothing is."""
    resource = BY_PATH.get((place.group, place.version, place.plural))
    if resource is None or place.deeper:
        return None
    of_namespace = place.plural == "namespaces" and place.namespace == place.name
    if place.namespace and not resource.namespaced and not of_namespace:
        return None
    if resource.namespaced and place.name and not place.namespace:
        return None
    namespace = place.namespace if resource.namespaced else ""
    return Target(resource, namespace, place.name, place.subresource)


def request_verb(request: web.BaseRequest, place: ResourcePath | None) -> str:
    """Return RBAC's verb for a request.

    It is get, list, watch, create, update, patch, delete, deletecollection, or empty for any other method; for a path
    that names no resource it is the method itself.
    """
    if place is None:
        return request.method.lower()
    verb = VERBS.get(request.method, "")
    if place.name:
        return verb
    if verb == "get":
        return "watch" if is_true(request.query.get("watch")) else "list"
    return "deletecollection" if verb == "delete" else verb


def response_form(
    request: web.BaseRequest, resource: Resource, *, many: bool = False, streamed: bool = False
) -> ListForm:
    """Return the form that the client accepts. Raises StatusError 400 or 406."""
    wanted = negotiation.negotiate(request)
    if wanted.kind == "Table":
        include = request.query.get("includeObject") or "Metadata"
        if include not in INCLUDES:
            hint = f"Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
            raise errors.bad_request(f"Unable to convert to Table as requested: includeObject: {hint}")
        return Table(resource, include, wanted.version)
    if not wanted.kind:
        return codec.FullForm(resource)
    if not streamed and many != (wanted.kind == "PartialObjectMetadataList"):
        found = f"is a list of {resource.plural}" if many else f"is not a list, but one {resource.kind}"
        raise errors.not_acceptable(f"you requested {wanted.kind}, but the requested object {found}")
    return codec.MetadataForm(resource, wanted.version)


def json_response(obj: Json, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    kind = {"Content-Type": "application/json"}
    return web.Response(body=orjson.dumps(obj) + b"\n", status=status, headers={**kind, **(headers or {})})


# Warnings are headers; the real server cuts them if they are longer than this in total.
_WARNINGS_MAX, _WARNING_MAX = 4096, 256


def add_warnings(response: web.StreamResponse, warnings: list[str]) -> None:
    """Add each warning once as a header of the response."""
    texts = [text.replace("\n", " ").replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings)]
    if sum(map(len, texts)) > _WARNINGS_MAX:
        texts = [text[:_WARNING_MAX] for text in texts]
    for text in texts:
        response.headers.add("Warning", f'299 - "{text}"')


def object_response(request: web.BaseRequest, resource: Resource, stored: Stored, status: int = 200) -> web.Response:
    """Return one object in the form that the client asked for."""
    body = response_form(request, resource).encode(stored)
    return web.Response(body=body + b"\n", status=status, content_type="application/json")
