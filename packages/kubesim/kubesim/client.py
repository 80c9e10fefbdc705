"""A small asyncio Kubernetes client over plain JSON, for controllers and virtual nodes.

The official client decodes every object into a model, which costs more processor time than everything else when one
process plays a thousand nodes on two cores. Controllers and virtual nodes only move JSON around, and this client leaves
it as it is.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from kubesim import __version__
from kubesim.errors import ApiError
from kubesim.kubeconfig import Kubeconfig

log = logging.getLogger(__name__)

Object = dict[str, Any]
Body = Object | list[Object]  # a JSON Patch is a list

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

REQUEST_TIMEOUT_S = 30.0
# client-go gives up after ten answers of "too many requests" that named a Retry-After (rest/with_retry.go).
TOO_MANY_REQUESTS_TRIES = 10
LIST_PAGE = 500  # client-go's pager.defaultPageSize
WATCH_SECONDS = (300, 600)  # client-go's reflector asks for a random time in this range
BACKOFF_S = (0.2, 2.0)  # first and longest pause; kubesim's API server is back within a second


class ApiClient:
    """A connection pool to an API server under one identity. Use as an async context manager.

    `component` becomes the User-Agent's product, and with it the manager's name in managedFields.
    """

    def __init__(self, kubeconfig: Kubeconfig, component: str, connections: int = 100) -> None:
        self.component = component
        self._base = kubeconfig.server
        self._tls: ssl.SSLContext | bool = kubeconfig.tls or True
        self._headers = {"User-Agent": f"{component}/{__version__}", "Accept": JSON}
        if kubeconfig.token:
            self._headers["Authorization"] = f"Bearer {kubeconfig.token}"
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._tls)
        self._session = aiohttp.ClientSession(connector=connector, headers=self._headers, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def request(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        content_type: str = JSON,
        *,
        params: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Object:
        """Send one request and return the decoded JSON answer ({} for an empty one).

        After an answer of 429 or 5xx with a Retry-After it waits and tries again, as client-go does. Nothing else is
        retried. Raises ApiError.
        """
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content_type} if data is not None else {}
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        for remaining in reversed(range(TOO_MANY_REQUESTS_TRIES)):
            try:
                async with self._open.request(
                    method, self._base + path, data=data, headers=headers, params=params, timeout=timeout
                ) as response:
                    content = await response.read()
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise self._unreachable(method, path, error) from error
            wait_s = _retry_after(response)
            if (response.status == 429 or response.status >= 500) and wait_s is not None and remaining:
                await asyncio.sleep(wait_s * random.uniform(1.0, 1.2))  # noqa: S311 - jitter, not a secret
                continue
            if response.status >= 400:
                raise _refusal(response, content)
            return _decoded(method, path, content)
        raise AssertionError("the last try either returned or raised")

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Object:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Object) -> Object:
        return await self.request("POST", path, body)

    async def put(self, path: str, body: Object) -> Object:
        return await self.request("PUT", path, body)

    async def patch(self, path: str, body: Body, content_type: str = MERGE_PATCH) -> Object:
        return await self.request("PATCH", path, body, content_type)

    async def delete(self, path: str, body: Object | None = None) -> Object:
        return await self.request("DELETE", path, body)

    async def watch(
        self, path: str, params: Mapping[str, str], opened: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Object]:
        """Yield the events of one watch until the server ends it; call `opened` once the server has accepted it.

        Raises ApiError.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_S)
        query = {**params, "watch": "true"}
        try:
            async with self._open.get(self._base + path, params=query, timeout=timeout) as response:
                if response.status >= 400:
                    raise _refusal(response, await response.read())
                opened()
                rest = b""
                # Lines are cut by hand, because aiohttp's readline refuses objects longer than its buffer.
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield orjson.loads(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable("WATCH", path, error) from error

    @property
    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the API client is used outside its `async with` block")
        return self._session

    def _unreachable(self, method: str, path: str, error: BaseException) -> ApiError:
        return ApiError(0, "Unreachable", f"{method} {self._base}{path}: {error or type(error).__name__}")


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else None


def _decoded(method: str, path: str, content: bytes) -> Object:
    if not content:
        return {}
    try:
        answer: Object = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ApiError(0, "NotJSON", f"{method} {path}: the answer is not JSON: {error}") from None
    return answer


def _refusal(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    reason, message = response.reason or "", content[:500].decode(errors="replace")
    try:
        body = orjson.loads(content)
        reason, message = str(body.get("reason", reason)), str(body.get("message", ""))
    except (orjson.JSONDecodeError, AttributeError):
        pass  # a proxy's answer, or plain text
    return ApiError(response.status, reason, message, _retry_after(response) or 0.0)


def key_of(obj: Object) -> str:
    """Return the key in a Reflector's store: `namespace/name`, or `name` for an object without a namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


Added = Callable[[Object], Awaitable[None] | None]
Updated = Callable[[Object, Object], Awaitable[None] | None]


class Reflector:
    """A local copy of one collection, kept by list and watch, which passes changes to handlers.

    The objects in `store` (by `key_of`) are shared: treat them as read-only. Handlers are called one at a time, in
    the order of the events; one that raises is logged and does not stop the others. The watch resumes from the last
    resourceVersion after any interruption; when the server has forgotten that version (410) everything is listed
    again and the differences are delivered as ordinary add, update and delete calls. Objects come without their
    managedFields, nearly half of a pod's memory; the server keeps those if a write brings none.
    """

    def __init__(
        self, api: ApiClient, path: str, *, label_selector: str | None = None, field_selector: str | None = None
    ) -> None:
        self._api = api
        self._path = path
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: value for name, value in selectors.items() if value}
        self._version: str | None = None
        self._on_add: list[Added] = []
        self._on_update: list[Updated] = []
        self._on_delete: list[Added] = []
        self.store: dict[str, Object] = {}
        self.synced = asyncio.Event()
        # Event-loop time since which the watch is up, None while it is broken; earlier changes may have been missed.
        self.listening_since: float | None = None

    def on(self, add: Added | None = None, update: Updated | None = None, delete: Added | None = None) -> None:
        """Register handlers, before `run`: `add(obj)`, `update(old, new)`, `delete(last known obj)`."""
        if add:
            self._on_add.append(add)
        if update:
            self._on_update.append(update)
        if delete:
            self._on_delete.append(delete)

    async def run(self) -> None:
        """Follow the collection until cancelled. Never raises ApiError: it logs, backs off and goes on."""
        pause_s = BACKOFF_S[0]
        while True:
            try:
                if self._version is None:
                    await self._list()
                await self._watch_once()
                pause_s = BACKOFF_S[0]
            except ApiError as error:
                self.listening_since = None
                if error.status == 410:
                    log.info("%s: resource version too old, listing again", self._path)
                    self._version = None
                else:
                    log.warning("%s: %s", self._path, error)
                await asyncio.sleep(error.retry_after_s + pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
                pause_s = min(pause_s * 2, BACKOFF_S[1])

    async def _list(self) -> None:
        fresh: dict[str, Object] = {}
        query = {**self._selectors, "limit": str(LIST_PAGE)}
        while True:
            page = await self._api.get(self._path, query)
            fresh.update((key_of(item), item) for item in page.get("items") or ())
            if not (token := page["metadata"].get("continue")):
                break
            query["continue"] = token
        for key in [key for key in self.store if key not in fresh]:
            await self._call(self._on_delete, self.store.pop(key))
        for key, item in fresh.items():
            await self._put(key, item)
        self._version = page["metadata"]["resourceVersion"]
        self.synced.set()

    async def _watch_once(self) -> None:
        query = {
            **self._selectors,
            "resourceVersion": self._version or "0",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - jitter, not a secret
        }
        async for event in self._api.watch(self._path, query, self._opened):
            obj = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(obj.get("code", 500)), str(obj.get("reason")), str(obj.get("message")))
            if event["type"] == "DELETED":
                self.store.pop(key_of(obj), None)
                await self._call(self._on_delete, obj)
            elif event["type"] != "BOOKMARK":
                await self._put(key_of(obj), obj)
            self._version = obj["metadata"]["resourceVersion"]

    def _opened(self) -> None:
        if self.listening_since is None:
            self.listening_since = asyncio.get_running_loop().time()

    async def _put(self, key: str, obj: Object) -> None:
        obj["metadata"].pop("managedFields", None)
        old = self.store.get(key)
        self.store[key] = obj
        if old is None:
            await self._call(self._on_add, obj)
        elif old["metadata"].get("uid") != obj["metadata"].get("uid"):
            await self._call(self._on_delete, old)
            await self._call(self._on_add, obj)
        elif old["metadata"].get("resourceVersion") != obj["metadata"].get("resourceVersion"):
            await self._call(self._on_update, old, obj)

    async def _call(self, handlers: list[Any], *objects: Object) -> None:
        for handler in handlers:
            try:
                outcome = handler(*objects)
                if inspect.isawaitable(outcome):
                    await outcome
            except Exception:
                # One faulty handler must not blind the others that share this watch.
                log.exception("%s: a handler failed for %s", self._path, key_of(objects[-1]))
