"""HTTP: who asks, for what, may they, and the answer. The meaning of writes lies in objects.py and deletion.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gameday.rehearsal.apiserver import bootstrap, codec, errors, logs, patches, selectors, subresources
from gameday.rehearsal.apiserver.auth import Authenticator, User, load_key, service_account_groups
from gameday.rehearsal.apiserver.deletion import Collector, DeleteOptions, Deleter
from gameday.rehearsal.apiserver.documents import document, public
from gameday.rehearsal.apiserver.metrics import Metrics
from gameday.rehearsal.apiserver.objects import JSON_PATCH, Objects
from gameday.rehearsal.apiserver.rbac import Action, Rbac, denied
from gameday.rehearsal.apiserver.requests import (
    READS,
    VERBS,
    Target,
    answer,
    form_of,
    object_of,
    one,
    patch_of,
    program,
    target_of,
    verb_of,
    write_of,
)
from gameday.rehearsal.apiserver.resources import Resource
from gameday.rehearsal.apiserver.reviews import Reviews
from gameday.rehearsal.apiserver.store import Store
from gameday.rehearsal.apiserver.watching import Lister, Watches, query_of

Json = dict[str, Any]
Handler = Callable[[web.BaseRequest, Target], web.StreamResponse | Awaitable[web.StreamResponse]]
log = logging.getLogger(__name__)

# DELETE of these answers with the object instead of a Status, as their real storage does.
_RETURNS_DELETED = frozenset({"pods", "services", "serviceaccounts", "persistentvolumeclaims", "podtemplates"})
# The real server's limit on request bodies.
MAX_BODY_BYTES = 3 * 1024 * 1024
_KUBELET_CONNECT_S = 5


class ApiServer:
    """One embedded API server over a data folder; `handle` is its whole HTTP face."""

    def __init__(self, folder: Path, ca: Path) -> None:
        self.store = Store(folder / "state.jsonl")
        self.static = bootstrap.tokens(folder)
        self._metrics = Metrics()
        self._objects = Objects(self.store)
        self._watches = Watches(self.store)
        self._lister = Lister(self.store)
        self._authenticator = Authenticator(self.store, self.static, load_key(folder / "serviceaccount.key"))
        self._rbac = Rbac(self.store)
        self._reviews = Reviews(self._rbac, self._authenticator)
        self._deleter = Deleter(self._objects)
        self._evictor = subresources.Evictor(self._objects, self._deleter)
        self._binder = subresources.Binder(self._objects)
        bootstrap.Namespaces(self._objects, ca.read_text())
        bootstrap.ensure(self._objects)
        self._collector = Collector(self._objects, self._deleter)
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._verbs: dict[str, Handler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }
        self._subresources: dict[str, Handler] = {
            "binding": self._bind,
            "eviction": self._evict,
            "finalize": self._part,
            "log": self._log,
            "scale": self._scale,
            "status": self._part,
            "token": self._token,
        }

    async def start(self) -> None:
        """Start what runs beside requests."""
        self._tasks = [
            asyncio.create_task(self._collector.run()),
            asyncio.create_task(self._collector.expire_events()),
        ]
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_KUBELET_CONNECT_S)
        self._session = aiohttp.ClientSession(timeout=timeout)

    async def stop(self) -> None:
        """End the watches and what runs beside requests."""
        self._watches.close_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every failure becomes a Status."""
        target, old_watch = target_of(request.path)
        verb = verb_of(request, target, old_watch)
        try:
            response = await self._dispatch(request, target, verb)
        except errors.ApiError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
            response = answer(error.body(), error.code, headers)
        except web.HTTPException as error:
            message = f"the request cannot be read: {error.reason}"
            response = answer(errors.ApiError(error.status, "", message).body(), error.status)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            body = errors.ApiError(500, "InternalError", "an error of the embedded API server; see its log").body()
            response = answer(body, 500)
        size = len(response.body) if isinstance(response, web.Response) and isinstance(response.body, bytes) else 0
        named, sub = (target.resource.plural, target.subresource) if target else ("", "")
        self._metrics.count(verb.upper(), named, sub, program(request), response.status, size)
        return response

    async def _dispatch(self, request: web.BaseRequest, target: Target | None, verb: str) -> web.StreamResponse:
        if target is None and public(request.path):
            return document(request)
        user = self._user(request)
        if target is None:
            return self._plain(request, user)
        resource = target.resource
        pinned = selectors.name_in(request.query.get("fieldSelector", "")) if verb in ("list", "watch") else ""
        # For RBAC a namespace object lies in itself.
        namespace = target.name if resource.plural == "namespaces" else target.namespace
        name = target.name or pinned
        self._check(user, Action(verb, resource.group, resource.plural, target.subresource, namespace, name))
        handler = self._handler(request, target, verb)
        if not resource.stored and resource.plural != "bindings":
            body = object_of(request, await request.read())
            return answer(self._reviews.answer(resource, user, target.namespace, body), 201)
        response = handler(request, target)
        return response if isinstance(response, web.StreamResponse) else await response

    def _handler(self, request: web.BaseRequest, target: Target, verb: str) -> Handler:
        """Who answers; ApiError 404 or 405 when nobody does."""
        if target.subresource:
            sub = target.resource.subresource(target.subresource)
            if sub is None:
                raise errors.no_such_path()
            if VERBS.get(request.method, "") not in sub.verbs:
                raise errors.method_not_allowed()
            return self._subresources[sub.name]
        named = verb in ("update", "patch")
        if verb not in target.resource.verbs or (named and not target.name) or (verb == "create" and target.name):
            raise errors.method_not_allowed()
        return self._verbs[verb]

    def _user(self, request: web.BaseRequest) -> User:
        """The caller, or whom the caller may impersonate. Raises ApiError 401 or 403."""
        user = self._authenticator.user(request.headers.get("Authorization", ""))
        if user is None:
            raise errors.unauthorized()
        name = request.headers.get("Impersonate-User", "")
        if not name:
            return user
        groups = tuple(request.headers.getall("Impersonate-Group", []))
        action = Action("impersonate", resource="users", name=name)
        own_groups: tuple[str, ...] = ()
        if name.startswith("system:serviceaccount:") and name.count(":") == 3:
            _, _, space, account = name.split(":")
            action = Action("impersonate", resource="serviceaccounts", namespace=space, name=account)
            own_groups = service_account_groups(space)
        for asked in (action, *(Action("impersonate", resource="groups", name=group) for group in groups)):
            self._check(user, asked)
        return User(name, tuple(dict.fromkeys((*(groups or own_groups), "system:authenticated"))))

    def _check(self, user: User, action: Action) -> None:
        if not self._rbac.decide(user, action).allowed:
            raise denied(user, action)

    def _plain(self, request: web.BaseRequest, user: User) -> web.Response:
        self._check(user, Action("get" if request.method in READS else request.method.lower(), path=request.path))
        if request.path == "/metrics":
            counts = {key: collection.count() for key, collection in self.store.collections.items()}
            return web.Response(text=self._metrics.render(counts, self._watches.count))
        return document(request)

    # Reads -----------------------------------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        return one(request, target.resource, self._objects.get(target.resource, target.namespace, target.name))

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        predicate = _predicate(request, target.resource)
        query = query_of(form_of(request, target.resource), target.namespace, predicate, request.query)
        body = self._lister.answer(target.resource.store_key, query)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        named = f"metadata.name={target.name}" if target.name else ""
        predicate, params = _predicate(request, target.resource, named), {**request.query, "watch": "1"}
        query = query_of(form_of(request, target.resource), target.namespace, predicate, params)
        return await self._watches.serve(request, target.resource.store_key, query)

    # Writes ----------------------------------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target) -> web.Response:
        body, write = object_of(request, await request.read()), write_of(request)
        if target.resource.plural == "bindings":
            name = (body.get("metadata") or {}).get("name", "")
            return answer(self._binder.bind(target.namespace, name, body, write), 201)
        if target.resource.namespaced and not target.namespace:
            raise errors.bad_request("an empty namespace may not be set during creation")
        stored = self._objects.create(target.resource, target.namespace, body, write)
        return one(request, target.resource, stored, 201)

    async def _update(self, request: web.BaseRequest, target: Target) -> web.Response:
        body, write = object_of(request, await request.read()), write_of(request, target.subresource)
        stored, created = self._objects.replace(target.resource, target.namespace, target.name, body, write)
        return one(request, target.resource, stored, 201 if created else 200)

    async def _patch(self, request: web.BaseRequest, target: Target) -> web.Response:
        kind, patch = patch_of(request, await request.read())
        write = write_of(request, target.subresource)
        stored, created = self._objects.patch(target.resource, target.namespace, target.name, kind, patch, write)
        return one(request, target.resource, stored, 201 if created else 200)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        resource, options = target.resource, await _delete_options(request)
        stored = self._objects.get(resource, target.namespace, target.name)
        if resource.plural == "namespaces" and stored.name in bootstrap.PROTECTED_NAMESPACES:
            raise errors.forbidden(resource, stored.name, "this namespace may not be deleted")
        left, gone = self._deleter.delete(resource, stored, options)
        if not gone or resource.plural in _RETURNS_DELETED:
            accepted = not gone and options.propagation == "Foreground"
            return one(request, resource, left, 202 if accepted else 200)
        details: Json = {"name": stored.name, "kind": resource.plural, "uid": stored.obj["metadata"]["uid"]}
        if resource.group:
            details["group"] = resource.group
        return answer({**subresources.SUCCESS, "details": details})

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.Response:
        resource, options = target.resource, await _delete_options(request)
        predicate = _predicate(request, resource)
        everything = self.store[resource.store_key].all(target.namespace)
        found = [item for item in everything if predicate is None or predicate(item.obj)]
        for item in found:
            self._deleter.delete(resource, item, options)
        body = codec.Whole(resource).many(found, {"resourceVersion": str(self.store.rv)})
        return web.Response(body=body, content_type="application/json")

    # Subresources ----------------------------------------------------------------------------------------------

    async def _part(self, request: web.BaseRequest, target: Target) -> web.Response:
        """status and finalize: the object again, of which only a part is written."""
        if request.method in READS:
            return self._get(request, target)
        return await (self._patch if request.method == "PATCH" else self._update)(request, target)

    async def _log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        url = logs.kubelet_url(self._objects, target.namespace, target.name, request.query)
        assert self._session is not None
        return await logs.stream(request, self._session, url)

    async def _bind(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = object_of(request, await request.read())
        return answer(self._binder.bind(target.namespace, target.name, body, write_of(request)), 201)

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = object_of(request, await request.read())
        return answer(self._evictor.evict(target.namespace, target.name, body, write_of(request)), 201)

    async def _token(self, request: web.BaseRequest, target: Target) -> web.Response:
        body = object_of(request, await request.read())
        made = subresources.request_token(self._objects, self._authenticator, target.namespace, target.name, body)
        return answer(made, 201)

    async def _scale(self, request: web.BaseRequest, target: Target) -> web.Response:
        raw = await request.read()
        stored = self._objects.get(target.resource, target.namespace, target.name)
        scale = subresources.scale_of(stored)
        if request.method in READS:
            return answer(scale)
        if request.method == "PATCH":
            kind, patch = patch_of(request, raw)
            scale = patches.json_patch(scale, patch) if kind == JSON_PATCH else patches.merge_patch(scale, patch)
        else:
            scale = object_of(request, raw)
        write = write_of(request, "scale")
        return answer(subresources.set_scale(self._objects, target.resource, stored, scale, write))


def _predicate(request: web.BaseRequest, resource: Resource, named: str = "") -> selectors.Predicate | None:
    query = request.query
    wanted = ",".join(part for part in (query.get("fieldSelector", ""), named) if part)
    return selectors.both(selectors.labels(query.get("labelSelector", "")), selectors.fields(resource, wanted))


async def _delete_options(request: web.BaseRequest) -> DeleteOptions:
    raw = await request.read()
    return DeleteOptions.of(object_of(request, raw) if raw.strip() else {}, dict(request.query))
