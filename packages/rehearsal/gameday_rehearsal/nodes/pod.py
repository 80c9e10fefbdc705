"""A pod's life on a virtual node: admit, create, run, restart, stop, and report to the API server.

What must happen by the clock (the active deadline, the grace period) never waits for the API server. A task of its
own writes the status, so that the agent's dead-man's switch works while the control plane is away.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from gameday.errors import ClaimError, PodConfigError, PodRejectedError
from gameday.host.api_account import API_ACCOUNT_VARIABLE, API_SERVER_VARIABLE, IN_CLUSTER_FOLDER
from gameday_rehearsal.nodes.api_account import ApiAccount, ApiAddress, token_volume
from gameday_rehearsal.nodes.containers import ContainerProcess, is_agent, start_container
from gameday_rehearsal.nodes.devices import RESOURCE, GpuDevices, GpuHolder
from gameday_rehearsal.nodes.dra import DraDriver, PreparedGpu
from gameday_rehearsal.nodes.node_machine import NodeMachine
from gameday_rehearsal.nodes.numa import exclusive_cpus
from gameday_rehearsal.nodes.pod_status import Container, PodState
from gameday_rehearsal.nodes.probes import follow_readiness
from gameday_rehearsal.nodes.sandbox import Sandbox
from gameday_rehearsal.nodes.topology import TopologyUpdater
from kubesim.client import STRATEGIC_MERGE_PATCH, ApiClient, Object
from kubesim.clock import now_utc, parse_time
from kubesim.controllers.events import EventRecorder
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

_CREATING_S = (0.1, 0.3)
_CRASH_BACKOFF_S = (10.0, 300.0)  # kubelet's container restart back-off, first and longest
_WRITE_BACKOFF_S = (0.2, 5.0)
_CLAIM_BACKOFF_S = (0.5, 10.0)  # longest: the kubelet's backOffPeriod of a pod that failed to sync
_MOUNT_BACKOFF_S = (0.5, 122.0)  # kubelet's exponentialbackoff of volume operations, first and longest
_DEFAULT_GRACE_S = 30.0
_KILLED_WITHIN_S = 5.0
_FINISHED = ("Succeeded", "Failed")
_LATE = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")  # kubelet's own


class KubeletServices(Protocol):
    """The services of a kubelet that its pods use."""

    @property
    def api(self) -> ApiClient: ...

    @property
    def machine(self) -> NodeMachine: ...

    @property
    def api_address(self) -> ApiAddress:
        """The API server as pods reach it."""

    @property
    def events(self) -> EventRecorder: ...

    @property
    def devices(self) -> GpuDevices: ...

    @property
    def dra(self) -> DraDriver | None:
        """The node's DRA driver; None if it has none."""

    @property
    def topology(self) -> TopologyUpdater | None:
        """The node's topology updater; None if it has none."""

    @property
    def state_dir(self) -> Path:
        """The folder with a folder for each pod."""

    @property
    def aligns(self) -> bool:
        """True if the Topology Manager admits only what one NUMA node can serve."""

    def pod_ip(self) -> str:
        """Return an address that no other pod of the node has."""

    def environment(self, uid: str, container: str) -> dict[str, str]:
        """Return the variables that the node itself gives a container."""

    def occupy(self, uid: str, container: str, process: ContainerProcess) -> list[int]:
        """Put a container's process on the GPUs that it was given, and return them."""

    def vacate(self, gpus: list[int], process: ContainerProcess) -> None:
        """Take the process off these GPUs."""

    async def may_write(self) -> None:
        """Return as soon as the machine is on and its kubelet service runs."""

    async def device_plugin_answers(self) -> None:
        """Return as soon as the device plugin's pod is not frozen."""


class PodRunner:
    """Drives one pod (one UID). `start` begins, `update` brings a newer object, `crash` is a power failure."""

    def __init__(self, pod: Object, kubelet: KubeletServices) -> None:
        self.pod = pod
        self._kubelet = kubelet
        spec, meta, status = pod["spec"], pod["metadata"], pod.get("status") or {}
        self.uid: str = meta["uid"]
        self.key = f"{meta['namespace']}/{meta['name']}"
        self._path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        self.state = PodState(
            uid=self.uid,
            policy=spec.get("restartPolicy", "Always"),
            ip="127.0.0.1" if spec.get("hostNetwork") else kubelet.pod_ip(),
            init=[Container(c) for c in spec.get("initContainers") or ()],
            main=[Container(c) for c in spec["containers"]],
        )
        if status.get("startTime"):
            self._restore(status)
        self._sandbox = Sandbox(kubelet.state_dir, pod)
        self._account = self._api_account()
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self._deleted = asyncio.Event()
        self._to_write = asyncio.Event()
        self._writing = asyncio.Lock()
        self._written: Object | None = None
        self._given: list[PreparedGpu] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.update(pod)

    # From outside

    def start(self) -> None:
        self._stopping.clear()
        life = asyncio.create_task(self._live())
        life.add_done_callback(self._lived)
        self._tasks = [life, asyncio.create_task(self._keep_writing())]

    def update(self, pod: Object) -> None:
        self.pod = pod
        if self._sandbox.project(pod):
            for container in self._containers:
                if container.process:
                    container.process.look()
        if self.state.observe(pod):
            self._wake.set()  # the deadline may have changed
            self._say()
        if pod["metadata"].get("deletionTimestamp") and not self._deleted.is_set():
            self._deleted.set()
            self._wake.set()

    def crash(self) -> None:
        """End every process at once, because the machine lost its power. Nothing is reported."""
        for task in self._tasks:
            task.cancel()
        for container in self._containers:
            if container.process:
                container.process.kill()
                container.process, container.ready = None, False
        self._tasks = []

    def forget(self) -> None:
        """Kill what runs and keep nothing, because the object is gone from the API server."""
        self.crash()
        self._release()
        self._sandbox.remove()

    @property
    def runs(self) -> bool:
        return any(container.process for container in self._containers)

    def find(self, name: str) -> Container | None:
        return next((c for c in self._containers if c.name == name), None)

    # Life

    @property
    def _containers(self) -> list[Container]:
        return [*self.state.init, *self.state.main]

    def _restore(self, status: Object) -> None:
        self.state.start_time = parse_time(status["startTime"])
        for containers, names in ((self.state.init, "initContainerStatuses"), (self.state.main, "containerStatuses")):
            known = {each["name"]: each for each in status.get(names) or ()}
            for container in containers:
                if container.name in known:
                    container.restored(known[container.name])
        if status.get("phase") in _FINISHED:
            self.state.final = (status["phase"], status.get("reason", ""), status.get("message", ""))

    def _lived(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            log.error("pod %s: %s", self.key, error, exc_info=error)

    async def _live(self) -> None:
        if self.state.final:
            self._written = self.state.document()  # an earlier kubelet process has sent the end
        else:
            await self._live_until_over()
            self._release()
            self._say()
        await self._deleted.wait()
        await self._write_now()
        await self._delete()

    async def _live_until_over(self) -> None:
        self._bury_interrupted()
        if self._deleted.is_set() and not any(c.started for c in self._containers):
            self.state.final = ("Failed", "", "")
            return
        if not await self._plugin_answers() or not await self._prepare_claims():
            return
        try:
            aligned = exclusive_cpus(self.pod["spec"]) if self._kubelet.aligns else None
            wanted = self._wanted_gpus()
            self._kubelet.devices.allocate(wanted, aligned)
            if wanted and self._kubelet.topology:
                self._kubelet.topology.allocated()
        except PodRejectedError as error:
            self._kubelet.events.record(self.pod, "Pod", "v1", error.reason, error.message, "Warning")
            self.state.final = ("Failed", error.reason, f"Pod was rejected: {error.message}")
            return
        self._say()
        work = asyncio.create_task(self._work())
        work.add_done_callback(lambda _: self._wake.set())
        try:
            late = await self._until_over(work)
            if not work.done():
                await self._stop(work)
        finally:
            work.cancel()
        self.state.all_ended = True
        if late:
            self.state.final = ("Failed", *_LATE)
        elif work.done() and not work.cancelled() and (failure := work.exception()):
            raise failure

    async def _plugin_answers(self) -> bool:
        """Make a pod that wants GPUs wait while the device plugin is frozen; return False if it is deleted meanwhile.

        The kubelet's call of Allocate has no deadline (cm/devicemanager/endpoint.go). Its open connection does not show
        that a plugin is frozen, so allocatable stays the same.
        """
        if not self._wanted_gpus():
            return True
        answers = asyncio.create_task(self._kubelet.device_plugin_answers())
        deleted = asyncio.create_task(self._deleted.wait())
        try:
            await asyncio.wait({answers, deleted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answers.cancel()
            deleted.cancel()
        if self._deleted.is_set():
            self.state.final = ("Failed", "", "")
            return False
        return True

    async def _prepare_claims(self) -> bool:
        """Hold the GPUs of the pod's claims. A claim that cannot be prepared is tried again, as by a kubelet.

        Returns False if the pod is deleted meanwhile.
        """
        driver = self._kubelet.dra
        if driver is None or not self.pod["spec"].get("resourceClaims") or self._kubelet.devices.held_by(self.uid):
            return True
        pause_s = _CLAIM_BACKOFF_S[0]
        while not self._deleted.is_set():
            await self._kubelet.may_write()
            try:
                self._given = await driver.prepare(self.pod)
                by_container: dict[str, list[int]] = {}
                for one in self._given:
                    by_container.setdefault(one.container, []).append(one.gpu)
                self._kubelet.devices.give([(self._holder(name), gpus) for name, gpus in by_container.items()])
                return True
            except (ClaimError, ApiError) as error:
                why = f"Failed to prepare dynamic resources: {error}"
                self._kubelet.events.record(self.pod, "Pod", "v1", "FailedPrepareDynamicResources", why, "Warning")
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._deleted.wait()
            pause_s = min(pause_s * 2, _CLAIM_BACKOFF_S[1])
        self.state.final = ("Failed", "", "")
        return False

    def _bury_interrupted(self) -> None:
        """End the containers that ran when the machine or the kubelet's process went down; some may run again."""
        for container in self._containers:
            if container.started and not container.ended:
                message = self._sandbox.termination_message(container.spec, container.restarts, failed=True)
                # What containerd reports for a task that is gone.
                container.end(255, "Unknown", message)

    async def _until_over(self, work: asyncio.Task[None]) -> bool:
        """Wait until the work is done or has to stop; return True if the active deadline ends it."""
        while not work.done() and not self._deleted.is_set():
            deadline_s = self.pod["spec"].get("activeDeadlineSeconds")
            end = self.state.start_time + timedelta(seconds=deadline_s) if deadline_s is not None else None
            left_s = (end - now_utc()).total_seconds() if end else None
            if left_s is not None and left_s <= 0:
                self._event(*_LATE)
                return True
            self._wake.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
        return False

    async def _stop(self, work: asyncio.Task[None]) -> None:
        """Stop it by SIGTERM, the grace period, and SIGKILL."""
        meta, spec = self.pod["metadata"], self.pod["spec"]
        grace_s = meta.get("deletionGracePeriodSeconds", spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S))
        self._stopping.set()
        for container in self._containers:
            if container.process:
                container.process.terminate()
                self._event("Killing", f"Stopping container {container.name}")
        await asyncio.wait({work}, timeout=float(grace_s))
        if not work.done():
            for container in self._containers:
                if container.process:
                    container.process.kill()
            await asyncio.wait({work}, timeout=_KILLED_WITHIN_S)

    async def _work(self) -> None:
        if not any(c.started for c in self._containers):
            await self._pause(random.uniform(*_CREATING_S))  # noqa: S311 - a model's jitter
        async with self._mounted_account():
            await self._run_containers()

    async def _run_containers(self) -> None:
        for container in self.state.init:
            if not await self._initialise(container):
                return
        await asyncio.gather(*(self._supervise(container) for container in self.state.main))

    @asynccontextmanager
    async def _mounted_account(self) -> AsyncIterator[None]:
        """Hold the API account's files for the length of the block; without an account, do nothing."""
        if self._account is None:
            yield
            return
        try:
            if not await self._mount(self._account):
                yield
                return
            keeping = asyncio.create_task(self._account.keep())
            try:
                yield
            finally:
                keeping.cancel()
        finally:
            self._account.remove()

    async def _mount(self, account: ApiAccount) -> bool:
        """Write the account's files once the server grants a token; return False if the pod has to stop before that."""
        pause_s = _MOUNT_BACKOFF_S[0]
        while not self._stopping.is_set():
            await self._kubelet.may_write()
            try:
                await account.provide()
                return True
            except (ApiError, OSError) as error:
                why = f'MountVolume.SetUp failed for volume "{account.volume}" : failed to fetch token: {error}'
                self._kubelet.events.record(self.pod, "Pod", "v1", "FailedMount", why, "Warning")
            await self._pause(pause_s)
            pause_s = min(pause_s * 2, _MOUNT_BACKOFF_S[1])
        return False

    def _api_account(self) -> ApiAccount | None:
        """Return the account of a pod that has a token volume and a process to read it."""
        volume = token_volume(self.pod)
        if volume is None or not any(is_agent(container.spec) for container in self._containers):
            return None
        folder = self._sandbox.volume(volume["name"])
        return ApiAccount(self.pod, folder, self._kubelet.api, self._kubelet.api_address)

    def _account_environment(self, container: Object) -> dict[str, str]:
        """Return the variables that tell a container's process about the account, if the container mounts it."""
        mounted = self._sandbox.rewritten(container, f"/{IN_CLUSTER_FOLDER}")
        if self._account is None or mounted == f"/{IN_CLUSTER_FOLDER}":
            return {}
        return {API_SERVER_VARIABLE: self._account.url, API_ACCOUNT_VARIABLE: mounted}

    async def _initialise(self, container: Container) -> bool:
        """Run one init container until it succeeds; return False if it will not."""
        if container.ended and container.ended.exit_code == 0:
            return True
        await self._supervise(container, policy="Never" if self.state.policy == "Never" else "OnFailure")
        return bool(container.ended and container.ended.exit_code == 0)

    async def _supervise(self, container: Container, policy: str | None = None) -> None:
        backoff_s = 0.0
        while not self._stopping.is_set():
            if container.ended:
                if not _runs_again(policy or self.state.policy, container.ended.exit_code):
                    return
                container.begin_again()
                if backoff_s:
                    container.waiting = (
                        "CrashLoopBackOff",
                        f"back-off {backoff_s:g}s restarting failed container={container.name} pod={self.key}",
                    )
                self._say()
                await self._pause(backoff_s)
                backoff_s = min(max(backoff_s * 2, _CRASH_BACKOFF_S[0]), _CRASH_BACKOFF_S[1])
                if self._stopping.is_set():
                    return
            await self._run_once(container)

    async def _run_once(self, container: Container) -> None:
        """Run one instance from start to end. An instance that cannot be configured waits until the pod is deleted."""
        try:
            process = await start_container(
                self.pod,
                container.spec,
                self._sandbox,
                container.restarts,
                {
                    **self._kubelet.environment(self.uid, container.name),
                    **self._account_environment(container.spec),
                },
                self._kubelet.machine,
            )
        except (PodConfigError, OSError) as error:
            container.waiting = ("CreateContainerConfigError", str(error))
            self._say()
            await self._stopping.wait()
            return
        container.process, container.log, container.started = process, process.log, now_utc()
        if self._stopping.is_set():
            process.terminate()
        gpus = self._kubelet.occupy(self.uid, container.name, process)
        self._event("Started", f"Started container {container.name}")
        probing = asyncio.create_task(self._probe(container))
        self._say()
        try:
            code = await process.wait()
        finally:
            probing.cancel()
            self._kubelet.vacate(gpus, process)
        message = self._sandbox.termination_message(container.spec, container.restarts, failed=code != 0)
        container.end(code, "Completed" if code == 0 else "Error", message)
        self._say()

    async def _probe(self, container: Container) -> None:
        def note_readiness(ready: bool) -> None:
            container.ready = ready
            self._say()

        real = self._sandbox.log_file(container.spec, container.restarts).exists()
        await follow_readiness(container.spec, self._sandbox, real=real, on_change=note_readiness)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but end at the order to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _wanted_gpus(self) -> list[tuple[GpuHolder, int]]:
        if self._kubelet.devices.held_by(self.uid):  # after a reboot: still ours
            return []
        wants = []
        for container in self.state.main:
            resources = container.spec.get("resources") or {}
            number = (resources.get("limits") or {}).get(RESOURCE) or (resources.get("requests") or {}).get(RESOURCE)
            if number:
                wants.append((self._holder(container.name), int(number)))
        return wants

    def _holder(self, container: str) -> GpuHolder:
        meta = self.pod["metadata"]
        return GpuHolder(self.uid, meta["namespace"], meta["name"], container)

    def _release(self) -> None:
        self._kubelet.devices.release(self.uid)

    def _event(self, reason: str, message: str) -> None:
        self._kubelet.events.record(self.pod, "Pod", "v1", reason, message)

    # Status reports

    def devices_changed(self) -> None:
        """Report the health of the pod's devices, if it is another than before."""
        if self._given:
            self._say()

    def _say(self) -> None:
        self._to_write.set()

    async def _keep_writing(self) -> None:
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            await self._write_now()

    def _status(self) -> Object:
        status, driver = self.state.document(), self._kubelet.dra
        if driver and self._given:
            for container in status.get("containerStatuses", ()):
                container["allocatedResourcesStatus"] = driver.allocated_status(self._given, container["name"])
        return status

    async def _write_now(self) -> None:
        """Write the status until the server has the present one, or the pod is gone."""
        async with self._writing:
            pause_s = _WRITE_BACKOFF_S[0]
            while True:
                await self._kubelet.may_write()
                status = self._status()
                if status == self._written:
                    return
                try:
                    # The UID makes the server refuse if another pod has taken the name (kubelet's own guard).
                    body = {"metadata": {"uid": self.uid}, "status": status}
                    await self._kubelet.api.patch(f"{self._path}/status", body, STRATEGIC_MERGE_PATCH)
                    self._written = status
                except ApiError as error:
                    if error.not_found:
                        return
                    if error.status in (400, 422):  # what we sent is wrong, and stays wrong
                        log.error("pod %s: status refused: %s", self.key, error)
                        return
                    # Anything else passes, even 403, which an API server answers until it has read its own RBAC rules,
                    # and 409, which the watch ends if another pod has taken the name.
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, _WRITE_BACKOFF_S[1])

    async def _delete(self) -> None:
        """Remove the object: the kubelet's last act for a pod that was deleted gracefully."""
        pause_s = _WRITE_BACKOFF_S[0]
        while True:
            await self._kubelet.may_write()
            try:
                body = {
                    "kind": "DeleteOptions",
                    "apiVersion": "v1",
                    "gracePeriodSeconds": 0,
                    "preconditions": {"uid": self.uid},
                }
                await self._kubelet.api.delete(self._path, body)
                return
            except ApiError as error:
                if error.not_found:
                    return
                log.info("pod %s: cannot finish its deletion yet: %s", self.key, error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _WRITE_BACKOFF_S[1])


def _runs_again(policy: str, exit_code: int) -> bool:
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
