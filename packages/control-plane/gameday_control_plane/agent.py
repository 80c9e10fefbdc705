"""Role api-canary: an ordinary client of the API server that asks for little, at a fixed beat, and times it."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import orjson

from gameday.agent.context import Context
from gameday.agent.task import AgentResult
from gameday.api_clients.connection import ErrorWord, error_word, open_connection
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday.values.results import Cleanliness
from gameday_control_plane.api_clients.ask import ask
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.tasks import ApiCanaryNote, ApiCanaryTask
from gameday_control_plane.values.api_requests import ApiCanarySample, CanaryCall, api_canary_lease

BEAT_S = 0.5
TIMEOUT_S = 5.0
"""Longest time of a whole request: a client that waits longer would miss its own beats."""
_NOTE_EVERY_S = 1.0
_CLEAN_UP_WITHIN_S = 15.0
"""Half of a pod's grace period."""
_HTTP_TIMEOUT = httpx.Timeout(TIMEOUT_S)
_RUN_LABEL = "gameday.dev/run"
_CONFIG_MAP = "gameday-api-canary"
"""The small object that it reads; deploy/control-plane creates it."""
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
_LEASE_SECONDS = 40
"""Duration of its Lease, the same as that of a node's Lease."""
_GONE = (404,)
_EXISTS = (409,)
_JSON = {"Content-Type": "application/json"}
_CALLS: tuple[CanaryCall, ...] = ("readyz", "get", "put", "list")


def api_canary(task: ApiCanaryTask, context: Context) -> AgentResult:
    """Send requests until the end, and report each answer.

    Raises:
        HostError: The pod has no API account, or the API server refuses the Lease or lacks the ConfigMap.
    """
    timer = context.ending.after(task.duration_s)
    canary = ApiCanary(task.run_id, context)
    problem = ""
    try:
        asyncio.run(canary.run())
    finally:
        timer.cancel()
        try:
            asyncio.run(canary.delete())
        except HostError as error:
            problem = str(error)
    return AgentResult(
        role=task.role,
        ok=not problem,
        cleanliness=Cleanliness.DIRTY if problem else Cleanliness.CLEAN,
        ended_by=context.ending.reason,
        error=problem and f"the canary's own Lease is left in namespace {NAMESPACE}: {problem}",
        evidence=(f"{canary.sent} request(s) sent, {canary.missed} missed their beat",),
    )


@dataclass(frozen=True)
class _Timed:
    """A finished request, with its place on the monotonic clock."""

    sample: ApiCanarySample
    start: float
    end: float


class ApiCanary:
    """A canary with its Lease, its connection, and the samples that are not in a note yet."""

    def __init__(self, run_id: str, context: Context) -> None:
        """Name the Lease. Raises HostError if the pod has no API account."""
        self.sent = self.missed = 0
        self._server: ApiServer = context.host.api_server()
        self._context = context
        self._name = api_canary_lease(run_id)
        self._labels = {_RUN_LABEL: run_id}
        self._http = open_connection(self._server, _HTTP_TIMEOUT)
        self._lease_version: str | None = None
        self._samples: list[ApiCanarySample] = []
        self._told_at = 0.0

    async def run(self) -> None:
        """Create the Lease, and send requests until the role has to end. Raises HostError."""
        await self._make()
        asking = asyncio.create_task(self._ask_at_each_beat())
        ended = asyncio.create_task(asyncio.to_thread(self._context.ending.event.wait))
        await asyncio.wait((asking, ended), return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError:
            pass
        finally:
            self._context.ending.event.set()  # wakes the thread that waits for it, if the requests failed
            await self._http.aclose()
            self._tell()

    async def delete(self) -> None:
        """Delete the Lease. Raises HostError."""
        async with open_connection(self._server, _HTTP_TIMEOUT) as http:
            await ask(http, "DELETE", f"{_LEASES}/{self._name}", fine=_GONE, within_s=_CLEAN_UP_WITHIN_S)

    async def _make(self) -> None:
        async with open_connection(self._server, _HTTP_TIMEOUT) as http:
            await ask(http, "POST", _LEASES, content=orjson.dumps(self._lease()), fine=_EXISTS)
            await ask(http, "GET", f"{_CONFIG_MAPS}/{_CONFIG_MAP}")

    async def _ask_at_each_beat(self) -> None:
        start, beat = time.monotonic(), 0
        while True:
            await asyncio.sleep(max(0.0, start + beat * BEAT_S - time.monotonic()))
            asked = [await self._ask(kind) for kind in _CALLS]
            if beat == 0:
                self._context.become_ready()
            following = max(beat + 1, math.ceil((time.monotonic() - start) / BEAT_S))
            self._miss(asked, [start + late * BEAT_S for late in range(beat + 1, following)])
            beat = following
            if time.monotonic() - self._told_at >= _NOTE_EVERY_S:
                self._tell()

    def _miss(self, asked: list[_Timed], moments: list[float]) -> None:
        """Note the beats that passed during a slow request, as if a request had waited at each of them.

        Otherwise one request of 5 s would count as one slow sample among many fast ones, although the canary could not
        ask for ten beats (coordinated omission).
        """
        self.missed += len(moments)
        for moment in moments:
            waited_for = next((one for one in asked if one.end >= moment), asked[-1])
            self._samples.append(
                waited_for.sample.model_copy(
                    update={
                        "sent_at": waited_for.sample.sent_at + timedelta(seconds=moment - waited_for.start),
                        "seconds": round(max(0.0, waited_for.end - moment), 6),
                        "missed": True,
                    }
                )
            )

    async def _ask(self, kind: CanaryCall) -> _Timed:
        """Send one request and note it, even if the canary's end cuts it off."""
        sent_at, start, status = datetime.now(UTC), time.monotonic(), 0
        error: ErrorWord = ""
        self.sent += 1
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._send(kind)
        except asyncio.CancelledError:
            error = "ended"
            raise
        except (httpx.HTTPError, OSError) as problem:  # TimeoutError is an OSError
            error = error_word(problem)
            await self._http.aclose()
            self._http = open_connection(self._server, _HTTP_TIMEOUT)
        finally:
            end = time.monotonic()
            sample = ApiCanarySample(
                kind=kind, sent_at=sent_at, seconds=round(end - start, 6), status=status, error=error
            )
            self._samples.append(sample)
        return _Timed(sample, start, end)

    async def _send(self, kind: CanaryCall) -> int:
        """Return the answer's status. Raises httpx.HTTPError and OSError."""
        match kind:
            case "readyz":
                return (await self._http.get("/readyz")).status_code
            case "get":
                return (await self._http.get(f"{_CONFIG_MAPS}/{_CONFIG_MAP}")).status_code
            case "list":
                return (await self._http.get(_CONFIG_MAPS, params={"limit": "1"})).status_code
            case "put":
                return await self._renew()

    async def _renew(self) -> int:
        """Write the Lease as its holder does, by the version it knows; after a failure read that version first."""
        path, version, self._lease_version = f"{_LEASES}/{self._name}", self._lease_version, None
        if version is None:
            read = await self._http.get(path)
            version = _version(read)
            if version is None:
                return read.status_code
        written = await self._http.put(path, content=orjson.dumps(self._lease(version)), headers=_JSON)
        self._lease_version = _version(written)
        return written.status_code

    def _lease(self, version: str | None = None) -> dict[str, Any]:
        metadata = {"name": self._name, "labels": self._labels} | ({"resourceVersion": version} if version else {})
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self._name,
                "leaseDurationSeconds": _LEASE_SECONDS,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }

    def _tell(self) -> None:
        if self._samples:
            self._context.print_note(ApiCanaryNote(samples=tuple(self._samples)))
        self._samples, self._told_at = [], time.monotonic()


def _version(answer: httpx.Response) -> str | None:
    """Return the resource version in a 2xx answer; None for any other answer."""
    if not answer.is_success:
        return None
    try:
        return str(orjson.loads(answer.content)["metadata"]["resourceVersion"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
