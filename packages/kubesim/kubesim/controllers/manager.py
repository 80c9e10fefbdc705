"""Build the scheduler and all controllers over one shared watch per kind, and run them together.

Scheduler and controllers write under their own identities. They share what they read, because on a thousand nodes a
second watch of pods and nodes would double the cost of decoding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from kubesim.client import ApiClient, Reflector
from kubesim.controllers.daemonset_controller import DaemonSetController
from kubesim.controllers.disruption import DisruptionController
from kubesim.controllers.events import EventRecorder
from kubesim.controllers.job_controller import JobController
from kubesim.controllers.lifecycle import NodeLifecycle
from kubesim.controllers.podgc import PodGarbageCollector
from kubesim.controllers.pods import PodIndex
from kubesim.controllers.scheduler import SCHEDULER_NAME, Scheduler
from kubesim.controllers.taint_eviction import TaintEviction
from kubesim.kubeconfig import Kubeconfig

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@dataclass(frozen=True)
class Settings:
    """The controllers' settings in seconds; the defaults are kube-controller-manager's own."""

    node_monitor_grace_s: float = 50.0
    job_backoff_s: float = 10.0
    pod_gc_quarantine_s: float = 40.0


class Runnable(Protocol):
    """A part that runs until it is cancelled."""

    async def run(self) -> None: ...


async def run_controllers(
    scheduler: Kubeconfig, controllers: Kubeconfig, settings: Settings, ready: Callable[[], None]
) -> None:
    """Run until cancelled; call `ready` once every watch has its first list."""
    async with AsyncExitStack() as stack:
        binding = await stack.enter_async_context(ApiClient(scheduler, "kube-scheduler"))
        api = await stack.enter_async_context(ApiClient(controllers, "kube-controller-manager"))
        pods = Reflector(api, "/api/v1/pods")
        nodes = Reflector(api, "/api/v1/nodes")
        leases = Reflector(api, LEASES)
        jobs = Reflector(api, "/apis/batch/v1/jobs")
        daemonsets = Reflector(api, "/apis/apps/v1/daemonsets")
        budgets = Reflector(api, "/apis/policy/v1/poddisruptionbudgets")
        watches = (pods, nodes, leases, jobs, daemonsets, budgets)
        index = PodIndex(pods)  # first, so that the controllers' handlers find it up to date

        def events(source: str, client: ApiClient = api) -> EventRecorder:
            recorders.append(EventRecorder(client, source))
            return recorders[-1]

        recorders: list[EventRecorder] = []
        parts: tuple[Runnable, ...] = (
            Scheduler(binding, events(SCHEDULER_NAME, binding), pods, nodes),
            JobController(api, events("job-controller"), jobs, pods, index, settings.job_backoff_s),
            DaemonSetController(api, events("daemonset-controller"), daemonsets, pods, index, nodes),
            NodeLifecycle(api, events("node-controller"), nodes, leases, index, settings.node_monitor_grace_s),
            TaintEviction(api, events("taint-eviction-controller"), nodes, pods, index),
            DisruptionController(api, budgets, pods, jobs),
            PodGarbageCollector(api, nodes, pods, index, settings.pod_gc_quarantine_s),
        )
        async with asyncio.TaskGroup() as group:
            for each in (*parts, *watches, *recorders):
                group.create_task(each.run())
            for watch in watches:
                await watch.synced.wait()
            ready()
