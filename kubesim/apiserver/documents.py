"""Answers to paths that name no resource: health, version, discovery, OpenAPI."""

from __future__ import annotations

import orjson
from aiohttp import web

from kubesim.apiserver import discovery, errors, negotiation
from kubesim.apiserver.requests import READS, Json, json_response
from kubesim.apiserver.resources import GROUP_VERSIONS, GROUPS

_HEALTH = ("healthz", "livez", "readyz")
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def page_not_found() -> web.Response:
    """404 in plain text, as the real server's where no API begins."""
    return web.Response(status=404, text="404 page not found\n")


def answer_path(request: web.BaseRequest) -> web.Response:
    """The answer to a path that is no resource. Raises StatusError 404, 405 or 406."""
    parts = request.path.strip("/").split("/")
    head, rest = parts[0], parts[1:]
    if head in _HEALTH:
        return _health(request, head, rest)
    if head in ("api", "apis", "version"):
        return _discovery(request, head, rest)
    if head == "openapi":
        return _openapi(request, rest)
    return json_response(_paths()) if not head else page_not_found()


def _health(request: web.BaseRequest, kind: str, rest: list[str]) -> web.Response:
    if rest not in ([], ["ping"]):
        return page_not_found()
    full = "verbose" in request.query and not rest
    return web.Response(text=f"[+]ping ok\n{kind} check passed\n" if full else "ok")


def _discovery(request: web.BaseRequest, head: str, rest: list[str]) -> web.Response:
    if head == "apis" and rest and rest[0] not in GROUPS - {""}:
        return page_not_found()
    found = _found(request, head, rest)
    if found is None:
        raise errors.no_such_path()
    if request.method not in READS - {"HEAD"}:
        raise errors.method_not_allowed()
    if rest or head == "version":
        negotiation.check_offered(request)
    return json_response(found) if isinstance(found, dict) else found


def _found(request: web.BaseRequest, head: str, rest: list[str]) -> Json | web.Response | None:
    match head, *rest:
        case ["version"]:
            # People read this document, so that it is indented for every client.
            body = orjson.dumps(discovery.VERSION, option=orjson.OPT_INDENT_2)
            return web.Response(body=body, content_type="application/json")
        case ["api" | "apis"]:
            return _groups(request, core=head == "api")
        case ["api", version]:
            return discovery.resource_list("", version)
        case ["apis", group]:
            return discovery.group(group)
        case ["apis", group, version]:
            return discovery.resource_list(group, version)
    return None


def _groups(request: web.BaseRequest, *, core: bool) -> Json | web.Response:
    for accepted in request.headers.get("Accept", "").split(","):
        if "as=APIGroupDiscoveryList" not in accepted or "v=v2beta1" in accepted:
            continue
        kind = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        headers = {"Content-Type": kind, "Cache-Control": "public", "Vary": "Accept"}
        return json_response(discovery.aggregated(core), headers=headers)
    negotiation.negotiate(request)
    return discovery.api_versions(request.headers.get("Host", "")) if core else discovery.group_list()


def _paths() -> Json:
    groups = [
        path for group, version in GROUP_VERSIONS if group for path in (f"/apis/{group}", f"/apis/{group}/{version}")
    ]
    return {"paths": ["/api", "/api/v1", "/apis", *groups, "/healthz", "/livez", "/metrics", "/openapi/v2",
                      "/openapi/v3", "/readyz", "/version"]}  # fmt: skip


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
    # Empty documents: old clients then leave the checking of fields to the server.
    if "protobuf" in request.headers.get("Accept", ""):
        return web.Response(body=b"", headers={"Content-Type": _PROTOBUF_V2})
    info = {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]}
    return json_response({"swagger": "2.0", "info": info, "paths": {}})
