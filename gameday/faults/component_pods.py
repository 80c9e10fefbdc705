"""The pods that watch or serve GPUs on a node, found from the host's side: through its container runtime.

In most clusters the device plugin, dcgm-exporter, DCGM, the log shippers and
their like are pods of DaemonSets and no systemd units. The agent has no API
token, and needs none: the runtime knows the pods of its own node, with their
labels, and where their cgroups are.

Only pods that carry a label of the table below can be found, so that a slip in
a plan never hits a pod that nobody had in mind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gameday.errors import HostError, NoCrictlError
from gameday.host.base import Host

_WITHIN_S = 15.0
"""One call of crictl, whose own limit for an answer of the runtime is 2 s."""
_NOT_FOUND = 127
_SAID_CHARACTERS = 300
_SLICE = ".slice"


class Component(StrEnum):
    DEVICE_PLUGIN = "device-plugin"
    EXPORTER = "dcgm-exporter"
    HOST_ENGINE = "host-engine"
    SHIPPER = "dmesg-shipper"
    COLLECTOR = "log-collector"
    LOG_STORE = "log-store"
    OTHER = "other"
    """A pod whose owners opted in with the label gameday.dev/may-freeze=true."""


MAY_FREEZE = ("gameday.dev/may-freeze", "true")
_NAME = "app.kubernetes.io/name"
LABELS: dict[Component, tuple[tuple[str, str], ...]] = {
    # The GPU operator's, the plain manifest's, the chart's (for `app`: docs/sources.md, GPU operator).
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
"""By which labels each is known, whatever its namespace."""
_OURS = "gameday.dev/run"
_CONTROL_PLANE = (("tier", "control-plane"), ("component", "etcd"), ("component", "kube-apiserver"))
"""As kubeadm labels its static pods."""


@dataclass(frozen=True)
class PodSandbox:
    """One pod as the node's container runtime knows it."""

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
    """Which component a pod of these labels is; None for every other pod."""
    return next((component for component, known in LABELS.items() if set(known) & set(labels.items())), None)


def find(host: Host, component: Component, namespace: str | None) -> PodSandbox:
    """The one pod of this component on the node. Raises HostError where there is none, several, or a wrong one."""
    found = [pod for pod in pods_of(host, component) if namespace is None or pod.namespace == namespace]
    if not found:
        labels = " or ".join(f"{key}={value}" for key, value in LABELS[component])
        where = f" in namespace {namespace}" if namespace else ""
        raise HostError(f"no pod of the {component} is ready on this node{where}: none carries {labels}")
    if len(found) > 1:
        names = ", ".join(sorted(map(str, found)))
        raise HostError(f"{len(found)} pods on this node are a {component} ({names}): say which by its namespace")
    pod = found[0]
    if any(key == _OURS for key, _ in pod.labels):
        raise HostError(f"pod {pod} is an agent of a game-day: it would freeze the hand that thaws")
    if pod.labels & set(_CONTROL_PLANE):
        raise HostError(f"pod {pod} belongs to the control plane: that is never frozen")
    return pod


def pods_of(host: Host, component: Component) -> list[PodSandbox]:
    """All ready pods of this component on the node, our own included. Raises HostError."""
    return [pod for pod in _sandboxes(host) if set(LABELS[component]) & pod.labels]


def containers_of(host: Host, pod: PodSandbox) -> list[Container]:
    """Raises HostError."""
    listed = _at(_crictl(host, "ps", "--pod", pod.id, "--state", "running"), "containers")
    if not isinstance(listed, list):
        raise HostError(f"`crictl ps` does not list the containers of pod {pod}")
    return [_container(host, str(_at(one, "id"))) for one in listed]


def _container(host: Host, id: str) -> Container:
    process = _at(_crictl(host, "inspect", id), "info", "runtimeSpec", "process")
    argv, environment = _at(process, "args"), _at(process, "env")
    if not isinstance(argv, list) or not isinstance(environment, list):
        raise HostError(f"`crictl inspect {id[:13]}` does not tell the container's command line and environment")
    return Container(id, tuple(map(str, argv)), dict(str(one).partition("=")[::2] for one in environment))


def cgroup_of(host: Host, pod: PodSandbox) -> str:
    """The pod's cgroup below /sys/fs/cgroup, all its containers within. Raises HostError."""
    told = _crictl(host, "inspectp", pod.id)
    path = _at(told, "info", "runtimeSpec", "linux", "cgroupsPath")
    if not isinstance(path, str) or not path:
        raise HostError(f"`crictl inspectp` does not tell the cgroup of pod {pod}")
    slice_, colon, _ = path.partition(":")
    # systemd's driver: `<pod's slice>:<runtime>:<sandbox>`; cgroupfs': a path whose last part is the sandbox.
    cgroup = _expanded(slice_) if colon else path.rpartition("/")[0]
    if not cgroup.startswith("/kubepods"):
        raise HostError(f"pod {pod} is in cgroup {cgroup or '/'}, which is none of kubelet's for pods: left alone")
    return cgroup


def _expanded(name: str) -> str:
    """`a-b-c.slice` -> `/a.slice/a-b.slice/a-b-c.slice`, as systemd nests slices by their names (systemd.slice(5))."""
    parts = name.removesuffix(_SLICE).rpartition("/")[2].split("-")
    return "".join(f"/{'-'.join(parts[:count])}{_SLICE}" for count in range(1, len(parts) + 1))


def _sandboxes(host: Host) -> list[PodSandbox]:
    told = _crictl(host, "pods", "--state", "ready")
    items = told.get("items") if isinstance(told, dict) else None
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
    """What it printed as JSON. Raises HostError."""
    # Options stand first: crictl (urfave/cli v2) takes whatever follows an ID for another ID.
    done = host.run(["crictl", verb, "-o", "json", *arguments], _WITHIN_S)
    said = " ".join(f"{done.stderr} {done.stdout}".split())[:_SAID_CHARACTERS]
    if done.exit_status == _NOT_FOUND:
        raise NoCrictlError(
            f"no crictl on this node ({said or 'not found'}): pods can only be found through it; install cri-tools"
        )
    if done.exit_status:
        raise HostError(f"`crictl {verb} {' '.join(arguments)}`: exit {done.exit_status}: {said or 'no word'}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise HostError(f"`crictl {verb} {' '.join(arguments)}` printed no JSON: {said}") from None


def _at(data: Any, *path: str) -> Any:
    for step in path:
        data = data.get(step) if isinstance(data, dict) else None
    return data
