"""Pods of one GPU each: created at a steady rate, watched until they are bound, and deleted by label."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, zip_longest
from types import MappingProxyType
from typing import Any

import httpx
import orjson

from gameday.api_clients.connection import open_connection
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.ask import ask
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday_control_plane.values.api_requests import percentile
from gameday_control_plane.values.pod_steps import LOAD, Allocation, PodsPlaced, PodStep, ZonesPlaced

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
_TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"
_TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
_GPU = "nvidia.com/gpu"
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


@dataclass(frozen=True)
class Batch:
    """The pods of one step."""

    created: tuple[str, ...]
    deleted: tuple[str, ...] = ()
    """Empty, or as many as are created: each is deleted right before one is created."""


def batches(steps: Sequence[int], churn: float) -> list[Batch]:
    """Return the pods of each step, and of the churn after the steps.

    Args:
        steps: Pods of each step.
        churn: Share of all pods, the oldest first, that are replaced after the last step; 0 for none.
    """
    total = sum(steps)
    replaced = round(churn * total)
    names = [f"{LOAD}-{index:05}" for index in range(total + replaced)]
    starts = accumulate(steps, initial=0)
    made = [Batch(tuple(names[first : first + count])) for first, count in zip(starts, steps, strict=False)]
    return [*made, Batch(tuple(names[total:]), tuple(names[:replaced]))] if replaced else made


@dataclass
class Sightings:
    """Times of the monotonic clock at which the watch first showed each pod, and first showed it bound."""

    seen: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Pods that are completely deleted."""
    version: str = ""
    """The resourceVersion of the newest event, from which a watch continues."""

    def take(self, event: dict[str, Any], now: float) -> None:
        """Note an event of the watch."""
        name = event["object"]["metadata"].get("name")
        if event["type"] not in ("ADDED", "MODIFIED", "DELETED") or name is None:
            return
        self.version = event["object"]["metadata"].get("resourceVersion", self.version)
        if event["type"] == "DELETED":
            self.gone.add(name)
            return
        self.seen.setdefault(name, now)
        if event["object"]["spec"].get("nodeName"):
            self.bound.setdefault(name, now)

    def is_over(self, batch: Batch) -> bool:
        """Return True if all pods that the batch created are bound, and all that it deleted are gone."""
        return all(name in self.bound for name in batch.created) and self.gone.issuperset(batch.deleted)

    def step(self, number: int, batch: Batch, began: float, began_at: datetime) -> PodStep:
        """Return the step of this batch, which has just ended."""
        bound = [name for name in batch.created if name in self.bound]
        took = [self.bound[name] - self.seen[name] for name in bound]
        last = max((self.bound[name] for name in bound), default=began)
        return PodStep(
            step=number,
            created=len(batch.created),
            deleted=len(batch.deleted),
            bound=len(bound),
            took_s=round(last - began, 3),
            p50_s=percentile(took, 0.5),
            p99_s=percentile(took, 0.99),
            began_at=began_at,
            until=datetime.now(UTC),
        )


class PodLoad:
    """The pods of the load. Each method may be called in a thread of its own."""

    def __init__(self, server: ApiServer, allocation: Allocation, device_class: str, scheduler: str) -> None:
        """Name the pods.

        Args:
            server: The API server.
            allocation: How the pods ask for a GPU.
            device_class: The DeviceClass of their claims.
            scheduler: The `schedulerName` of topology-aware ones.
        """
        self._server = server
        self._allocation = allocation
        self._device_class = device_class
        self._scheduler = scheduler

    def prepare(self) -> None:
        """Make the template of the pods' claims, if they have any. Raises HostError."""
        if self._allocation is Allocation.DRA:
            asyncio.run(self._make_template())

    def make_in_steps(
        self,
        steps: Sequence[Batch],
        rate: float,
        patience_s: float,
        pause_s: float,
        ended: threading.Event,
        tell: Callable[[PodStep], None],
    ) -> None:
        """Create pods, step by step; a step waits until its pods are bound or gone, or for `patience_s`.

        Args:
            steps: Pods of each step; see `batches`.
            rate: Pods made in a second.
            patience_s: Longest time from a step's last creation until its pods are bound.
            pause_s: Time after each step in which nothing is created, so that it can be measured.
            ended: Set when no more should be made.
            tell: Called with each step when it is over.

        Raises:
            HostError: The server refuses a pod, or does not answer.
        """
        asyncio.run(self._make_in_steps(steps, rate, patience_s, pause_s, ended, tell))

    def placed(self, wanted: int) -> PodsPlaced:
        """Return where the pods are, according to the objects. Raises HostError."""
        return asyncio.run(self._placed(wanted))

    def delete(self) -> int:
        """Delete all and wait until they are gone; return how many there were. Raises HostError."""
        return asyncio.run(self._delete())

    def exist(self) -> bool:
        """Return True if there is at least one pod or template. Raises HostError."""
        return asyncio.run(self._exist())

    async def _make_template(self) -> None:
        async with self._open() as http:
            await ask(http, "POST", _TEMPLATES, content=orjson.dumps(_template(self._device_class)), fine=(_CONFLICT,))

    async def _make_in_steps(
        self,
        steps: Sequence[Batch],
        rate: float,
        patience_s: float,
        pause_s: float,
        ended: threading.Event,
        tell: Callable[[PodStep], None],
    ) -> None:
        sightings = Sightings()
        async with self._open(_PARALLEL) as http:
            sightings.version = await _version(http)
            watching = asyncio.create_task(self._watch(sightings))
            try:
                for number, batch in enumerate(steps, 1):
                    began, began_at = time.monotonic(), datetime.now(UTC)
                    await self._make(http, batch, rate, ended)
                    deadline = time.monotonic() + patience_s
                    while not sightings.is_over(batch) and time.monotonic() < deadline:
                        if ended.is_set() or watching.done():
                            break
                        await asyncio.sleep(_LOOK_EVERY_S)
                    await _pause(pause_s, ended)
                    tell(sightings.step(number, batch, began, began_at))
                    if ended.is_set():
                        return
                    if watching.done():
                        watching.result()  # it ends only by an error
            finally:
                watching.cancel()
                with suppress(asyncio.CancelledError, HostError):
                    await watching

    async def _make(self, http: httpx.AsyncClient, batch: Batch, rate: float, ended: threading.Event) -> None:
        """Make pods at the rate, with as many under way at once as the server's slowness needs."""
        began, slots = time.monotonic(), asyncio.Semaphore(_PARALLEL)

        async def make(name: str, replaced: str | None) -> None:
            try:
                if replaced:
                    await ask(http, "DELETE", f"{_PODS}/{replaced}", fine=(_NOT_FOUND,))
                body = orjson.dumps(_pod(name, self._allocation, self._scheduler))
                await ask(http, "POST", _PODS, content=body, fine=(_CONFLICT,))
            finally:
                slots.release()

        try:
            async with asyncio.TaskGroup() as group:
                for number, (name, replaced) in enumerate(zip_longest(batch.created, batch.deleted)):
                    await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
                    if ended.is_set():
                        return
                    await slots.acquire()
                    group.create_task(make(name, replaced))
        except ExceptionGroup as group_of_errors:
            raise group_of_errors.exceptions[0] from None

    async def _watch(self, sightings: Sightings) -> None:
        """Follow the pods. A watch that ends, cut by a busy server for example, continues where it was.

        Raises HostError if the server refuses it, or no longer knows where to continue.
        """
        async with open_connection(self._server, _WATCH_TIMEOUT) as http:
            while True:
                with suppress(httpx.HTTPError):
                    await _watch_once(http, sightings)
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _placed(self, wanted: int) -> PodsPlaced:
        async with self._open() as http:
            pods = await _all(http, _PODS)
            claims = await _all(http, _CLAIMS) if self._allocation is Allocation.DRA else []
            zoned = self._allocation is Allocation.TOPOLOGY
            topologies = await _all(http, _TOPOLOGIES, {}) if zoned else []
        nodes = Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))
        devices = Counter(device for claim in claims for device in _devices(claim))
        return PodsPlaced(
            wanted=wanted,
            bound=nodes.total(),
            most_on_a_node=max(nodes.values(), default=0),
            devices_given_twice=sum(count > 1 for count in devices.values()),
            refused=sum((pod.get("status") or {}).get("phase") == "Failed" for pod in pods),
            zones=zones_placed(nodes, topologies) if zoned else None,
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


async def _watch_once(http: httpx.AsyncClient, sightings: Sightings) -> None:
    """Note the events of one watch. Raises HTTPError if it breaks, HostError if it cannot continue."""
    params = {**_SELECTED, "watch": "true", "resourceVersion": sightings.version}
    async with http.stream("GET", _PODS, params=params) as answer:
        if answer.is_client_error and answer.status_code != httpx.codes.TOO_MANY_REQUESTS:
            raise HostError(f"the watch of the pods was refused: {answer.status_code}")
        if answer.is_success:
            async for line in answer.aiter_lines():
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise HostError(f"the watch of the pods cannot go on: {event['object'].get('message')}")
                sightings.take(event, time.monotonic())


async def _pause(seconds: float, ended: threading.Event) -> None:
    until = time.monotonic() + seconds
    while not ended.is_set() and (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _LOOK_EVERY_S))


async def _all(
    http: httpx.AsyncClient, path: str, selected: Mapping[str, str] = MappingProxyType(_SELECTED)
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    params = {**selected, "limit": str(_PAGE)}
    while True:
        page = orjson.loads((await ask(http, "GET", path, params=params, keep=True)).body)
        found += page["items"]
        if not (more := page["metadata"].get("continue")):
            return found
        params["continue"] = more


def zones_placed(pods: Mapping[str, int], topologies: Iterable[dict[str, Any]]) -> ZonesPlaced:
    """Return how well the pods and the zones of their nodes fit together.

    Args:
        pods: One-GPU pods by node.
        topologies: The NodeResourceTopology objects. A node without one has no zone, and counts as behind.
    """
    of_node = {one["metadata"]["name"]: _gpus_by_zone(one) for one in topologies}
    zones = [zone for node in pods for zone in of_node.get(node, ())]
    full = sum(used > capacity for used, capacity in zones)
    crowded = sum(
        count > sum(capacity for _, capacity in of_node[node]) for node, count in pods.items() if node in of_node
    )
    behind = sum(count > sum(used for used, _ in of_node.get(node, ())) for node, count in pods.items())
    return ZonesPlaced(zones=len(zones), overcommitted=full + crowded, behind=behind)


def _gpus_by_zone(topology: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the used GPUs and all GPUs of each zone."""
    found = []
    for zone in topology.get("zones") or ():
        for resource in zone.get("resources") or ():
            if resource.get("name") == _GPU:
                capacity = int(resource["capacity"])
                found.append((int(resource["allocatable"]) - int(resource["available"]), capacity))
    return found


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


def _pod(name: str, allocation: Allocation, scheduler: str) -> dict[str, Any]:
    by_claim = allocation is Allocation.DRA
    resources = {"claims": [{"name": "gpu"}]} if by_claim else {"limits": {_GPU: "1"}}
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
            **({"schedulerName": scheduler} if allocation is Allocation.TOPOLOGY else {}),
        },
    }
