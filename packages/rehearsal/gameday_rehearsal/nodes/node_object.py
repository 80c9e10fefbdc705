"""The Node object of a virtual node: labels, capacity, conditions, as a kubelet and the GPU operator write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gameday.values.nodes import VIRTUAL_PROVIDER
from gameday_rehearsal.nodes.devices import RESOURCE
from gameday_rehearsal.nodes.gpu_operator import deploy_labels
from gameday_rehearsal.nodes.gpus import FB_TOTAL_MIB
from gameday_rehearsal.nodes.identity import CUDA_VERSION, DRIVER_VERSION, KERNEL_VERSION, PRODUCT_LABEL, machine_id
from kubesim.client import Object
from kubesim.clock import now_utc, rfc3339

INSTANCE_TYPE_LABEL, INSTANCE_TYPE = "node.kubernetes.io/instance-type", "virtual-hgx-h100"
CLIENT_INSTANCE_TYPE = "virtual-api-client"
OPT_IN_LABEL = "gameday.dev/opt-in"
API_CLIENTS_LABEL = "gameday.dev/api-clients"
HOLD_OUT_LABEL = "gameday.dev/hold-out"
NODES_PER_RACK = 4
RACKS_PER_ZONE = 8
_IMAGES = {"quay.io/prometheus/node-exporter:v1.9.1": 24_000_000}
"""Images that the nodes have, with their sizes in bytes: one that most clusters run on every node."""
_PRESSURES = {
    "MemoryPressure": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    "DiskPressure": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    "PIDPressure": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
}


@dataclass(frozen=True)
class Hardware:
    """The machine of a node, as kubelet and GPU feature discovery describe it."""

    instance_type: str
    provider: str
    """Scheme of the providerID; that of virtual machines says that no machine is behind the node."""
    runtime: str
    """The container runtime, as name://version."""
    machine_id: str
    kernel: str
    os_image: str
    cpus: int
    memory_kib: int
    gpu_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of GPU feature discovery, apart from those that say how many GPUs there are and since when."""


def virtual_hardware(name: str) -> Hardware:
    """Return the hardware of a virtual node."""
    return Hardware(
        instance_type=INSTANCE_TYPE,
        provider=f"{VIRTUAL_PROVIDER}rehearsal",
        runtime=f"{VIRTUAL_PROVIDER}1.0.0",
        machine_id=machine_id(name),
        kernel=KERNEL_VERSION,
        os_image="Ubuntu 24.04.2 LTS",
        cpus=192,
        memory_kib=2_113_367_040,
        gpu_labels={
            "nvidia.com/gpu.product": PRODUCT_LABEL,
            "nvidia.com/gpu.memory": str(FB_TOTAL_MIB),
            "nvidia.com/gpu.family": "hopper",
            "nvidia.com/cuda.driver-version.full": DRIVER_VERSION,
            "nvidia.com/cuda.runtime-version.full": CUDA_VERSION,
        },
    )


@dataclass(frozen=True)
class NodeFacts:
    """The facts of a node that do not change while it is up."""

    index: int
    name: str
    gpus: int  # 0: a node for API clients
    port: int | None  # the kubelet endpoint's
    version: str  # the kubelet's: the same as the control plane's, as kubeadm keeps them
    gpu_operator: bool = False  # NVIDIA's operator places its operands by labels
    hold_out: bool = False  # a spare, which registers with the taint that keeps work off
    real: Hardware | None = None  # the machine behind it; None: a virtual one

    @property
    def hardware(self) -> Hardware:
        """The machine of the node."""
        return self.real or virtual_hardware(self.name)


def labels(facts: NodeFacts, booted_s: int) -> dict[str, str]:
    """Return the labels from the kubelet, GPU feature discovery and the machine's place.

    They are reconciled at every registration.

    `booted_s`, seconds since 1970: GPU feature discovery starts with the machine, and labels its start.
    """
    rack = facts.index // NODES_PER_RACK
    of_any = {
        "kubernetes.io/hostname": facts.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        INSTANCE_TYPE_LABEL: facts.hardware.instance_type if facts.gpus else CLIENT_INSTANCE_TYPE,
        "topology.kubernetes.io/region": "rehearsal",
        "topology.kubernetes.io/zone": f"rehearsal-{chr(ord('a') + rack // RACKS_PER_ZONE % 26)}",
        "topology.kubernetes.io/rack": f"rack-{rack:03d}",
    }
    return {**of_any, **_gpu_labels(facts, booted_s)} if facts.gpus else of_any


def _gpu_labels(facts: NodeFacts, booted_s: int) -> dict[str, str]:
    return {
        "nvidia.com/gfd.timestamp": str(booted_s),
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(facts.gpus),
        **facts.hardware.gpu_labels,
    }


def node_object(facts: NodeFacts, booted_s: int, status: Object) -> Object:
    """Return a new Node. The labels of its use and of its operands are given only here, so that later changes stay.

    Spares and nodes for API clients have a taint of the same key, which keeps ordinary work off. Like a kubelet's, the
    Node has its whole status at once: a single request makes it exist and Ready.
    """
    use = OPT_IN_LABEL if facts.gpus else API_CLIENTS_LABEL
    if facts.hold_out:
        use = HOLD_OUT_LABEL
    taints = [] if use == OPT_IN_LABEL else [{"key": use, "value": "true", "effect": "NoSchedule"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "labels": {**labels(facts, booted_s), **(deploy_labels() if facts.gpu_operator else {}), use: "true"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"providerID": f"{facts.hardware.provider}/{facts.name}", **({"taints": taints} if taints else {})},
        "status": status,
    }


def machine_status(facts: NodeFacts, boot_id: str, allocatable_gpus: int) -> Object:
    """Return the part of a Node's status that changes only with the machine."""
    hardware = facts.hardware
    capacity = {
        "cpu": str(hardware.cpus),
        "memory": f"{hardware.memory_kib}Ki",
        "ephemeral-storage": "29696Gi",
        "pods": "110",
    }
    # The rest is the system's own.
    spared = {"cpu": str(hardware.cpus - min(2, hardware.cpus // 2)), "memory": f"{hardware.memory_kib * 63 // 64}Ki"}
    allocatable = {**capacity, **spared}
    if facts.gpus:
        capacity[RESOURCE], allocatable[RESOURCE] = str(facts.gpus), str(allocatable_gpus)
    return {
        "capacity": capacity,
        "allocatable": allocatable,
        "addresses": _addresses(facts),
        "images": [{"names": [name], "sizeBytes": size} for name, size in _IMAGES.items()],
        # Port 0 is how the API writes "none".
        "daemonEndpoints": {"kubeletEndpoint": {"Port": facts.port or 0}},
        "nodeInfo": {
            "machineID": hardware.machine_id,
            "systemUUID": hardware.machine_id,
            "bootID": boot_id,
            "kernelVersion": hardware.kernel,
            "osImage": hardware.os_image,
            "containerRuntimeVersion": hardware.runtime,
            "kubeletVersion": facts.version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


def _addresses(facts: NodeFacts) -> list[Object]:
    """Return the node's addresses, or none without a kubelet endpoint.

    An API server asks port 10250 of any address that it finds, and on 127.0.0.1 that may be another kubelet's.
    """
    if facts.port is None:
        return []
    return [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": facts.name}]


class Conditions:
    """Ready and the pressures, each with the time of its last change."""

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._ready_since = self._since = rfc3339(now_utc())
        self._sent: dict[str, str] = {}

    def shown_by(self, node: Object) -> bool:
        """Return True if the Node, as the server has it, has the conditions of the last document.

        Node lifecycle writes Unknown over the conditions of a kubelet that has been silent for a while.
        """
        shown = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
        return all(shown.get(kind) == status for kind, status in self._sent.items())

    def begin_again(self) -> None:
        """Treat the next document's state as new, with a new time of transition, because somebody wrote another one."""
        self._ready, self._since = None, rfc3339(now_utc())

    def document(self, not_ready_because: str | None) -> list[Object]:
        at = rfc3339(now_utc())
        ready = not_ready_because is None
        if ready != self._ready:
            self._ready, self._ready_since = ready, at
        conditions: list[Object] = [
            {
                "type": kind,
                "status": "False",
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": at,
                "lastTransitionTime": self._since,
            }
            for kind, (reason, message) in _PRESSURES.items()
        ]
        conditions.append(
            {
                "type": "Ready",
                "status": "True" if ready else "False",
                "reason": "KubeletReady" if ready else "KubeletNotReady",
                "message": "kubelet is posting ready status" if ready else not_ready_because,
                "lastHeartbeatTime": at,
                "lastTransitionTime": self._ready_since,
            }
        )
        self._sent = {each["type"]: each["status"] for each in conditions}
        return conditions
