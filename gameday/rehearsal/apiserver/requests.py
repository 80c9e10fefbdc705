"""Reading requests and making answers: targets, verbs, bodies, patches, write options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
import yaml
from aiohttp import web

from gameday.rehearsal.apiserver import codec, errors, protobuf
from gameday.rehearsal.apiserver.objects import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Write
from gameday.rehearsal.apiserver.resources import BY_PATH, Resource
from gameday.rehearsal.apiserver.store import Stored
from gameday.rehearsal.apiserver.tables import Table
from gameday.rehearsal.apiserver.watching import ListForm, truth

Json = dict[str, Any]

READS = frozenset({"GET", "HEAD"})
VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_MEDIA = ["application/json", "application/yaml", protobuf.MEDIA_TYPE]
_PATCH_TYPES = [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
# Longest manager name the real server accepts.
_MANAGER_MAX = 128


@dataclass(frozen=True)
class Target:
    """What a path points at."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target_of(path: str) -> tuple[Target | None, bool]:
    """(the resource a path names or None, whether it used the old /watch/ prefix)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None, False
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = BY_PATH.get((group, version, rest[0]))
    if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
        return None, watch
    return Target(resource, namespace, *rest[1:]), watch


def verb_of(request: web.BaseRequest, target: Target | None, old_watch: bool) -> str:
    """RBAC's verb of a request: get, list, watch, create, update, patch, delete or deletecollection."""
    verb = VERBS.get(request.method, request.method.lower())
    if target is None or target.subresource:
        return verb
    if verb == "get" and (old_watch or truth(request.query.get("watch"))):
        return "watch"
    if not target.name:
        return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return verb


def program(request: web.BaseRequest) -> str:
    """The User-Agent up to its first slash: the default manager of what the request writes."""
    return request.headers.get("User-Agent", "unknown").split("/")[0][:_MANAGER_MAX]


def write_of(request: web.BaseRequest, subresource: str = "") -> Write:
    """The write options in the query. Raises ApiError 400."""
    query = request.query
    manager = query.get("fieldManager", "") or program(request)
    if len(manager) > _MANAGER_MAX or not manager.isprintable():
        raise errors.bad_request(f"fieldManager must be printable and no more than {_MANAGER_MAX} characters")
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise errors.bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    return Write(manager, bool(dry_run), subresource, truth(query.get("force")))


def form_of(request: web.BaseRequest, resource: Resource) -> ListForm:
    """The form the Accept header prefers among whole objects, tables and bare metadata."""
    for accepted in request.headers.get("Accept", "").split(","):
        if "as=Table" in accepted:
            return Table(resource, request.query.get("includeObject", "Metadata"))
        if "as=PartialObjectMetadata" in accepted:
            return codec.MetadataOnly(resource)
        if "as=" not in accepted and ("application/json" in accepted or "*/*" in accepted):
            break
    return codec.Whole(resource)


def object_of(request: web.BaseRequest, raw: bytes) -> Json:
    """The object in a body of JSON, YAML or protobuf. Raises ApiError 400 or 415."""
    kind = request.content_type
    if kind == "application/yaml":
        return _yaml(raw)
    if kind == protobuf.MEDIA_TYPE:
        return protobuf.body(raw)
    # aiohttp says octet-stream where there is no Content-Type; the real server then reads JSON.
    if kind not in ("application/json", "application/octet-stream"):
        raise errors.unsupported_media(kind, _MEDIA)
    return codec.body(raw)


def patch_of(request: web.BaseRequest, raw: bytes) -> tuple[str, Any]:
    """(patch type, patch). Raises ApiError 400, 415 or 422."""
    kind = request.content_type
    if kind not in _PATCH_TYPES:
        raise errors.unsupported_media(kind, _PATCH_TYPES)
    if kind == APPLY_PATCH:
        if not request.query.get("fieldManager"):
            why = "fieldManager: Required value: is required for apply patch"
            raise errors.ApiError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {why}')
        return kind, _yaml(raw)
    try:
        return kind, orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error


class _JsonTypes(yaml.SafeLoader):
    """YAML with JSON's types only: timestamps stay strings. Aliases are refused: they can blow a small body up."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """As SafeLoader's, without aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_JsonTypes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _yaml(raw: bytes) -> Json:
    if raw.lstrip()[:1] == b"{":
        return codec.body(raw)
    try:
        obj = orjson.loads(orjson.dumps(yaml.load(raw, _JsonTypes)))  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, orjson.JSONEncodeError, ValueError) as error:
        raise errors.bad_request(f"error parsing YAML: {error}") from error
    if not isinstance(obj, dict):
        raise errors.bad_request("error parsing YAML: no object")
    found: Json = codec.without_nulls(obj)
    return found


def answer(obj: Json, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON response."""
    kind = {"Content-Type": "application/json"}
    return web.Response(body=orjson.dumps(obj), status=status, headers={**kind, **(headers or {})})


def one(request: web.BaseRequest, resource: Resource, stored: Stored, status: int = 200) -> web.Response:
    """One object in the form the client asked for."""
    body = form_of(request, resource).one(stored)
    return web.Response(body=body, status=status, content_type="application/json")
