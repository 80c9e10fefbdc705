"""HTTP: authenticate, authorize and answer requests. objects.py and deletion.py carry out writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from kubesim import unsimulated
from kubesim.apiserver import bootstrap, errors, logs, request_selectors
from kubesim.apiserver.auth import Authenticator, User, load_key
from kubesim.apiserver.bodies import Expected, read_decoded, user_agent_program
from kubesim.apiserver.deletion import Collector, Deleter
from kubesim.apiserver.documents import answer_path, page_not_found
from kubesim.apiserver.impersonation import impersonated
from kubesim.apiserver.metrics import Metrics
from kubesim.apiserver.notices import Notices
from kubesim.apiserver.objects import Objects, Write
from kubesim.apiserver.rbac import Action, Rbac
from kubesim.apiserver.requests import (
    READS,
    VERBS,
    ResourcePath,
    Target,
    add_warnings,
    json_response,
    object_response,
    parse_path,
    request_verb,
    resolve,
    response_form,
)
from kubesim.apiserver.resources import GROUPS
from kubesim.apiserver.reviews import Reviews
from kubesim.apiserver.store import Store
from kubesim.apiserver.watching import Lister, Watches, list_query, parse_version, version_too_large
from kubesim.apiserver.writing import Writing
from kubesim.certificates import Authority

Json = dict[str, Any]
Handler = Callable[[web.BaseRequest, Target], web.StreamResponse | Awaitable[web.StreamResponse]]
log = logging.getLogger(__name__)

# The real server's limit on request bodies.
MAX_BODY_BYTES = 3 * 1024 * 1024


class ApiServer:
    """An embedded API server over a data folder; `handle` answers its HTTP requests.

    `runtime_classes` are the RuntimeClasses that pods may name, although there are no such objects. `store` holds the
    objects; None: those of the folder.
    """

    def __init__(
        self, folder: Path, authority: Authority, runtime_classes: Collection[str] = (), store: Store | None = None
    ) -> None:
        self._authority = authority
        self.store = store or Store(folder / "state.jsonl")
        self.static = bootstrap.load_tokens(folder)
        self._metrics = Metrics()
        self._objects = Objects(self.store, runtime_classes)
        self._watches = Watches(self.store)
        self._lister = Lister(self.store)
        self._authenticator = Authenticator(self.store, self.static, load_key(folder / "serviceaccount.key"))
        self._rbac = Rbac(self.store)
        self._reviews = Reviews(self._rbac)
        self._deleter = Deleter(self._objects)
        self._writing = Writing(self._objects, self._deleter, self._authenticator)
        bootstrap.NamespaceFiller(self._objects, authority.certificate.read_text())
        bootstrap.create_built_ins(self._objects)
        Notices(self._objects)
        self.collector = Collector(self._objects, self._deleter)
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._verbs: dict[str, Handler] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._writing.create,
            "update": self._writing.update,
            "patch": self._writing.patch,
            "delete": self._writing.delete,
            "deletecollection": self._writing.delete_collection,
        }
        self._subresources: dict[str, Handler] = {
            "binding": self._writing.bind,
            "eviction": self._writing.evict,
            "log": self._log,
            "status": self._part,
            "token": self._writing.token,
        }

    async def start(self) -> None:
        """Start the background work."""
        self._tasks = [
            asyncio.create_task(self.collector.run()),
            asyncio.create_task(self.collector.expire_events()),
        ]
        self._session = logs.kubelet_session(self._authority)

    async def stop(self) -> None:
        """End the watches and the background work."""
        self._watches.close_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; every failure becomes a Status."""
        place = parse_path(request.path)
        verb, target = request_verb(request, place), resolve(place) if place else None
        try:
            response = await self._dispatch(request, place, target, verb)
        except errors.StatusError as error:
            headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
            response = json_response(error.body(), error.code, headers)
            add_warnings(response, error.warnings)
        except web.HTTPException as error:
            response = json_response(errors.unreadable(error.status, error.reason, MAX_BODY_BYTES).body(), error.status)
        except Exception:
            log.exception("%s %s", request.method, request.path)
            body = errors.StatusError(500, "InternalError", "the API server failed; see its log").body()
            response = json_response(body, 500)
        if isinstance(response, web.Response):
            response.headers.setdefault("Cache-Control", "no-cache, private")
        size = len(response.body) if isinstance(response, web.Response) and isinstance(response.body, bytes) else 0
        named, sub = (target.resource.plural, target.subresource) if target else ("", "")
        self._metrics.count(verb.upper(), named, sub, user_agent_program(request), response.status, size)
        return response

    async def _dispatch(
        self, request: web.BaseRequest, place: ResourcePath | None, target: Target | None, verb: str
    ) -> web.StreamResponse:
        action = _action(request, place, verb)
        user = self._user(request)
        self._rbac.check(user, action)
        if place is None:
            return self._plain(request)
        if target is None:
            if place.group and place.group not in GROUPS | unsimulated.GROUPS:
                return page_not_found()
            raise _missing(place.group, place.plural, place.subresource)
        resource, handler = target.resource, self._handler(request, target, verb)
        if not resource.is_stored:
            body = read_decoded(request, await request.read(), Expected.of(resource), Write(""))
            return json_response(self._reviews.answer(resource, user, body), 201)
        response = handler(request, target)
        return response if isinstance(response, web.StreamResponse) else await response

    def _handler(self, request: web.BaseRequest, target: Target, verb: str) -> Handler:
        """Return the handler of the request; StatusError 404 or 405 if there is none."""
        if target.subresource:
            sub = target.resource.subresource(target.subresource)
            if sub is None:
                raise _missing(target.resource.group, target.resource.plural, target.subresource)
            if VERBS.get(request.method, "") not in sub.verbs:
                raise errors.method_not_allowed()
            return self._subresources[sub.name]
        resource = target.resource
        one_wanted = verb in ("update", "patch", "delete", "get")
        everywhere = resource.namespaced and not target.namespace and verb not in ("list", "watch")
        if request.method == "HEAD" or verb not in resource.verbs or one_wanted != bool(target.name) or everywhere:
            raise errors.method_not_allowed()
        return self._verbs[verb]

    def _user(self, request: web.BaseRequest) -> User:
        """Return the caller, or the user that the caller impersonates. Raises StatusError 400, 401 or 403."""
        user = self._authenticator.user(request.headers.get("Authorization", ""))
        if user is None:
            raise errors.unauthorized()
        return impersonated(self._rbac, user, request.headers)

    def _plain(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/metrics":
            counts = {key: collection.count() for key, collection in self.store.collections.items()}
            return web.Response(text=self._metrics.render(counts, self._watches.count))
        return answer_path(request)

    # Reads -----------------------------------------------------------------------------------------------------

    def _get(self, request: web.BaseRequest, target: Target) -> web.Response:
        asked = parse_version(request.query.get("resourceVersion", ""))
        if asked > self.store.rv:
            raise version_too_large(asked, self.store.rv)
        return object_response(
            request, target.resource, self._objects.get(target.resource, target.namespace, target.name)
        )

    def _list(self, request: web.BaseRequest, target: Target) -> web.Response:
        predicate, form = (
            request_selectors.selector_predicate(request.query, target.resource),
            response_form(request, target.resource, many=True),
        )
        query = list_query(form, target.namespace, predicate, request.query, watch=False)
        body = self._lister.answer(target.resource.qualified, query)
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        predicate = request_selectors.selector_predicate(request.query, target.resource)
        form = response_form(request, target.resource, streamed=True)
        query = list_query(form, target.namespace, predicate, request.query, watch=True)
        return await self._watches.serve(request, target.resource.qualified, query)

    # Writes ----------------------------------------------------------------------------------------------------

    async def _part(self, request: web.BaseRequest, target: Target) -> web.Response:
        """Answer a request for a status: a read returns the whole object, a write changes only its status."""
        return self._get(request, target) if request.method in READS else await self._writing.part(request, target)

    async def _log(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        url = logs.log_url(self._objects, target.namespace, target.name, request.query)
        assert self._session is not None
        return await logs.stream_log(request, self._session, url)


def _missing(group: str, plural: str, subresource: str) -> errors.StatusError:
    """Return 404; with a message of our own if a real server would serve it."""
    refusal = unsimulated.refusal(group, plural, subresource)
    return errors.not_simulated(refusal) if refusal else errors.no_such_path()


def _action(request: web.BaseRequest, place: ResourcePath | None, verb: str) -> Action:
    """Return the caller's action for authorization; a namespace counts as being in itself."""
    if place is None:
        return Action("get" if verb == "head" else verb, path=request.path)
    pinned = request_selectors.pinned_name(request.query.get("fieldSelector", "")) if verb in ("list", "watch") else ""
    return Action(verb, place.group, place.plural, place.subresource, place.namespace, place.name or pinned)
