"""The NUMA nodes of a virtual machine: two sockets of 56 cores with two threads each, half the GPUs at each.

That is an HGX H100's usual host. CPUs are numbered as by the kernel, all first threads before the second ones.
Distances are ACPI's for two sockets.
"""

from __future__ import annotations

from kubesim.client import Object

POLICY_ANNOTATION = "virtual-node.gameday.dev/topology-manager-policy"
"""The annotation of a Node with the virtual kubelet's topologyManagerPolicy; a real kubelet has it in its
configuration. With single-numa-node its CPU Manager is static, too; anything else means `none`, the kubelet's
default.
"""
SINGLE_NUMA_NODE = "single-numa-node"
CPUS_OF_NODE = {0: "0-55,112-167", 1: "56-111,168-223"}
_NODES = "/sys/devices/system/node"
NODE_FILES = {
    f"{_NODES}/online": "0-1\n",
    f"{_NODES}/node0/cpulist": f"{CPUS_OF_NODE[0]}\n",
    f"{_NODES}/node1/cpulist": f"{CPUS_OF_NODE[1]}\n",
    f"{_NODES}/node0/distance": "10 21\n",
    f"{_NODES}/node1/distance": "21 10\n",
}


def numa_node(gpu: int, gpus: int) -> int:
    return 2 * gpu // gpus


def exclusive_cpus(spec: Object) -> dict[str, int]:
    """Return the CPUs that a static CPU Manager gives to each container alone.

    These are whole CPUs in a pod of QoS Guaranteed. Every container has to name limits for CPU and memory; requests
    that are left out equal the limits (API server).
    """
    found: dict[str, int] = {}
    for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        requests = {**limits, **(resources.get("requests") or {})}
        if any(not limits.get(name) or requests[name] != limits[name] for name in ("cpu", "memory")):
            return {}
        if str(limits["cpu"]).isdigit():
            found[container["name"]] = int(limits["cpu"])
    return found
