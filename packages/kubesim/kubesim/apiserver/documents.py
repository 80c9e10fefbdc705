"""Answers to paths that name no resource: health, version, discovery, OpenAPI."""

from __future__ import annotations

import orjson
from aiohttp import web

from kubesim.apiserver import discovery, errors
from kubesim.apiserver.requests import READS, Json, json_response
from kubesim.apiserver.resources import GROUPS

_HEALTH = ("healthz", "livez", "readyz")
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def page_not_found() -> web.Response:
    """Return 404 in plain text, as the real server does for a path outside of its APIs."""
    return web.Response(status=404, text="404 page not found\n")


def answer_path(request: web.BaseRequest) -> web.Response:
    """Return the answer to a path that is no resource. Raises StatusError 404 or 405."""
    parts = request.path.strip("/").split("/")
    head, rest = parts[0], parts[1:]
    if head in _HEALTH:
        return page_not_found() if rest else web.Response(text="ok")
    if head in ("api", "apis", "version"):
        return _discovery(request, head, rest)
    if head == "openapi":
        return _openapi(request, rest)
    return page_not_found()


def _discovery(request: web.BaseRequest, head: str, rest: list[str]) -> web.Response:
    if head == "apis" and rest and rest[0] not in GROUPS - {""}:
        return page_not_found()
    found = _found(request, head, rest)
    if found is None:
        raise errors.no_such_path()
    if request.method not in READS - {"HEAD"}:
        raise errors.method_not_allowed()
    return json_response(found) if isinstance(found, dict) else found


def _found(request: web.BaseRequest, head: str, rest: list[str]) -> Json | web.Response | None:
    match head, *rest:
        case ["version"]:
            # People read this document, so it is indented for every client.
            body = orjson.dumps(discovery.VERSION, option=orjson.OPT_INDENT_2)
            return web.Response(body=body, content_type="application/json")
        case ["api" | "apis"]:
            address = request.headers.get("Host", "")
            return discovery.api_versions(address) if head == "api" else discovery.group_list()
        case ["api", version]:
            return discovery.resource_list("", version)
        case ["apis", group]:
            return discovery.group(group)
        case ["apis", group, version]:
            return discovery.resource_list(group, version)
    return None


def _openapi(request: web.BaseRequest, rest: list[str]) -> web.Response:
    if rest == ["v2"]:
        return _openapi_v2(request)
    match rest:
        case ["v3"]:
            return json_response(discovery.openapi_root(), headers={"Content-Type": "text/plain; charset=utf-8"})
        case ["v3", "api" | "apis", *gv] if gv:
            found = discovery.openapi("" if len(gv) == 1 else gv[0], gv[-1])
            return json_response(found, headers={"Vary": "Accept"}) if found is not None else web.Response(status=404)
    return page_not_found()


def _openapi_v2(request: web.BaseRequest) -> web.Response:
    # Empty documents: with these, old clients leave the checking of fields to the server.
    if "protobuf" in request.headers.get("Accept", ""):
        return web.Response(body=b"", headers={"Content-Type": _PROTOBUF_V2})
    info = {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]}
    return json_response({"swagger": "2.0", "info": info, "paths": {}})
