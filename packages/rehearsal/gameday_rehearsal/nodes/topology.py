"""The topology updater's part of a virtual node: its free GPUs by NUMA zone, in a NodeResourceTopology object.

It follows NFD's updater (kubernetes-sigs/node-feature-discovery, pkg/nfd-topology-updater): it reads and writes its
node's object at an interval, and whenever the kubelet's checkpoint of devices changes, which is at each allocation to
a pod. The kubelet does not write that checkpoint when a pod ends (cm/devicemanager, UpdateAllocatedDevices). So a GPU
that became free is in the object only after the next allocation or the interval. Zones have only GPUs, no CPUs and
no memory. There is no fingerprint of the pods, without which the scheduler's cache of reservations
(`cacheResyncPeriodSeconds`) cannot be used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gameday_rehearsal.nodes.devices import RESOURCE, GpuDevices
from gameday_rehearsal.nodes.numa import CPUS_OF_NODE, SINGLE_NUMA_NODE, numa_node
from kubesim.client import ApiClient, Object
from kubesim.errors import ApiError

log = logging.getLogger(__name__)

API_GROUP = "topology.node.k8s.io"
DEFINITION = f"noderesourcetopologies.{API_GROUP}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOPOLOGIES = f"/apis/{API_GROUP}/v1alpha2/noderesourcetopologies"
_DISTANCE_NEAR, _DISTANCE_FAR = 10, 21
"""ACPI's distances for two sockets, as in `gameday_rehearsal.nodes.numa`."""
_TRY_AGAIN_S = 1.0


def definition() -> Object:
    """Return the CustomResourceDefinition, with the fields that updater and scheduler use.

    The API server requires the annotation of every group of k8s.io (KEP-2337, api-approved).
    """
    quantity = {"x-kubernetes-int-or-string": True}
    attributes = _list_of({"name": {"type": "string"}, "value": {"type": "string"}})
    resources = _list_of(
        {"name": {"type": "string"}, **dict.fromkeys(("capacity", "allocatable", "available"), quantity)}
    )
    zones = _list_of(
        {
            "name": {"type": "string"},
            "type": {"type": "string"},
            "costs": _list_of({"name": {"type": "string"}, "value": {"type": "integer", "format": "int64"}}),
            "resources": resources,
        }
    )
    schema = {"type": "object", "properties": {"attributes": attributes, "zones": zones}, "required": ["zones"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": DEFINITION,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
        },
        "spec": {
            "group": API_GROUP,
            "names": {
                "kind": "NodeResourceTopology",
                "plural": "noderesourcetopologies",
                "singular": "noderesourcetopology",
            },
            "scope": "Cluster",
            "versions": [
                {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    }


def _list_of(properties: Object) -> Object:
    return {"type": "array", "items": {"type": "object", "properties": properties}}


def is_served(found: Object) -> bool:
    """Return True if the API server serves objects of a definition."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def topology(node: str, devices: GpuDevices) -> Object:
    """Return a node's object: for each NUMA node all GPUs, the working ones, and those of them that no pod has."""
    zones = sorted(CPUS_OF_NODE)
    all_gpus = range(devices.count)
    capacity = Counter(numa_node(gpu, devices.count) for gpu in all_gpus)
    working = Counter(numa_node(gpu, devices.count) for gpu in all_gpus if devices.is_healthy(gpu))
    free = Counter(
        numa_node(gpu, devices.count) for gpu in all_gpus if devices.is_healthy(gpu) and devices.holder(gpu) is None
    )
    return {
        "apiVersion": f"{API_GROUP}/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": SINGLE_NUMA_NODE},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": [
            {
                "name": f"node-{zone}",
                "type": "Node",
                "costs": [
                    {"name": f"node-{other}", "value": _DISTANCE_NEAR if other == zone else _DISTANCE_FAR}
                    for other in zones
                ],
                "resources": [
                    {
                        "name": RESOURCE,
                        "capacity": str(capacity[zone]),
                        "allocatable": str(working[zone]),
                        "available": str(free[zone]),
                    }
                ],
            }
            for zone in zones
        ],
    }


class TopologyUpdater:
    """The updater on one node. It runs while the cluster serves NodeResourceTopology objects."""

    def __init__(
        self,
        node: str,
        devices: GpuDevices,
        api: ApiClient,
        may_write: Callable[[], Awaitable[None]],
        interval_s: float,
    ) -> None:
        """Prepare the updater; `may_write` returns once the node may write."""
        self._node = node
        self._devices = devices
        self._api = api
        self._may_write = may_write
        self._interval_s = interval_s
        self._on = asyncio.Event()
        # Like inotify's queue: an event for each allocation, none lost or joined with another.
        self._allocations: asyncio.Queue[None] = asyncio.Queue()

    @property
    def runs(self) -> bool:
        """True while the updater is on; the kubelet's policy is then single-numa-node."""
        return self._on.is_set()

    def switch(self, *, on: bool) -> None:
        """Start or stop the updater."""
        if on and not self.runs:
            self._allocations = asyncio.Queue()
            self._allocations.put_nowait(None)  # it writes its object when it starts
        (self._on.set if on else self._on.clear)()

    def allocated(self) -> None:
        """The device plugin gave GPUs to a pod."""
        if self.runs:
            self._allocations.put_nowait(None)

    async def keep_written(self) -> None:
        """Write the object at each allocation and at the interval, until cancelled."""
        while True:
            await self._on.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._allocations.get()
            await self._may_write()
            if not self.runs:
                continue
            try:
                await self._write()
            except ApiError as error:
                log.warning("NodeResourceTopology of %s: %s", self._node, error)
                self.allocated()
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _write(self) -> None:
        """Read the object and rewrite it, as NFD's updater does, or create it. Raises ApiError."""
        wanted, path = topology(self._node, self._devices), f"{TOPOLOGIES}/{self._node}"
        try:
            found = await self._api.get(path)
        except ApiError as error:
            if not error.not_found:
                raise
            await self._api.post(TOPOLOGIES, wanted)
            return
        wanted["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        await self._api.put(path, wanted)
