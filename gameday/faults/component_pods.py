"""The pods that watch or serve GPUs on a node, found through the host's container runtime.

In most clusters the device plugin, dcgm-exporter, DCGM, the log shippers and the like are pods of DaemonSets, not
systemd units. The agent needs no API token: the runtime knows the pods of its node, with their labels and cgroups.

Only pods with a label of the table below can be found, so that a slip in a plan never hits another pod.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gameday.errors import HostError, NoCrictlError
from gameday.host.base import Host

_TIMEOUT_S = 15.0
"""Timeout of one call of crictl, which itself waits 2 s for an answer of the runtime."""
_NOT_FOUND = 127
_OUTPUT_CHARACTERS = 300
_SLICE = ".slice"


class Component(StrEnum):
    """The components that a fault can freeze."""

    DEVICE_PLUGIN = "device-plugin"
    EXPORTER = "dcgm-exporter"
    HOST_ENGINE = "host-engine"
    SHIPPER = "dmesg-shipper"
    COLLECTOR = "log-collector"
    LOG_STORE = "log-store"
    OTHER = "other"
    """A pod with its owners' consent, the label gameday.dev/may-freeze=true."""


MAY_FREEZE = ("gameday.dev/may-freeze", "true")
_NAME = "app.kubernetes.io/name"
LABELS: dict[Component, tuple[tuple[str, str], ...]] = {
    # From the GPU operator, the plain manifest and the chart (for `app`: docs/sources.md, GPU operator).
    Component.DEVICE_PLUGIN: (
        ("app", "nvidia-device-plugin-daemonset"),
        ("name", "nvidia-device-plugin-ds"),
        (_NAME, "nvidia-device-plugin"),
    ),
    Component.EXPORTER: (("app", "nvidia-dcgm-exporter"), (_NAME, "dcgm-exporter")),
    Component.HOST_ENGINE: (("app", "nvidia-dcgm"),),
    Component.SHIPPER: ((_NAME, "dmesg"),),
    Component.COLLECTOR: tuple((_NAME, it) for it in ("opentelemetry-collector", "fluent-bit", "promtail", "alloy")),
    Component.LOG_STORE: ((_NAME, "loki"),),
    Component.OTHER: (MAY_FREEZE,),
}
"""The labels of each component's pods, in any namespace."""
_OURS = "gameday.dev/run"
_CONTROL_PLANE = (("tier", "control-plane"), ("component", "etcd"), ("component", "kube-apiserver"))
"""The labels that kubeadm gives its static pods."""


@dataclass(frozen=True)
class PodSandbox:
    """A pod as the node's container runtime knows it."""

    id: str
    namespace: str
    name: str
    uid: str
    labels: frozenset[tuple[str, str]]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Container:
    """A running container, with the command line and environment that the runtime gave its first process."""

    id: str
    argv: tuple[str, ...]
    environment: dict[str, str]


def component_of(labels: dict[str, str]) -> Component | None:
    """Return the component that a pod with these labels belongs to; None for any other pod."""
    return next((component for component, known in LABELS.items() if set(known) & set(labels.items())), None)


def find_pod(host: Host, component: Component, namespace: str | None) -> PodSandbox:
    """Return the only pod of this component on the node.

    Args:
        host: The node.
        component: The component.
        namespace: The pod's namespace; None: any.

    Raises:
        HostError: There is no such pod, there are several, or it is one of our agents or part of the control plane.
    """
    found = [pod for pod in pods_of(host, component) if namespace is None or pod.namespace == namespace]
    if not found:
        labels = " or ".join(f"{key}={value}" for key, value in LABELS[component])
        where = f" in namespace {namespace}" if namespace else ""
        raise HostError(f"no pod of the {component} is ready on this node{where}: none carries {labels}")
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise HostError(f"{len(found)} pods on this node are a {component} ({names}): name one by its namespace")
    pod = found[0]
    if any(key == _OURS for key, _ in pod.labels):
        raise HostError(f"pod {pod} is an agent of a game-day: nobody could thaw it")
    if pod.labels & set(_CONTROL_PLANE):
        raise HostError(f"pod {pod} belongs to the control plane: that is never frozen")
    return pod


def pods_of(host: Host, component: Component) -> list[PodSandbox]:
    """Return all ready pods of this component on the node, our own included. Raises HostError."""
    return [pod for pod in ready_pods(host) if set(LABELS[component]) & pod.labels]


def containers_of(host: Host, pod: PodSandbox) -> list[Container]:
    """Return the running containers of a pod. Raises HostError."""
    listed = _at(_crictl(host, "ps", "--pod", pod.id, "--state", "running"), "containers")
    if not isinstance(listed, list):
        raise HostError(f"`crictl ps` does not list the containers of pod {pod}")
    return [_container(host, str(_at(one, "id"))) for one in listed]


def _container(host: Host, id: str) -> Container:
    process = _at(_crictl(host, "inspect", id), "info", "runtimeSpec", "process")
    argv, environment = _at(process, "args"), _at(process, "env")
    if not isinstance(argv, list) or not isinstance(environment, list):
        raise HostError(f"`crictl inspect {id[:13]}` does not show the container's command line and environment")
    return Container(id, tuple(map(str, argv)), dict(str(one).partition("=")[::2] for one in environment))


def cgroup_of(host: Host, pod: PodSandbox) -> str:
    """Return the path below /sys/fs/cgroup of the cgroup that holds all containers of the pod. Raises HostError."""
    inspected = _crictl(host, "inspectp", pod.id)
    path = _at(inspected, "info", "runtimeSpec", "linux", "cgroupsPath")
    if not isinstance(path, str) or not path:
        raise HostError(f"`crictl inspectp` does not show the cgroup of pod {pod}")
    slice_, colon, _ = path.partition(":")
    # systemd's driver: `<pod's slice>:<runtime>:<sandbox>`; cgroupfs's: a path that ends with the sandbox.
    cgroup = _expanded(slice_) if colon else path.rpartition("/")[0]
    if not cgroup.startswith("/kubepods"):
        raise HostError(
            f"pod {pod} is in cgroup {cgroup or '/'}, which is not one of the kubelet's for pods: left alone"
        )
    return cgroup


def _expanded(name: str) -> str:
    """Return `/a.slice/a-b.slice/a-b-c.slice` for `a-b-c.slice`: systemd nests slices by name (systemd.slice(5))."""
    parts = name.removesuffix(_SLICE).rpartition("/")[2].split("-")
    return "".join(f"/{'-'.join(parts[:count])}{_SLICE}" for count in range(1, len(parts) + 1))


def ready_pods(host: Host) -> list[PodSandbox]:
    """Return all ready pods of the node. Raises HostError."""
    items = _at(_crictl(host, "pods", "--state", "ready"), "items")
    if not isinstance(items, list):
        raise HostError("`crictl pods` does not list pods: is it a version before 1.0?")
    pods = []
    for item in items:
        labels = _at(item, "labels")
        pods.append(
            PodSandbox(
                id=str(_at(item, "id")),
                namespace=str(_at(item, "metadata", "namespace")),
                name=str(_at(item, "metadata", "name")),
                uid=str(_at(item, "metadata", "uid")),
                labels=frozenset((str(key), str(value)) for key, value in labels.items())
                if isinstance(labels, dict)
                else frozenset(),
            )
        )
    return pods


def _crictl(host: Host, verb: str, *arguments: str) -> Any:
    """Return what crictl printed as JSON. Raises HostError."""
    # Options come first: crictl (urfave/cli v2) takes everything after an ID for another ID.
    done = host.run(["crictl", verb, "-o", "json", *arguments], _TIMEOUT_S)
    output = " ".join(f"{done.stderr} {done.stdout}".split())[:_OUTPUT_CHARACTERS]
    if done.exit_status == _NOT_FOUND:
        raise NoCrictlError(
            f"no crictl on this node ({output or 'not found'}): pods can only be found through it; install cri-tools"
        )
    if done.exit_status:
        raise HostError(f"`crictl {verb} {' '.join(arguments)}`: exit {done.exit_status}: {output or 'no output'}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise HostError(f"`crictl {verb} {' '.join(arguments)}` printed no JSON: {output}") from None


def _at(data: Any, *path: str) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data
