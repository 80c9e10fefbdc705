"""A frozen component: its pod exists, counts as Running, and does nothing."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import ClassVar, Literal

from pydantic import Field

from gameday.documents.fields import LABEL_VALUE
from gameday.errors import HostError
from gameday.faults.base import HOST_ENGINE, Claim, Evidence, Fault, Layer, Reach
from gameday.faults.component_pods import LABELS, Component, cgroup_of, find_pod
from gameday.host.base import Host
from gameday.host.privileges import HOST_SYSFS, PodSecurity
from gameday.plan.fault import FaultParameters

_SETTLES_WITHIN_S = 5.0
"""The kernel reports frozen when the last task has left its system call, which a dead disk can delay."""
_POLL_S = 0.1
_LOOK_EVERY_S = 2.0
_CGROUPS = "/sys/fs/cgroup"
_WHY_DANGEROUS = (
    "the log store is the whole cluster's: while it is frozen, no detector that reads logs sees any node's fault"
)

_SEEN_BY: tuple[tuple[tuple[Component, ...], str], ...] = (
    ((Component.EXPORTER, Component.HOST_ENGINE), "alerts on absent series, as the exporter's scrape times out"),
    ((Component.LOG_STORE,), "KernelLogPipelineSilent, as the node-health controller loses its tail"),
    (
        (Component.SHIPPER, Component.COLLECTOR),
        "KernelLogSilent, six minutes after the node's last line; sooner only the marker line of a game-day's baseline",
    ),
    ((Component.DEVICE_PLUGIN,), "new GPU pods, which hang while they are admitted; allocatable stays what it was"),
)
_PROBES = "the kubelet's liveness and readiness probes, if the pod has any"


class ComponentFrozenParameters(FaultParameters):
    type: Literal["component_frozen"] = "component_frozen"
    component: Component
    """The component, found by its pod's labels, see below; `other`: a pod labelled gameday.dev/may-freeze=true."""
    namespace: str | None = Field(default=None, pattern=LABEL_VALUE, max_length=63)
    """The namespace of the pod; None: any."""

    def dangers(self) -> dict[str, str]:
        return super().dangers() | ({self.type: _WHY_DANGEROUS} if self.component is Component.LOG_STORE else {})


class ComponentFrozenFault(Fault[ComponentFrozenParameters]):
    """Freezes the processes of one component's pod on this node through its cgroup, and thaws them.

    `crictl` finds the pod, and `cgroup.freeze` (cgroup v2) freezes it. Its processes keep their sockets and memory and
    answer nothing, while Kubernetes still calls the pod Running. After a liveness probe's threshold the kubelet kills
    the container, and the next one, in the same frozen cgroup, does not start until it is thawed. Readiness probes
    take the pod out of its Service. If the pod is deleted meanwhile, the fault ends with that reason: its successor is
    not frozen.

    A `log-store` is dangerous because the whole cluster uses it, and a season plays it only if its plan is named.

    It never freezes the control plane's pods, game-day agents, or a pod without one of the labels below.
    """

    parameters: ClassVar[type[FaultParameters]] = ComponentFrozenParameters
    layer: ClassVar[Layer] = Layer.TELEMETRY
    security: ClassVar[PodSecurity] = HOST_SYSFS
    summary: ClassVar[str] = "Freezes a component's pod on one node: device plugin, exporter, DCGM, log path"
    does_not_reach: ClassVar[str] = (
        "the same component's pods on other nodes; running work; GPUs, NVML and kernel log; the pod's phase"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        *(f"{', '.join(names)}: {who}" for names, who in _SEEN_BY),
        _PROBES,
    )
    details: ClassVar[str] = "| component | label of its pod |\n|---|---|\n" + "".join(
        f"| `{name}` | {' or '.join(f'`{k}={v}`' for k, v in labels)} |\n" for name, labels in LABELS.items()
    )

    def claims(self, parameters: ComponentFrozenParameters) -> tuple[Claim, ...]:
        engine = (Claim(HOST_ENGINE),) if parameters.component is Component.HOST_ENGINE else ()
        cluster_wide = parameters.component is Component.LOG_STORE
        return (Claim(parameters.component, cluster_wide=cluster_wide), *engine)

    def reach(self, parameters: ComponentFrozenParameters) -> Reach:
        seen_by = tuple(who for names, who in _SEEN_BY if parameters.component in names)
        return Reach(self.layer, self.does_not_reach, (*seen_by, _PROBES))

    def prior_state(self, parameters: ComponentFrozenParameters, gpu: int, host: Host) -> dict[str, str]:
        pod = find_pod(host, parameters.component, parameters.namespace)
        cgroup = cgroup_of(host, pod)
        if (frozen := _is_frozen(host, cgroup)) is None:
            raise HostError(
                f"{_CGROUPS}{cgroup} has no cgroup.events: this node runs cgroup v1, or the agent sees only its own"
            )
        if frozen:
            raise HostError(f"pod {pod} is frozen already, and not by this run: thaw it first")
        return {"cgroup": cgroup, "pod": str(pod)}

    def inject(self, parameters: ComponentFrozenParameters, gpu: int, host: Host) -> Evidence:
        state = self.prior_state(parameters, gpu, host)
        cgroup = state["cgroup"]
        written_at = datetime.now(UTC)
        _write(host, cgroup, "1")
        if not _becomes(host, cgroup, frozen=True):
            raise HostError(f"cgroup.freeze of pod {state['pod']} took 1, and cgroup.events does not say frozen")
        lines = (
            f"before: pod {state['pod']} ({parameters.component}) not frozen, cgroup {cgroup}",
            "written: 1 to cgroup.freeze",
            "after: cgroup.events says frozen 1",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=state)

    def hold(self, parameters: ComponentFrozenParameters, gpu: int, host: Host, ended: threading.Event) -> None:
        cgroup: str | None = None
        while not ended.wait(_LOOK_EVERY_S):
            cgroup = cgroup or cgroup_of(host, find_pod(host, parameters.component, parameters.namespace))
            if not _is_frozen(host, cgroup):
                raise HostError(f"the {parameters.component} runs again: its pod was thawed, or another took its place")

    def undo(self, parameters: ComponentFrozenParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        cgroup = _frozen_cgroup(parameters, host, undo_state)
        match _is_frozen(host, cgroup):
            case None:
                return Evidence(lines=(f"the pod's cgroup {cgroup} is gone, and what was frozen with it",))
            case False:
                return Evidence(lines=("the pod is not frozen: nothing to thaw",))
        _write(host, cgroup, "0")
        _becomes(host, cgroup, frozen=False)
        return Evidence(lines=(f"written: 0 to cgroup.freeze of {cgroup}",))

    def verify_undone(
        self, parameters: ComponentFrozenParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return not _is_frozen(host, _frozen_cgroup(parameters, host, undo_state))


def _frozen_cgroup(parameters: ComponentFrozenParameters, host: Host, undo_state: dict[str, str]) -> str:
    return undo_state.get("cgroup") or cgroup_of(host, find_pod(host, parameters.component, parameters.namespace))


def _write(host: Host, cgroup: str, value: str) -> None:
    host.write_file(f"{_CGROUPS}{cgroup}/cgroup.freeze", value)


def _is_frozen(host: Host, cgroup: str) -> bool | None:
    """Return True if the kernel reports the cgroup as frozen; None if there is no such cgroup. Raises HostError."""
    try:
        events = host.read_file(f"{_CGROUPS}{cgroup}/cgroup.events")
    except HostError:
        host.boot_id()  # raises if the host itself does not answer
        return None
    return "frozen 1" in events.splitlines()


def _becomes(host: Host, cgroup: str, *, frozen: bool) -> bool:
    """Wait until the kernel reports the wanted state; return True if it did in time."""
    deadline = time.monotonic() + _SETTLES_WITHIN_S
    while _is_frozen(host, cgroup) is not frozen:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
