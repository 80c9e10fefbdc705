"""The smallest kubelets that let controllers be tested: register nodes, renew Leases, run and end pods."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from kubesim.client import ApiClient, Reflector
from kubesim.clock import now_utc, rfc3339
from kubesim.controllers.pods import is_terminal, is_terminating, pod_path
from kubesim.errors import ApiError

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEARTBEAT_S = 0.3
EXITS = "test.example.com/exits"  # a pod with this annotation ends at once in the phase it names


def ready_condition(status: str = "True") -> dict[str, str]:
    stamp = rfc3339(now_utc())
    return {"type": "Ready", "status": status, "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}


class Kubelets:
    """Plays every node that was registered through it and not silenced."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.alive: set[str] = set()
        self._pods = Reflector(api, "/api/v1/pods")
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._pods.on(self._queue.put_nowait, lambda _, pod: self._queue.put_nowait(pod))

    async def register(self, *names: str, gpus: int = 8, labels: dict[str, str] | None = None) -> None:
        resources = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}

        async def one(name: str) -> None:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}}
            status = {"allocatable": resources, "capacity": resources, "conditions": [ready_condition()]}
            await self._api.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta})
            await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status})
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
            await self._api.post(LEASES, {**lease, "spec": {"holderIdentity": name, "leaseDurationSeconds": 40}})

        await asyncio.gather(*(one(name) for name in names))
        self.alive.update(names)

    def silence(self, name: str) -> None:
        self.alive.discard(name)

    async def speak(self, name: str) -> None:
        self.alive.add(name)
        await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready_condition()]}})

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._renew())
            for _ in range(8):
                group.create_task(self._work())

    async def _renew(self) -> None:
        while True:
            for name in sorted(self.alive):
                stamp = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
                await self._quietly("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": stamp}})
            await asyncio.sleep(HEARTBEAT_S)

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            if pod["spec"].get("nodeName") not in self.alive:
                continue
            phase = (pod.get("status") or {}).get("phase")
            if is_terminating(pod):
                await self._quietly("DELETE", pod_path(pod), {"gracePeriodSeconds": 0})
            elif phase == "Pending":
                await self._report(pod, {"phase": "Running", "conditions": [ready_condition()]})
            elif not is_terminal(pod) and (end := (pod["metadata"].get("annotations") or {}).get(EXITS)):
                ended = {"terminated": {"exitCode": int(end == "Failed"), "finishedAt": rfc3339(now_utc())}}
                containers = [{"name": "main", "state": ended, "ready": False, "restartCount": 0}]
                conditions = [ready_condition("False")]
                await self._report(pod, {"phase": end, "conditions": conditions, "containerStatuses": containers})

    async def _report(self, pod: Any, status: Any) -> None:
        await self._quietly("PATCH", f"{pod_path(pod)}/status", {"status": status})

    async def _quietly(self, method: str, path: str, body: Any) -> None:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            await self._api.request(method, path, body, content_type)
        except ApiError as error:
            if not (error.not_found or error.unreachable):
                raise
