"""A DRA driver's part of a virtual node: its GPUs as a ResourceSlice, taints of broken ones, and claims of pods.

It follows NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu, device_health.go): an Xid that is not an
application's own taints the device with `…/xid`, NoSchedule, and a lost GPU gets `…/gpu-lost`. One thing differs: that
driver hears of Xids from NVML, this one reads the kernel log, because a game-day's `xid` fault only writes a line
there. The effect can be NoExecute instead, which stands for the administrator who escalates: no driver evicts by
itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from gameday.errors import ClaimError
from gameday.plan.rehearsal import DraXidEffect
from gameday.xid.lines import Kind, recognise
from gameday_rehearsal.nodes.gpus import FB_TOTAL_MIB
from gameday_rehearsal.nodes.identity import CUDA_VERSION, DRIVER_VERSION, MODEL, GpuIdentity
from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.node_machine import NodeMachine
from gameday_rehearsal.nodes.numa import numa_node
from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, rfc3339
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

DRIVER = "gpu.gameday.dev"
"""Name of the driver, and of its DeviceClass."""
XID_TAINT, LOST_TAINT = f"{DRIVER}/xid", f"{DRIVER}/gpu-lost"
API_GROUP = "resource.k8s.io"
SLICES = f"/apis/{API_GROUP}/v1/resourceslices"

_APPLICATIONS_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""NVIDIA's driver skips these by default (device_health.go)."""
_TRY_AGAIN_S = (0.5, 5.0)


@dataclass(frozen=True)
class DeviceTaint:
    key: str
    value: str
    effect: DraXidEffect
    since: str
    """Time in RFC 3339, from which tolerations count."""

    def document(self) -> Object:
        return {"key": self.key, "value": self.value, "effect": self.effect, "timeAdded": self.since}


def device_class() -> Object:
    """Return the class of all GPUs of the driver; an administrator makes it."""
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "gpu"'
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def claim_template(name: str, gpus: int) -> Object:
    """Return a template of claims for this number of GPUs each."""
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": gpus}
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}},
    }


def slice_name(node: str) -> str:
    return f"{node}-{DRIVER}"


def device(gpu: GpuIdentity, gpus: int, taints: Sequence[DeviceTaint] = ()) -> Object:
    """Return a GPU as a device of the slice, with the attributes of NVIDIA's driver (deviceinfo.go).

    Args:
        gpu: The GPU.
        gpus: Number of GPUs of the node, which decides the NUMA node.
        taints: Its taints.
    """
    attributes: Object = {
        "type": {"string": "gpu"},
        "uuid": {"string": gpu.uuid},
        "productName": {"string": MODEL},
        "brand": {"string": "Nvidia"},
        "architecture": {"string": "Hopper"},
        "cudaComputeCapability": {"version": "9.0.0"},
        "driverVersion": {"version": _semantic(DRIVER_VERSION)},
        "cudaDriverVersion": {"version": _semantic(CUDA_VERSION)},
        "resource.kubernetes.io/pciBusID": {"string": gpu.sysfs_name},
        "resource.kubernetes.io/numaNode": {"int": numa_node(gpu.index, gpus)},
    }
    found: Object = {
        "name": f"gpu-{gpu.index}",
        "attributes": attributes,
        "capacity": {"memory": {"value": f"{FB_TOTAL_MIB}Mi"}},
    }
    return {**found, "taints": [taint.document() for taint in taints]} if taints else found


def resource_slice(node: str, node_uid: str, devices: Sequence[Object], generation: int) -> Object:
    """Return a node's only slice. It belongs to the Node; 64 devices with taints fit into one (API)."""
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": slice_name(node),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def _semantic(version: str) -> str:
    """Return a version in the API's form: three numbers without leading zeros."""
    numbers = [int(part) for part in version.split(".")]
    return ".".join(map(str, [*numbers, 0, 0][:3]))


def claims_of(pod: Object) -> Iterator[tuple[str, str]]:
    """Yield each claim of a pod, by its name in the pod and the name of its ResourceClaim.

    Raises:
        ClaimError: The ResourceClaim of a template is not made yet.
    """
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {one["name"]: one.get("resourceClaimName") for one in statuses}
    for claim in pod["spec"].get("resourceClaims") or ():
        name = claim["name"]
        if direct := claim.get("resourceClaimName"):
            yield name, direct
        elif name not in made:
            raise ClaimError(f"pod claim {name}: its ResourceClaim is not created yet")
        elif made[name]:  # else the template asked for nothing
            yield name, made[name]


def devices_for(claim: Object, pod: Object, node: str) -> list[tuple[str, str]]:
    """Return this driver's devices that a claim has for a pod on the node, each with its request.

    Raises:
        ClaimError: The claim is not allocated, not reserved for the pod, or has a device of another node.
    """
    meta, status = claim["metadata"], claim.get("status") or {}
    name, uid = f"{meta['namespace']}/{meta['name']}", pod["metadata"]["uid"]
    owners = [one["uid"] for one in meta.get("ownerReferences") or () if one.get("controller")]
    if owners and uid not in owners:
        raise ClaimError(f"ResourceClaim {name} was made for another pod")
    if not status.get("allocation"):
        raise ClaimError(f"ResourceClaim {name} is not allocated yet")
    if uid not in [one["uid"] for one in status.get("reservedFor") or ()]:
        raise ClaimError(f"pod {pod['metadata']['name']} may not use ResourceClaim {name}: it is not in reservedFor")
    found = []
    for result in status["allocation"]["devices"].get("results") or ():
        if result["driver"] != DRIVER:
            continue
        if result["pool"] != node:
            raise ClaimError(f"ResourceClaim {name} has {result['device']} of pool {result['pool']}, not of {node}")
        found.append((result["request"].partition("/")[0], result["device"]))
    return found


@dataclass(frozen=True)
class PreparedGpu:
    """A GPU that a claim gives to a container."""

    container: str
    resource: str
    """The claim's name in the container's status, as the API server demands it (KEP-4680)."""
    gpu: int


def container_of(pod: Object, claim: str, request: str) -> tuple[str, str] | None:
    """Return the first container that uses this request of the pod's claim, and the claim's name in its status."""
    for container in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]:
        for used in (container.get("resources") or {}).get("claims") or ():
            if used["name"] == claim and used.get("request") in (None, request):
                return container["name"], f"claim:{claim}" + (f"/{request}" if used.get("request") else "")
    return None


class DraDriver:
    """The driver on one node: it publishes the slice, and finds the GPUs of a pod's claims."""

    def __init__(
        self, machine: NodeMachine, api: ApiClient, may_write: Callable[[], Awaitable[None]], xid_effect: DraXidEffect
    ) -> None:
        """Prepare the driver; `may_write` returns once the node may write, `xid_effect` is that of an Xid's taint."""
        self._machine = machine
        self._api = api
        self._may_write = may_write
        self._xid_effect = xid_effect
        self._node_uid = ""
        self._xids: dict[int, DeviceTaint] = {}
        self._lost: dict[int, DeviceTaint] = {}
        self._changed = asyncio.Event()

    # What happens on the node

    def node_registered(self, uid: str) -> None:
        """Publish the slice for this Node, which may be a new one."""
        self._node_uid = uid
        self._changed.set()

    def restarted(self) -> None:
        """Forget everything about the GPUs, because the node has booted."""
        self._xids.clear()
        self._changed.set()

    def gpus_changed(self) -> None:
        self._changed.set()

    def slice_changed(self, seen: Object | None) -> None:
        """Publish again what somebody else removed (None) or overwrote."""
        if seen is None or (seen["spec"].get("devices") or []) != self._devices():
            self._changed.set()

    def logged(self, record: KernelRecord) -> bool:
        """Taint the GPU of an Xid, and clear the one that an agent says it has reset; return True if it did."""
        if "Xid" not in record.text and "GPU reset" not in record.text:
            return False
        event = recognise(record.text)
        gpu = next((gpu.index for gpu in self._machine.gpus if event and gpu.pci == event.pci), None)
        if event is None or gpu is None:
            return False
        if event.kind is Kind.GPU_RESET and event.success:
            self._xids.pop(gpu, None)
        elif event.kind is Kind.XID and event.code is not None and event.code not in _APPLICATIONS_XIDS:
            self._xids[gpu] = DeviceTaint(XID_TAINT, str(event.code), self._xid_effect, rfc3339(now_utc()))
        else:
            return False
        self._changed.set()
        return True

    def allocated_status(self, given: Sequence[PreparedGpu], container: str) -> list[Object]:
        """Return the `allocatedResourcesStatus` of a container: the health of its GPUs; a tainted one is unhealthy."""
        found: dict[str, list[Object]] = {}
        for one in given:
            if one.container == container:
                health = "Unhealthy" if self._taints(one.gpu) else "Healthy"
                place = f"{DRIVER}/{self._machine.name}/gpu-{one.gpu}"
                found.setdefault(one.resource, []).append({"resourceID": place, "health": health})
        return [{"name": name, "resources": gpus} for name, gpus in found.items()]

    # The slice

    async def keep_published(self) -> None:
        """Write the slice whenever it changes, until cancelled."""
        pause_s = _TRY_AGAIN_S[0]
        while True:
            await self._changed.wait()
            await self._may_write()
            self._changed.clear()
            if not self._node_uid:
                continue
            try:
                await self._publish()
                pause_s = _TRY_AGAIN_S[0]
            except ApiError as error:
                log.warning("ResourceSlice of %s: %s", self._machine.name, error)
                self._changed.set()
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _TRY_AGAIN_S[1])

    async def _publish(self) -> None:
        """Create the slice, or update the existing one. Raises ApiError."""
        devices = self._devices()
        try:
            await self._api.post(SLICES, self._slice(devices, 1))
            return
        except ApiError as error:
            if not error.conflict:
                raise
        path = f"{SLICES}/{slice_name(self._machine.name)}"
        found = await self._api.get(path)
        generation = int(found["spec"]["pool"]["generation"])
        # Readers wait for a whole pool of the newest generation; a change within its only slice needs none.
        if _names(found["spec"].get("devices") or ()) != _names(devices):
            generation += 1
        wanted = self._slice(devices, generation)
        if _published(found) == _published(wanted):
            return
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await self._api.put(path, wanted)

    def _slice(self, devices: Sequence[Object], generation: int) -> Object:
        return resource_slice(self._machine.name, self._node_uid, devices, generation)

    def _devices(self) -> list[Object]:
        machine = self._machine
        known = machine.known_gpus()
        return [device(gpu, len(machine.gpus), self._taints(gpu.index)) for gpu in machine.gpus if gpu.index in known]

    def _taints(self, gpu: int) -> list[DeviceTaint]:
        if self._machine.gpu_serves(gpu):
            self._lost.pop(gpu, None)
        else:
            self._lost.setdefault(gpu, DeviceTaint(LOST_TAINT, "", DraXidEffect.NO_SCHEDULE, rfc3339(now_utc())))
        return [taints[gpu] for taints in (self._xids, self._lost) if gpu in taints]

    # Claims

    async def prepare(self, pod: Object) -> list[PreparedGpu]:
        """Return the GPUs of a pod's claims that its containers use, as NodePrepareResources would.

        Raises:
            ClaimError: A claim is not the pod's, or has a device that this node lacks.
            ApiError: A claim cannot be read.
        """
        given = []
        namespace, node = pod["metadata"]["namespace"], self._machine.name
        for name, claim_name in claims_of(pod):
            path = f"/apis/{API_GROUP}/v1/namespaces/{namespace}/resourceclaims/{claim_name}"
            claim = await self._api.get(path)
            for request, device_name in devices_for(claim, pod, node):
                gpu = self._gpu_called(device_name)
                if used := container_of(pod, name, request):
                    given.append(PreparedGpu(*used, gpu))
        return given

    def _gpu_called(self, name: str) -> int:
        serving = {f"gpu-{gpu}": gpu for gpu in self._machine.known_gpus() if self._machine.gpu_serves(gpu)}
        if name not in serving:
            raise ClaimError(f"{self._machine.name} has no device {name} that works; it has {', '.join(serving)}")
        return serving[name]


def _names(devices: Sequence[Object]) -> list[str]:
    return [one["name"] for one in devices]


def _published(found: Object) -> tuple[Object, object]:
    return found["spec"], found["metadata"].get("ownerReferences")
