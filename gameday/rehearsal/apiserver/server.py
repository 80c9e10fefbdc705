"""HTTP: who asks, for what, may they, and the answer. The meaning of writes lies in objects.py and deletion.py."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import orjson
import yaml
from aiohttp import web

from gameday.rehearsal.apiserver import (
    bootstrap,
    codec,
    discovery,
    errors,
    logs,
    patches,
    protobuf,
    selectors,
    subresources,
)
from gameday.rehearsal.apiserver.auth import Authenticator, User, load_key, service_account_groups
from gameday.rehearsal.apiserver.deletion import Collector, DeleteOptions, Deleter
from gameday.rehearsal.apiserver.metrics import Metrics
from gameday.rehearsal.apiserver.objects import APPLY_PATCH, JSON_PATCH, PATCH_TYPES, Objects, Write
from gameday.rehearsal.apiserver.rbac import Action, Rbac, denied
from gameday.rehearsal.apiserver.resources import BY_PATH, GROUP_VERSIONS, Resource
from gameday.rehearsal.apiserver.reviews import Reviews
from gameday.rehearsal.apiserver.store import Store, Stored
from gameday.rehearsal.apiserver.tables import Table
from gameday.rehearsal.apiserver.watching import Lister, ListForm, Watches, query_of, truth

Json = dict[str, Any]
log = logging.getLogger(__name__)

_READS = {"GET": "get", "HEAD": "get"}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", **_READS}
_RETURNS_DELETED = frozenset({"pods", "services", "serviceaccounts", "persistentvolumeclaims", "podtemplates"})
_MEDIA = ["application/json", "application/yaml", protobuf.MEDIA_TYPE]
# The rest of --max-request-body-bytes of the real server.
MAX_BODY_BYTES = 3 * 1024 * 1024
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


class ApiServer:
    """One embedded API server over a data folder; `handle` is its whole HTTP face."""

    def __init__(self, folder: Path, ca: Path) -> None:
        self.store = Store(folder / "state.jsonl")
        self.objects = Objects(self.store)
        self.watches = Watches(self.store)
        self.metrics = Metrics()
        self.static = bootstrap.tokens(folder)
        self._authenticator = Authenticator(self.store, self.static, load_key(folder / "serviceaccount.key"))
        self._rbac = Rbac(self.store)
        self._reviews = Reviews(self._rbac, self._authenticator)
        self._lister = Lister(self.store)
        self._deleter = Deleter(self.objects)
        self._evictor = subresources.Evictor(self.objects, self._deleter)
        self._binder = subresources.Binder(self.objects)
        bootstrap.Namespaces(self.objects, ca.read_text())
        bootstrap.ensure(self.objects)
        self._collector = Collector(self.objects, self._deleter)
        self._collecting: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Start what runs beside requests."""
        self._collecting = asyncio.create_task(self._collector.run())
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5))

    async def stop(self) -> None:
        """End watches, close the log."""
        self.watches.close_all()
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every failure becomes a Status."""
        target, old_watch = target_of(request.path)
        verb = _verb(request, target, old_watch)
        try:
            user = self._user(request)
            if target is None:
                response: web.StreamResponse = self._plain(request, user)
            else:
                response = await self._resource(request, target, verb, user)
        except errors.ApiError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
            response = _json(error.body(), error.code, headers)
        except web.HTTPException as error:
            message = f"the request cannot be read: {error.reason}"
            response = _json(errors.ApiError(error.status, "", message).body(), error.status)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            body = errors.ApiError(500, "InternalError", "an error of the embedded API server; see its log").body()
            response = _json(body, 500)
        self._count(request, target, verb, response)
        return response

    def _count(self, request: web.BaseRequest, target: Target | None, verb: str, response: web.StreamResponse) -> None:
        size = len(response.body) if isinstance(response, web.Response) and isinstance(response.body, bytes) else 0
        named = target.resource.plural if target else ""
        sub = target.subresource if target else ""
        self.metrics.count(verb.upper(), named, sub, _program(request), response.status, size)

    def _user(self, request: web.BaseRequest) -> User:
        user = self._authenticator.user(request.headers.get("Authorization", ""))
        if user is None:
            raise errors.unauthorized()
        name = request.headers.get("Impersonate-User", "")
        if not name:
            return user
        groups = tuple(request.headers.getall("Impersonate-Group", []))
        asked = [Action("impersonate", resource="users", name=name)]
        if name.startswith("system:serviceaccount:") and name.count(":") == 3:
            _, _, space, account = name.split(":")
            asked = [Action("impersonate", resource="serviceaccounts", namespace=space, name=account)]
            groups = groups or service_account_groups(space)
        asked += [
            Action("impersonate", resource="groups", name=group)
            for group in request.headers.getall("Impersonate-Group", [])
        ]
        for action in asked:
            self._check(user, action)
        return User(name, tuple(dict.fromkeys((*groups, "system:authenticated"))))

    def _check(self, user: User, action: Action) -> None:
        if not self._rbac.decide(user, action).allowed:
            raise denied(user, action)

    # Paths that are no resources -------------------------------------------------------------------------------

    def _plain(self, request: web.BaseRequest, user: User) -> web.Response:
        path = request.path
        if path.rstrip("/") in ("/healthz", "/livez", "/readyz") or path.startswith(("/livez/", "/readyz/")):
            return web.Response(text="ok")
        self._check(user, Action("get" if request.method in _READS else request.method.lower(), path=path))
        if path == "/metrics":
            counts = {key: collection.count() for key, collection in self.store.collections.items()}
            return web.Response(text=self.metrics.render(counts, self.watches.count))
        if path == "/openapi/v2":
            # An empty document: old clients then skip their own validation.
            kind = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
            if "protobuf" in request.headers.get("Accept", ""):
                return web.Response(body=b"", headers={"Content-Type": kind})
            info = {"title": "Kubernetes", "version": discovery.VERSION["gitVersion"]}
            return _json({"swagger": "2.0", "info": info, "paths": {}})
        found = self._document(request, path.rstrip("/"))
        if found is None:
            return web.Response(status=404, text="404 page not found\n")
        return found

    def _document(self, request: web.BaseRequest, path: str) -> web.Response | None:
        parts = path.strip("/").split("/")
        match parts:
            case ["version"]:
                return _json(discovery.VERSION)
            case ["api"] | ["apis"]:
                return self._groups(request, parts[0] == "api")
            case ["api", version]:
                return _maybe(discovery.resource_list("", version))
            case ["apis", group]:
                return _maybe(discovery.group(group))
            case ["apis", group, version]:
                return _maybe(discovery.resource_list(group, version))
            case ["openapi", "v3"]:
                return _json(discovery.openapi_root())
            case ["openapi", "v3", "api", version]:
                return _maybe(discovery.openapi("", version))
            case ["openapi", "v3", "apis", group, version]:
                return _maybe(discovery.openapi(group, version))
            case [""]:
                roots = ["/api", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz"]
                groups = [f"/apis/{group}/{version}" for group, version in GROUP_VERSIONS if group]
                return _json({"paths": [*roots, "/version", *groups]})
        return None

    def _groups(self, request: web.BaseRequest, core: bool) -> web.Response:
        for accepted in request.headers.get("Accept", "").split(","):
            if "as=APIGroupDiscoveryList" not in accepted:
                continue
            version = "v2beta1" if "v=v2beta1" in accepted else "v2"
            kind = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
            return _json(discovery.aggregated(core, version), headers={"Content-Type": kind})
        host = request.headers.get("Host", "")
        return _json(discovery.api_versions(host) if core else discovery.group_list())

    # Resources -------------------------------------------------------------------------------------------------

    async def _resource(self, request: web.BaseRequest, target: Target, verb: str, user: User) -> web.StreamResponse:
        resource = target.resource
        name = target.name or (selectors.name_in(request.query.get("fieldSelector", "")) if verb != "create" else "")
        namespace = target.namespace
        if resource.plural == "namespaces":
            namespace = target.name
        action = Action(verb, resource.group, resource.plural, target.subresource, namespace, name)
        self._check(user, action)
        if target.subresource:
            return await self._sub(request, target)
        if verb not in resource.verbs or (verb in ("update", "patch") and not target.name):
            raise errors.method_not_allowed("")
        if verb == "watch":
            named = f"metadata.name={target.name}" if target.name else ""
            return await self._watch(request, target, named)
        if verb == "list":
            return self._list(request, target)
        if verb == "get":
            return _one(self._form(request, resource), self.objects.get(resource, target.namespace, target.name))
        body = await request.read()
        if verb == "create":
            return self._create(request, target, user, body)
        if verb == "update":
            stored, created = self.objects.replace(
                resource, target.namespace, target.name, self._body(request, body), _write(request)
            )
            return _one(self._form(request, resource), stored, 201 if created else 200)
        if verb == "patch":
            return self._patch(request, target, body)
        return self._delete(request, target, verb, body)

    def _form(self, request: web.BaseRequest, resource: Resource) -> ListForm:
        for accepted in request.headers.get("Accept", "").split(","):
            if "as=" not in accepted:
                if "application/json" in accepted or "*/*" in accepted:
                    break
                continue
            if "as=Table" in accepted:
                return Table(resource, request.query.get("includeObject", "Metadata"))
            if "as=PartialObjectMetadata" in accepted:
                return codec.MetadataOnly(resource)
        return codec.Whole(resource)

    @staticmethod
    def _body(request: web.BaseRequest, raw: bytes) -> Json:
        kind = request.content_type
        if kind == "application/yaml":
            return _yaml(raw)
        if kind == protobuf.MEDIA_TYPE:
            return protobuf.body(raw)
        # Browsers' and curl's defaults are read as JSON, as by the real server without a Content-Type.
        if kind not in ("application/json", "application/octet-stream"):
            raise errors.unsupported_media(kind, _MEDIA)
        return codec.body(raw)

    def _predicate(self, request: web.BaseRequest, resource: Resource, named: str = "") -> selectors.Predicate | None:
        query = request.query
        wanted = ",".join(part for part in (query.get("fieldSelector", ""), named) if part)
        return selectors.both(selectors.labels(query.get("labelSelector", "")), selectors.fields(resource, wanted))

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        form, predicate = self._form(request, target.resource), self._predicate(request, target.resource)
        query = query_of(form, target.namespace, predicate, request.query)
        return web.Response(body=self._lister.answer(target.resource.store_key, query), content_type="application/json")

    async def _watch(self, request: web.BaseRequest, target: Target, named: str) -> web.StreamResponse:
        form, predicate = self._form(request, target.resource), self._predicate(request, target.resource, named)
        query = query_of(form, target.namespace, predicate, {**request.query, "watch": "1"})
        return await self.watches.serve(request, target.resource.store_key, query)

    def _create(self, request: web.BaseRequest, target: Target, user: User, raw: bytes) -> web.Response:
        resource, body = target.resource, self._body(request, raw)
        if resource.plural == "bindings":
            name = (body.get("metadata") or {}).get("name", "")
            return _json(self._binder.bind(target.namespace, name, body, _write(request)), 201)
        if not resource.stored:
            return _json(self._reviews.answer(resource, user, target.namespace, body), 201)
        if target.name:
            raise errors.method_not_allowed("")
        namespace = target.namespace
        if resource.namespaced and not namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        stored = self.objects.create(resource, namespace, body, _write(request))
        return _one(self._form(request, resource), stored, 201)

    def _patch(self, request: web.BaseRequest, target: Target, raw: bytes) -> web.Response:
        kind, patch = _patch_of(request, raw)
        write = _write(request, target.subresource)
        stored, created = self.objects.patch(target.resource, target.namespace, target.name, kind, patch, write)
        return _one(self._form(request, target.resource), stored, 201 if created else 200)

    def _delete(self, request: web.BaseRequest, target: Target, verb: str, raw: bytes) -> web.Response:
        resource = target.resource
        options = DeleteOptions.of(self._body(request, raw) if raw.strip() else {}, dict(request.query))
        if verb == "deletecollection":
            predicate = self._predicate(request, resource)
            found = [item for item in self.store[resource.store_key].all(target.namespace)
                     if predicate is None or predicate(item.obj)]  # fmt: skip
            for item in found:
                self._deleter.delete(resource, item, options)
            meta = {"resourceVersion": str(self.store.rv)}
            return web.Response(body=codec.Whole(resource).many(found, meta), content_type="application/json")
        stored = self.objects.get(resource, target.namespace, target.name)
        if resource.plural == "namespaces" and stored.name in bootstrap.PROTECTED_NAMESPACES:
            raise errors.forbidden(resource, stored.name, "this namespace may not be deleted")
        left, gone = self._deleter.delete(resource, stored, options)
        if not gone or resource.plural in _RETURNS_DELETED:
            accepted = not gone and options.propagation in ("Background", "Foreground")
            return _one(self._form(request, resource), left, 202 if accepted and resource.plural != "pods" else 200)
        details: Json = {"name": stored.name, "kind": resource.plural, "uid": stored.obj["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return _json({**subresources.SUCCESS, "details": details})

    # Subresources ----------------------------------------------------------------------------------------------

    async def _sub(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        resource, namespace, name = target.resource, target.namespace, target.name
        sub = resource.subresource(target.subresource)
        if sub is None:
            raise errors.no_such_path()
        if _VERBS.get(request.method, "") not in sub.verbs:
            raise errors.method_not_allowed("")
        if sub.name == "log":
            url = logs.kubelet_url(self.objects, namespace, name, request.query)
            assert self._session is not None
            return await logs.stream(request, self._session, url)
        raw = b"" if request.method in _READS else await request.read()
        if sub.name in ("status", "finalize"):
            return self._sub_object(request, target, raw)
        if sub.name == "scale":
            return self._scale(request, target, raw)
        body, write = self._body(request, raw), _write(request)
        if sub.name == "binding":
            return _json(self._binder.bind(namespace, name, body, write), 201)
        if sub.name == "eviction":
            return _json(self._evictor.evict(namespace, name, body, write), 201)
        return _json(subresources.request_token(self.objects, self._authenticator, namespace, name, body), 201)

    def _sub_object(self, request: web.BaseRequest, target: Target, raw: bytes) -> web.Response:
        resource = target.resource
        if request.method in _READS:
            return _one(self._form(request, resource), self.objects.get(resource, target.namespace, target.name))
        if request.method == "PATCH":
            return self._patch(request, target, raw)
        write = _write(request, target.subresource)
        body = self._body(request, raw)
        stored, _ = self.objects.replace(resource, target.namespace, target.name, body, write)
        return _one(self._form(request, resource), stored)

    def _scale(self, request: web.BaseRequest, target: Target, raw: bytes) -> web.Response:
        stored = self.objects.get(target.resource, target.namespace, target.name)
        scale = subresources.scale_of(stored)
        if request.method in _READS:
            return _json(scale)
        if request.method == "PATCH":
            kind, patch = _patch_of(request, raw)

            scale = patches.json_patch(scale, patch) if kind == JSON_PATCH else patches.merge_patch(scale, patch)
        else:
            scale = self._body(request, raw)
        return _json(subresources.set_scale(self.objects, target.resource, stored, scale, _write(request, "scale")))


def _verb(request: web.BaseRequest, target: Target | None, old_watch: bool) -> str:
    verb = _VERBS.get(request.method, request.method.lower())
    if target is None or target.subresource:
        return verb
    if verb == "get" and (old_watch or truth(request.query.get("watch"))):
        return "watch"
    if not target.name:
        return {"get": "list", "delete": "deletecollection"}.get(verb, verb)
    return verb


def _program(request: web.BaseRequest) -> str:
    return request.headers.get("User-Agent", "unknown").split("/")[0][:_MANAGER_MAX]


def _write(request: web.BaseRequest, subresource: str = "") -> Write:
    query = request.query
    manager = query.get("fieldManager", "") or _program(request)
    if len(manager) > _MANAGER_MAX or not manager.isprintable():
        raise errors.bad_request(f"fieldManager must be printable and no more than {_MANAGER_MAX} characters")
    dry_run = query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise errors.bad_request(f'dryRun: Unsupported value: "{dry_run}": supported values: "All"')
    return Write(manager, bool(dry_run), subresource, truth(query.get("force")))


def _patch_of(request: web.BaseRequest, raw: bytes) -> tuple[str, Any]:
    kind = request.content_type
    if kind not in PATCH_TYPES[:4]:
        raise errors.unsupported_media(kind, PATCH_TYPES[:4])
    if kind == APPLY_PATCH:
        if not request.query.get("fieldManager"):
            message = (
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            )
            raise errors.ApiError(422, "Invalid", message)
        return kind, _yaml(raw)
    try:
        return kind, orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"error decoding patch: {error}") from error


class _JsonTypes(yaml.SafeLoader):
    """YAML with JSON's types only: timestamps stay strings."""


_JsonTypes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _yaml(raw: bytes) -> Json:
    if raw.lstrip()[:1] == b"{":
        return codec.body(raw)
    try:
        obj = yaml.load(raw, _JsonTypes)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise errors.bad_request(f"error parsing YAML: {error}") from error
    if not isinstance(obj, dict):
        raise errors.bad_request("error parsing YAML: no object")
    return cast(Json, codec.without_nulls(obj))


def _json(obj: Json, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(obj), status=status, headers={"Content-Type": "application/json", **(headers or {})}
    )


def _maybe(obj: Json | None) -> web.Response | None:
    return None if obj is None else _json(obj)


def _one(form: ListForm, stored: Stored, status: int = 200) -> web.Response:
    return web.Response(body=form.one(stored), status=status, content_type="application/json")
