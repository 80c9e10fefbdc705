"""Answers to paths that name no resource: health, version, discovery, OpenAPI."""

from __future__ import annotations

from aiohttp import web

from gameday.rehearsal.apiserver import discovery
from gameday.rehearsal.apiserver.requests import Json, answer
from gameday.rehearsal.apiserver.resources import GROUP_VERSIONS

_HEALTH = ("healthz", "livez", "readyz")
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def public(path: str) -> bool:
    """Whether anyone may read the path without a token (system:public-info-viewer)."""
    return path.strip("/").split("/")[0] in (*_HEALTH, "version")


def document(request: web.BaseRequest) -> web.Response:
    """The answer to a GET of a path that is no resource; 404 in plain text, as the real server's, when unknown."""
    parts = request.path.strip("/").split("/")
    head, rest = parts[0], parts[1:]
    if head in _HEALTH:
        return web.Response(text="ok")
    if head in ("api", "apis") and not rest:
        return _groups(request, core=head == "api")
    if head == "openapi" and rest == ["v2"]:
        return _openapi_v2(request)
    found = {"version": lambda: discovery.VERSION, "": _paths}.get(head, lambda: _found(head, rest))()
    return answer(found) if found is not None else web.Response(status=404, text="404 page not found\n")


def _found(head: str, rest: list[str]) -> Json | None:
    match head, *rest:
        case ["api", version]:
            return discovery.resource_list("", version)
        case ["apis", group]:
            return discovery.group(group)
        case ["apis", group, version]:
            return discovery.resource_list(group, version)
        case ["openapi", "v3"]:
            return discovery.openapi_root()
        case ["openapi", "v3", "api" | "apis", *gv] if gv:
            return discovery.openapi("" if len(gv) == 1 else gv[0], gv[-1])
    return None


def _paths() -> Json:
    groups = [f"/apis/{group}/{version}" for group, version in GROUP_VERSIONS if group]
    return {"paths": ["/api", "/api/v1", "/apis", *groups, "/healthz", "/livez", "/metrics", "/openapi/v2",
                      "/openapi/v3", "/readyz", "/version"]}  # fmt: skip


def _groups(request: web.BaseRequest, *, core: bool) -> web.Response:
    for accepted in request.headers.get("Accept", "").split(","):
        if "as=APIGroupDiscoveryList" not in accepted:
            continue
        version = "v2beta1" if "v=v2beta1" in accepted else "v2"
        kind = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        return answer(discovery.aggregated(core, version), headers={"Content-Type": kind})
    host = request.headers.get("Host", "")
    return answer(discovery.api_versions(host) if core else discovery.group_list())


def _openapi_v2(request: web.BaseRequest) -> web.Response:
    # Empty documents: old clients then leave the checking of fields to the server.
    if "protobuf" in request.headers.get("Accept", ""):
        return web.Response(body=b"", headers={"Content-Type": _PROTOBUF_V2})
    info = {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]}
    return answer({"swagger": "2.0", "info": info, "paths": {}})
