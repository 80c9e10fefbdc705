"""Pods of one GPU each: created at a steady rate, followed by a watch until they are bound, and deleted by label."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from gameday.api_clients.ask import ask
from gameday.api_clients.connection import open_connection
from gameday.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday.values.api_requests import percentile
from gameday.values.pod_steps import LOAD, Allocation, PodsPlaced, PodStep

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
_TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"
_SELECTED = {"labelSelector": f"{LOAD_LABEL}={LOAD}"}
_IMAGE = "registry.k8s.io/pause:3.10"
# The namespace enforces the Pod Security Standard "restricted".
_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_CONFLICT, _NOT_FOUND = 409, 404
_PARALLEL = 16
_PAGE = 500
_GONE_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.2
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_WATCH_TIMEOUT = httpx.Timeout(10.0, read=None)


@dataclass
class Sightings:
    """Times of the monotonic clock at which the watch showed each pod first, and bound first."""

    seen: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    def take(self, event: dict[str, Any], now: float) -> None:
        """Note an event of the watch."""
        name = event["object"]["metadata"].get("name")
        if event["type"] not in ("ADDED", "MODIFIED") or name is None:
            return
        self.seen.setdefault(name, now)
        if event["object"]["spec"].get("nodeName"):
            self.bound.setdefault(name, now)

    def step(self, number: int, names: list[str], began: float) -> PodStep:
        """Return the step that made these pods."""
        bound = [name for name in names if name in self.bound]
        took = [self.bound[name] - self.seen[name] for name in bound]
        last = max((self.bound[name] for name in bound), default=began)
        return PodStep(
            step=number,
            created=len(names),
            bound=len(bound),
            took_s=round(last - began, 3),
            p50_s=percentile(took, 0.5),
            p99_s=percentile(took, 0.99),
        )


class PodLoad:
    """The pods of the load. Its methods may each be called in a thread of their own."""

    def __init__(self, server: ApiServer, allocation: Allocation, device_class: str) -> None:
        """Name the pods.

        Args:
            server: The API server.
            allocation: How they ask for a GPU.
            device_class: The DeviceClass of their claims.
        """
        self._server = server
        self._allocation = allocation
        self._device_class = device_class

    def prepare(self) -> None:
        """Make the template of the pods' claims, where they have any. Raises HostError."""
        if self._allocation is Allocation.DRA:
            asyncio.run(self._make_template())

    def make_in_steps(
        self,
        steps: tuple[int, ...],
        rate: float,
        patience_s: float,
        ended: threading.Event,
        tell: Callable[[PodStep], None],
    ) -> None:
        """Create pods, step by step; a step waits until all of its pods are bound, or for `patience_s`.

        Args:
            steps: Pods of each step.
            rate: Pods made in a second.
            patience_s: Longest time from a step's last creation until its pods are bound.
            ended: Set when no more should be made.
            tell: Called with each step when it is over.

        Raises:
            HostError: The server refuses a pod, or does not answer.
        """
        asyncio.run(self._make_in_steps(steps, rate, patience_s, ended, tell))

    def placed(self, wanted: int) -> PodsPlaced:
        """Return where the pods are, from the objects. Raises HostError."""
        return asyncio.run(self._placed(wanted))

    def delete(self) -> int:
        """Delete all and wait until they are gone; return how many there were. Raises HostError."""
        return asyncio.run(self._delete())

    def exist(self) -> bool:
        """Return whether there is at least one pod or template. Raises HostError."""
        return asyncio.run(self._exist())

    async def _make_template(self) -> None:
        async with self._open() as http:
            await ask(http, "POST", _TEMPLATES, content=orjson.dumps(_template(self._device_class)), fine=(_CONFLICT,))

    async def _make_in_steps(
        self,
        steps: tuple[int, ...],
        rate: float,
        patience_s: float,
        ended: threading.Event,
        tell: Callable[[PodStep], None],
    ) -> None:
        sightings, first = Sightings(), 0
        async with self._open(_PARALLEL) as http:
            watching = asyncio.create_task(self._watch(sightings, await _version(http)))
            try:
                for number, count in enumerate(steps, 1):
                    names = [f"{LOAD}-{index:05}" for index in range(first, first + count)]
                    first += count
                    began = time.monotonic()
                    await self._make(http, names, rate, ended)
                    deadline = time.monotonic() + patience_s
                    while any(name not in sightings.bound for name in names) and time.monotonic() < deadline:
                        if ended.is_set() or watching.done():
                            break
                        await asyncio.sleep(_LOOK_EVERY_S)
                    tell(sightings.step(number, names, began))
                    if ended.is_set():
                        return
                    if watching.done():
                        raise HostError("the watch of the pods broke off, and nobody knows when they were bound")
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError, httpx.HTTPError):
                    await watching

    async def _make(self, http: httpx.AsyncClient, names: list[str], rate: float, ended: threading.Event) -> None:
        """Make pods at the rate, of which as many are under way at once as the server's slowness asks for."""
        began, slots = time.monotonic(), asyncio.Semaphore(_PARALLEL)

        async def make(name: str) -> None:
            try:
                body = orjson.dumps(_pod(name, self._allocation))
                await ask(http, "POST", _PODS, content=body, fine=(_CONFLICT,))
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                for number, name in enumerate(names):
                    await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                    if ended.is_set():
                        return
                    await slots.acquire()
                    group.create_task(make(name))
        except ExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None

    async def _watch(self, sightings: Sightings, version: str) -> None:
        params = {**_SELECTED, "watch": "true", "resourceVersion": version}
        async with (
            open_connection(self._server, _WATCH_TIMEOUT) as http,
            http.stream("GET", _PODS, params=params) as answer,
        ):
            async for line in answer.aiter_lines():
                sightings.take(orjson.loads(line), time.monotonic())

    async def _placed(self, wanted: int) -> PodsPlaced:
        async with self._open() as http:
            pods = await _all(http, _PODS)
            claims = await _all(http, _CLAIMS) if self._allocation is Allocation.DRA else []
        nodes = Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))
        devices = Counter(device for claim in claims for device in _devices(claim))
        return PodsPlaced(
            wanted=wanted,
            bound=nodes.total(),
            most_on_a_node=max(nodes.values(), default=0),
            devices_given_twice=sum(count > 1 for count in devices.values()),
        )

    async def _delete(self) -> int:
        async with self._open() as http:
            before = len(await _all(http, _PODS))
            deadline = time.monotonic() + _GONE_WITHIN_S
            while True:
                await ask(http, "DELETE", _PODS, params=_SELECTED)
                await ask(http, "DELETE", _TEMPLATES, params=_SELECTED, fine=(_NOT_FOUND,))
                if not await self._any(http):
                    return before
                if time.monotonic() > deadline:
                    raise HostError(f"pods of the load are still there after {_GONE_WITHIN_S:g} s")
                await asyncio.sleep(1.0)

    async def _exist(self) -> bool:
        async with self._open() as http:
            return await self._any(http)

    async def _any(self, http: httpx.AsyncClient) -> bool:
        for path in (_PODS, _TEMPLATES):
            answer = await ask(http, "GET", path, params=_SELECTED | {"limit": "1"}, fine=(_NOT_FOUND,), keep=True)
            if orjson.loads(answer.body).get("items"):
                return True
        return False

    def _open(self, connections: int = 1) -> httpx.AsyncClient:
        return open_connection(self._server, _TIMEOUT, connections)


async def _version(http: httpx.AsyncClient) -> str:
    answer = await ask(http, "GET", _PODS, params=_SELECTED | {"limit": "1"}, keep=True)
    return str(orjson.loads(answer.body)["metadata"]["resourceVersion"])


async def _all(http: httpx.AsyncClient, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    params = _SELECTED | {"limit": str(_PAGE)}
    while True:
        page = orjson.loads((await ask(http, "GET", path, params=params, keep=True)).body)
        found += page["items"]
        if not (more := page["metadata"].get("continue")):
            return found
        params["continue"] = more


def _devices(claim: dict[str, Any]) -> list[tuple[str, str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(one["driver"], one["pool"], one["device"]) for one in results]


def _template(device_class: str) -> dict[str, Any]:
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}
    labels = {LOAD_LABEL: LOAD}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": LOAD, "labels": labels},
        "spec": {
            "metadata": {"labels": labels},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        },
    }


def _pod(name: str, allocation: Allocation) -> dict[str, Any]:
    by_claim = allocation is Allocation.DRA
    resources = {"claims": [{"name": "gpu"}]} if by_claim else {"limits": {"nvidia.com/gpu": "1"}}
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": LOAD}]} if by_claim else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {LOAD_LABEL: LOAD}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "work", "image": _IMAGE, "resources": resources, "securityContext": _RESTRICTED}],
            **claims,
        },
    }
