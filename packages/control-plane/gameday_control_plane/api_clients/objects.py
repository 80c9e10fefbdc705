"""The objects of a load, which are made, counted and deleted by their label."""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from gameday.api_clients.connection import open_connection
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.ask import ask
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE, Form, Read, list_request

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S, _CONNECT_TIMEOUT_S = 60.0, 10.0
_PARALLEL = 8
"""Objects made at the same time: enough to keep a server busy, too few to be a storm."""
_PAGE = 500
_DELETED_AT_ONCE = 100
"""Objects that one request deletes: at 0.2 MB each the answer has 27 MB, well within the time-out on a busy machine."""
_SEED = 20260101
_VERSIONS = 1_000_003
_KINDS = {"secrets": ("Secret", "data"), "configmaps": ("ConfigMap", "binaryData")}
"""Kind, and key of the bytes, by resource."""
_CONFLICT = 409


@dataclass(frozen=True)
class Counted:
    """The objects of a load at one moment."""

    objects: int
    resource_version: str


class LoadObjects:
    """The objects of one load. Each method may be called in a thread of its own."""

    def __init__(self, server: ApiServer, resource: str, load: str) -> None:
        """Name the objects.

        Args:
            server: The API server.
            resource: Plural of the core group: secrets or configmaps.
            load: The value of their label, and the beginning of their names.
        """
        self._server = server
        self._load = load
        self._path = f"/api/v1/namespaces/{NAMESPACE}/{resource}"
        self._resource = resource
        self._selector = f"{LOAD_LABEL}={load}"

    def make(self, count: int, size: int) -> None:
        """Make objects of random, incompressible bytes, the same in every run.

        Args:
            count: Number of objects.
            size: Bytes of each object's data, before Kubernetes encodes it.

        Raises:
            HostError: The server refuses one, or does not answer.
        """
        asyncio.run(self._make(count, size))

    def count(self) -> Counted:
        """Return how many there are, counted by pages of metadata. Raises HostError."""
        return asyncio.run(self._count())

    def list_bytes(self) -> int:
        """Return the bytes of one LIST of the resource as JSON. Raises HostError."""
        return asyncio.run(self._list_bytes())

    def delete(self) -> int:
        """Delete all, and return how many there were. Raises HostError."""
        return asyncio.run(self._delete())

    def exist(self) -> bool:
        """Return True if there is at least one. Raises HostError."""
        return asyncio.run(self._exist())

    async def _make(self, count: int, size: int) -> None:
        numbers = iter(range(count))

        async def make_some(http: httpx.AsyncClient) -> None:
            for number in numbers:
                await ask(
                    http,
                    "POST",
                    self._path,
                    content=load_object(self._resource, self._load, number, size),
                    fine=(_CONFLICT,),
                )

        async with self._open(_PARALLEL) as http:
            await asyncio.gather(*(make_some(http) for _ in range(_PARALLEL)))

    async def _count(self) -> Counted:
        async with self._open() as http:
            found, page = 0, await self._metadata(http, _PAGE)
            while True:
                found += len(page["items"])
                more = page["metadata"].get("continue")
                if not more:
                    return Counted(found, str(page["metadata"]["resourceVersion"]))
                page = await self._metadata(http, _PAGE, more)

    async def _exist(self) -> bool:
        async with self._open() as http:
            return bool((await self._metadata(http, 1))["items"])

    async def _list_bytes(self) -> int:
        request = list_request(self._resource, Form.JSON, Read.LATEST, "")
        async with self._open() as http:
            answer = await ask(http, "GET", request.path, headers={"Accept": request.accept})
        return answer.size

    async def _delete(self) -> int:
        """Delete page by page: an answer contains what it deleted, and one for everything would be one more LIST."""
        before = (await self._count()).objects
        async with self._open() as http:
            params = {"labelSelector": self._selector, "limit": str(_DELETED_AT_ONCE)}
            while (await self._metadata(http, 1))["items"]:
                await ask(http, "DELETE", self._path, params=params)
        return before

    async def _metadata(self, http: httpx.AsyncClient, limit: int, more: str = "") -> Any:
        request = list_request(self._resource, Form.METADATA, Read.LATEST, "")
        params = {"labelSelector": self._selector, "limit": str(limit)} | ({"continue": more} if more else {})
        answer = await ask(http, "GET", request.path, params=params, headers={"Accept": request.accept}, keep=True)
        try:
            page = orjson.loads(answer.body)
            # A real server writes null for a page without items, such as the last one of a selector.
            return page | {"items": page["items"] or []}
        except orjson.JSONDecodeError:
            raise HostError(f"GET {self._path}: the answer is not JSON") from None

    def _open(self, connections: int = 1) -> httpx.AsyncClient:
        import httpx  # noqa: PLC0415

        return open_connection(self._server, httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_TIMEOUT_S), connections)


def object_name(load: str, number: int) -> str:
    """Return the name of one of a load's objects, which are numbered from 0."""
    return f"{load}-{number:05}"


def load_object(resource: str, load: str, number: int, size: int, version: int = 0) -> bytes:
    """Return an object of a load, as JSON: random, incompressible bytes, the same in every run.

    Args:
        resource: secrets or configmaps.
        load: The value of its label, and the start of its name.
        number: The object's number.
        size: Bytes of its data, before Kubernetes encodes it.
        version: Each version has different bytes.
    """
    kind, data = _KINDS[resource]
    payload = random.Random(_SEED + number + version * _VERSIONS).randbytes(size)  # noqa: S311 - a payload, and no secret
    return orjson.dumps(
        {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": object_name(load, number), "labels": {LOAD_LABEL: load}},
            data: {"payload": base64.b64encode(payload).decode()},
        }
    )
