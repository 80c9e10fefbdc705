"""A stand-in's repair of a node: drain, repair, test and return, with the signs that its profile names.

The machine is repaired by the virtual hosts' own HTTP, like by a cloud provider's API: neither the node-health
controller nor the agent takes part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gameday.detectors.models import Repairs
from gameday.errors import HostError
from gameday.host.base import ProgramResult
from gameday.host.virtual import VirtualHost
from gameday.plan.repair_chain import Sign
from gameday.values.results import RepairHop, RepairKind
from gameday_rehearsal.fake_detector.actions import Actions
from kubesim.client import ApiClient, Object, Reflector
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5
_ORDER_TIMEOUT_S = 20.0
_VALIDATION = ("dcgmi", "diag", "--run", "2", "-j")
"""The test of a repaired node: that of NVSentinel's lifecycle-manager as shipped (docs/sources.md, Repair by
NVSentinel), the one stack with a known validation. It sees a GPU that is lost or waits for a row remap, but not one
that the driver has forgotten.
"""
_GPU_RESOURCE = "nvidia.com/gpu"
_WRITABLE = ("label", "annotation", "event", "condition", "taint")


class FakeRepairer:
    """Repairs nodes as one profile describes it."""

    def __init__(self, api: ApiClient, actions: Actions, nodes: Reflector, repairs: Repairs, hosts_url: str) -> None:
        self._api = api
        self._actions = actions
        self._nodes = nodes
        self._repairs = repairs
        self._hosts_url = hosts_url

    async def repair(self, node: str, kind: RepairKind, pci: str, give_back: Callable[[], Awaitable[None]]) -> None:
        """Play all hops of the profile, one after the other. If one fails, the node is not given back.

        Args:
            node: The quarantined node.
            kind: The repair: a reboot, or the reset of one GPU.
            pci: PCI address of the faulty GPU; empty if the cause names none.
            give_back: Takes the quarantine off.
        """
        try:
            await self._drain(node)
            await self._show(node, RepairHop.WORK_MOVED)
            await self._show(node, RepairHop.REPAIR_BEGUN)
            await self._order(node, kind, pci)
            await self._show(node, RepairHop.REPAIRED)
            if self._repairs.hops.validated:
                await self._validate(node)
                await self._show(node, RepairHop.VALIDATED)
            await give_back()
        except (ApiError, HostError) as error:
            log.warning("repair of %s given up: %s", node, error)

    async def _drain(self, node: str) -> None:
        """Evict the pods that hold GPUs, again and again until a disruption budget allows it."""
        while pods := await self._gpu_pods(node):
            for pod in pods:
                meta = pod["metadata"]
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
                eviction = {
                    "apiVersion": "policy/v1",
                    "kind": "Eviction",
                    "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
                }
                try:
                    await self._api.post(path, eviction)
                except ApiError as error:
                    if error.status not in (404, 429):
                        raise
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _gpu_pods(self, node: str) -> list[Object]:
        found = await self._api.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})
        return [pod for pod in found.get("items") or () if _is_gpu_work(pod)]

    async def _order(self, node: str, kind: RepairKind, pci: str) -> None:
        """Repair the machine, and wait until the node is Ready again."""
        boot_before = _boot(self._nodes.store.get(node))
        if kind is RepairKind.REBOOT:
            await self._run(node, ["systemctl", "reboot"])
            while _boot(self._nodes.store.get(node)) in (boot_before, None):
                await asyncio.sleep(_LOOK_EVERY_S)
        else:
            await self._reset(node, pci)
        while not _is_ready(self._nodes.store.get(node)):
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _reset(self, node: str, pci: str) -> None:
        """Reset the GPU with persistence mode off meanwhile. Raises HostError if nvidia-smi refuses."""
        await self._run(node, ["nvidia-smi", "-i", pci, "-pm", "0"])
        reset = await self._run(node, ["nvidia-smi", "--gpu-reset", "-i", pci])
        await self._run(node, ["nvidia-smi", "-i", pci, "-pm", "1"])
        if reset.exit_status != 0:
            raise HostError(f"nvidia-smi refused to reset GPU {pci}: {reset.output_line}")

    async def _validate(self, node: str) -> None:
        """Test the repaired machine. Raises HostError if a test fails, or none could be run."""
        tested = await self._run(node, _VALIDATION)
        if tested.exit_status != 0:
            said = f"{' '.join(_VALIDATION)} ended with {tested.exit_status}: {tested.output_line}"
            raise HostError(f"{node} stays out, because its validation failed: {said}")

    async def _run(self, node: str, argv: Sequence[str]) -> ProgramResult:
        return await asyncio.to_thread(VirtualHost(f"{self._hosts_url}/{node}").run, argv, _ORDER_TIMEOUT_S)

    async def _show(self, node: str, hop: RepairHop) -> None:
        """Write the first sign of the hop that a stand-in can write; it cannot write custom resources."""
        expected, found = self._repairs.hops.of(hop), self._nodes.store.get(node)
        sign = next((one for one in expected.signs if one.source in _WRITABLE), None) if expected else None
        if sign and found and not _is_end_of_taint(sign):
            await self._actions.show(found, sign, f"{self._repairs.by}: {hop}")


def _is_end_of_taint(sign: Sign) -> bool:
    return sign.taint is not None and sign.taint.gone


def _is_gpu_work(pod: Object) -> bool:
    owners: list[Any] = pod["metadata"].get("ownerReferences") or []
    holds = any(
        _GPU_RESOURCE in ((container.get("resources") or {}).get("requests") or {})
        for container in pod["spec"]["containers"]
    )
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return holds and not ended and not any(owner.get("kind") == "DaemonSet" for owner in owners)


def _boot(node: Object | None) -> str | None:
    found: str | None = (((node or {}).get("status") or {}).get("nodeInfo") or {}).get("bootID")
    return found


def _is_ready(node: Object | None) -> bool:
    status = (node or {}).get("status") or {}
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    capacity, allocatable = (status.get(part) or {} for part in ("capacity", "allocatable"))
    return ready and allocatable.get(_GPU_RESOURCE) == capacity.get(_GPU_RESOURCE)
