"""kubesim's API server asked by function calls: no socket, no event loop, nothing on disk, and copies for a song."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import orjson
from aiohttp import web
from multidict import CIMultiDict, MultiDict

from gameday_rehearsal.seed import Seeder
from kubesim import clock as kubesim_clock
from kubesim.apiserver.auth import service_account_groups
from kubesim.apiserver.request_selectors import Predicate, selector_predicate
from kubesim.apiserver.requests import parse_path, resolve
from kubesim.apiserver.server import ApiServer
from kubesim.apiserver.store import Event, Store, Stored
from kubesim.certificates import Authority

Json = dict[str, Any]
NAMESPACE = "gameday"
ADMINISTRATOR = "administrator"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_ACCOUNTS = ("gameday-runner", "gameday-reaper", "gameday-node-health")


@dataclass(frozen=True)
class Answer:
    """An answer as it goes over the wire."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Json:
        """Return the body's object."""
        found: Json = orjson.loads(self.body)
        return found


@dataclass(frozen=True)
class StoredState:
    """Every object of a server. Objects in a store are never changed, so that a copy of its tables is a copy of all."""

    collections: Mapping[str, Mapping[str, Mapping[str, Stored]]]
    version: int

    @classmethod
    def of(cls, store: Store) -> StoredState:
        """Return what a store holds now."""
        filled = {
            key: {namespace: dict(items) for namespace, items in collection.by_namespace.items()}
            for key, collection in store.collections.items()
            if collection.by_namespace
        }
        return cls(filled, store.rv)

    def store(self) -> Store:
        """Return a store of its own with these objects."""
        made = Store()
        made.rv = self.version
        for key, spaces in self.collections.items():
            made[key].by_namespace = {namespace: dict(items) for namespace, items in spaces.items()}
        for collection in made.collections.values():
            collection.last_rv = collection.window_starts_after = self.version
        return made


class _Request:
    """As much of aiohttp's request as kubesim reads; aiohttp's own takes longer to make than the answer."""

    def __init__(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> None:
        parts = urlsplit(url)
        self.method, self.path = method, parts.path
        self.query = MultiDict(parse_qsl(parts.query, keep_blank_values=True))
        self.headers = CIMultiDict(headers)
        self.content_type = self.headers.get("Content-Type", "application/octet-stream").partition(";")[0]
        self._body = body

    async def read(self) -> bytes:
        return self._body


class InMemoryApiServer:
    """The server of a scripted cluster. `administrator` acts beside the run, with every right."""

    def __init__(self, now: Callable[[], datetime], state: StoredState | None = None) -> None:
        """Begin with a state; None for one in which only deploy/rbac was applied.

        Args:
            now: The time of whatever the server dates.
            state: The objects.
        """
        self._now = now
        state = state or _with_rights()
        self._server = ApiServer(_folder(), _authority(), store=state.store())
        self.store = self._server.store

    def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Answer one request."""
        with kubesim_clock.reading(self._now):
            response = _run(self._server.handle(_Request(method, url, headers, body)))  # type: ignore[arg-type]
            while self._server.collector.work_once():
                pass
        found = response.body
        return Answer(response.status, found if isinstance(found, bytes) else b"", dict(response.headers))

    def administrator(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, patch: str = MERGE_PATCH
    ) -> Json:
        """Carry out a request of the administrator's, such as a kubelet's or a detector's.

        Raises:
            LookupError: The server refuses it.
        """
        kind = patch if method == "PATCH" else "application/json"
        headers = {"Authorization": f"Bearer {ADMINISTRATOR}", "Content-Type": kind, "Accept": "application/json"}
        answer = self.ask(method, path, headers, b"" if body is None else orjson.dumps(body))
        if answer.status >= 300:
            raise LookupError(f"{method} {path}: {answer.status} {answer.body[:500].decode()}")
        return answer.json()

    def predicate(self, url: str) -> tuple[str, bytes, str, Predicate | None]:
        """Return a watch's collection, its objects' first bytes, its namespace, and what its selectors let through."""
        parts = urlsplit(url)
        place = parse_path(parts.path)
        target = resolve(place) if place else None
        assert target, f"{url} names no resource"
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        resource = target.resource
        return resource.qualified, resource.prefix, target.namespace, selector_predicate(query, resource)

    def observe(self, observer: Callable[[str, Event], None]) -> None:
        """Tell `observer` of every change, with the key of its collection, while it is made."""
        self.store.observers.append(observer)

    def snapshot(self) -> StoredState:
        """Return all objects as they are now."""
        return StoredState.of(self.store)


def _run(answering: Any) -> web.Response:
    """Run a handler to its end, which it reaches without ever waiting: the body is there, and no log is fetched."""
    try:
        answering.send(None)
    except StopIteration as stop:
        response: web.Response = stop.value
        return response
    raise AssertionError("an in-memory request has to wait for something")


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of the keys that every server of this process shares; it is removed with the process."""
    return tempfile.TemporaryDirectory(prefix="scripted-")


@cache
def _folder() -> Path:
    folder = Path(_scratch().name)
    static = {ADMINISTRATOR: {"user": "administrator", "groups": ["system:masters"]}}
    for account in _ACCOUNTS:
        user = f"system:serviceaccount:{NAMESPACE}:{account}"
        static[account] = {"user": user, "groups": list(service_account_groups(NAMESPACE))}
    (folder / "tokens.json").write_bytes(orjson.dumps(static))
    return folder


@cache
def _authority() -> Authority:
    return Authority(_folder(), "ca")


@cache
def _with_rights() -> StoredState:
    """Return the state after deploy/rbac, as a rehearsal begins with it."""
    server = ApiServer(_folder(), _authority(), store=Store())

    def answer(request: httpx.Request) -> httpx.Response:
        asked = _Request(request.method, str(request.url), dict(request.headers), request.read())
        found = _run(server.handle(asked))  # type: ignore[arg-type]
        return httpx.Response(found.status, content=found.body)

    headers = {"Authorization": f"Bearer {ADMINISTRATOR}"}
    with httpx.Client(
        base_url="http://scripted", headers=headers, transport=httpx.MockTransport(answer), verify=False
    ) as http:
        Seeder(http, {}).rights()
    return StoredState.of(server.store)
