"""Devices of dynamic resource allocation (resource.k8s.io/v1): their taints, and the pods that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from kubernetes import client

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.watch import Follower
from gameday.values.devices import HeldDevice, TaintedDevice
from gameday.values.nodes import Taint


def follow_slices(kubernetes: Kubernetes, node: str, changed: Callable[[str, Any], None]) -> Follower:
    """Return a watch of a node's own ResourceSlices, not started yet; `changed` is called as in Follower."""
    calls = client.ResourceV1Api(kubernetes.api)
    return kubernetes.follow(calls.list_resource_slice, changed, field_selector=f"spec.nodeName={node}")


def tainted_devices(slices: Sequence[Any]) -> dict[TaintedDevice, datetime | None]:
    """Return each taint of each device in ResourceSlices (V1ResourceSlice), with its timeAdded."""
    return {
        TaintedDevice(
            driver=found.spec.driver,
            device=device.name,
            taint=Taint(key=taint.key, value=taint.value or "", effect=taint.effect),
        ): taint.time_added
        for found in slices
        for device in found.spec.devices or ()
        for taint in device.taints or ()
    }


def devices_held(kubernetes: Kubernetes, node: str) -> tuple[HeldDevice, ...]:
    """Return the devices of a node that claims hold for pods, by pod and device. Raises KubernetesError."""
    calls = client.ResourceV1Api(kubernetes.api)
    with kubernetes.explained("list resourceclaims"):
        claims = calls.list_resource_claim_for_all_namespaces().items
    pools = _pools_of(kubernetes, calls, node)
    found = {held for claim in claims for held in _held(claim, pools)}
    return tuple(sorted(found, key=lambda one: (one.driver, one.device, one.pod, one.uid)))


def _pools_of(kubernetes: Kubernetes, calls: Any, node: str) -> dict[str, str]:
    """Return the pool of each driver that publishes slices for the node; most drivers name the pool after it."""
    with kubernetes.explained("list resourceslices"):
        slices = calls.list_resource_slice(field_selector=f"spec.nodeName={node}").items
    return {one.spec.driver: one.spec.pool.name for one in slices}


def _held(claim: Any, pools: Mapping[str, str]) -> Iterator[HeldDevice]:
    allocation = claim.status.allocation if claim.status else None
    results = (allocation.devices.results if allocation and allocation.devices else None) or ()
    for result in results:
        if pools.get(result.driver) != result.pool:
            continue
        for consumer in claim.status.reserved_for or ():
            if consumer.resource == "pods":
                pod = f"{claim.metadata.namespace}/{consumer.name}"
                yield HeldDevice(driver=result.driver, device=result.device, pod=pod, uid=consumer.uid)
