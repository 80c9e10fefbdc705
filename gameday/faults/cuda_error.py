"""A CUDA error in one pod: its calls to the driver fail as on a broken GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gameday.api_clients.cuda_pods import CudaPod, CudaPods
from gameday.documents.fields import PLAN_NAME, LabelKey, LabelValue, conflict
from gameday.errors import HostError
from gameday.faults.base import Evidence, Fault, Layer
from gameday.host.base import Host
from gameday.host.privileges import API_CLIENT, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.values.cuda_switch import (
    ANNOTATION,
    LONGEST,
    MAY_FAIL,
    CudaError,
    CudaSwitch,
    was_felt,
    why_not_loaded,
)
from gameday.values.wanted_pods import WantedPods

_FELT_WITHIN = timedelta(minutes=2)
"""A kubelet writes a pod's volumes when it syncs the pod, each minute (docs/sources.md, CUDA errors); twice that."""
_LOOK_EVERY_S = 1.0


class CudaErrorParameters(FaultParameters):
    goes_in_within: ClassVar[timedelta] = _FELT_WITHIN

    type: Literal["cuda_error"] = "cuda_error"
    error: CudaError
    """The error that every CUDA call returns from some moment on, until the process ends."""
    namespace: str = Field(pattern=PLAN_NAME, max_length=63)
    """The pod's namespace, in which deploy/cuda-error is applied."""
    selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    """Labels of the pod, besides the label of its owners' consent. The target must run exactly one such pod."""
    new_processes: bool = False
    """If true, processes of the pod that start while the fault is in fail, too, as on a GPU that stays broken."""

    def wanted_pods(self) -> WantedPods:
        return WantedPods(self.namespace, {**self.selector, MAY_FAIL[0]: MAY_FAIL[1]})

    @model_validator(mode="after")
    def _ends_by_itself(self) -> CudaErrorParameters:
        if self.hold > LONGEST:
            raise conflict(("hold",), "the library takes no value that ends later than in one hour")
        return self


class CudaErrorFault(Fault[CudaErrorParameters]):
    """Makes the CUDA calls of one pod's processes fail, with an interception library that its owners put into it.

    The owners consent by the label gameday.dev/may-fail-cuda=true, and put the library into the pod's template ([CUDA
    errors](cuda-errors.md)). The fault writes the pod's annotation gameday.dev/cuda-error, which the kubelet copies
    into a file of the pod within about a minute; it is in when a process has said in the pod's log that it fails. Such
    a process keeps failing until it ends, even after the fault is out. The annotation's value expires after `hold`.

    Refused if the target runs no such pod or more than one, no process has said that the library is loaded, or the
    annotation is there. If no process says in time that it fails, the annotation is removed again.
    """

    parameters: ClassVar[type[FaultParameters]] = CudaErrorParameters
    layer: ClassVar[Layer] = Layer.WORKLOAD
    api_account: ClassVar[str] = "gameday-cuda-error"
    security: ClassVar[PodSecurity] = API_CLIENT
    summary: ClassVar[str] = "CUDA calls fail in one pod; its owners consent by a label"
    does_not_reach: ClassVar[str] = (
        "the GPU, NVML, DCGM and the kernel log (`compound` puts in the Xid that belongs to it); other pods; the pod's "
        "processes without the library, or without a CUDA call"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "the job itself, and what restarts it",
        "`expect.job`, which measures how soon it goes on and what it lost",
    )
    details: ClassVar[str] = "| error | CUresult | Xid that goes with it |\n|---|---|---|\n" + "".join(
        f"| `{one}` | {one.code} | {', '.join(map(str, one.xids))} |\n" for one in CudaError
    )

    def warnings(self, parameters: CudaErrorParameters) -> tuple[str, ...]:
        return (
            f"at least one process of a pod in {parameters.namespace} fails until it ends: a job that does not end it "
            "stands still until its owners do",
        )

    def prior_state(self, parameters: CudaErrorParameters, gpu: int, host: Host) -> dict[str, str]:
        pods = _pods(parameters, host)
        pod = pods.only_one()
        if why := why_not_loaded(pods.first_lines(pod)):
            raise HostError(f"pod {pod} would not fail: {why} (docs/cuda-errors.md)")
        return {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid}

    def inject(self, parameters: CudaErrorParameters, gpu: int, host: Host) -> Evidence:
        pods, state = _pods(parameters, host), self.prior_state(parameters, gpu, host)
        pod = CudaPod(state["namespace"], state["pod"], state["uid"])
        written_at = datetime.now(UTC)
        value = CudaSwitch.new(
            parameters.error, written_at + parameters.hold, for_new_processes=parameters.new_processes
        )
        if not pods.switch(pod, value):
            raise HostError(f"pod {pod} was gone when it was to fail")
        took_s = _wait(lambda: was_felt(pods.last_lines(pod), value.mark), min(_FELT_WITHIN, parameters.hold))
        if took_s is None:
            raise HostError(
                f"no process in pod {pod} said in time that it fails, with {ANNOTATION} at {value}: does it mount the "
                "annotation without subPath, and has it made a CUDA call since?"
            )
        lines = (
            f"before: pod {pod} (uid {pod.uid}) had no annotation {ANNOTATION}, and its library was loaded",
            f"written: {value}",
            f"after: {took_s:.0f} s later a process in it said that every CUDA call returns {value.code}",
        )
        return Evidence(lines=lines, written_at=written_at, undo_state=state)

    def undo(self, parameters: CudaErrorParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        pods = _pods(parameters, host)
        lines = []
        for pod in _switched(pods, undo_state):
            if not pods.is_on(pod):
                lines.append(f"pod {pod} is gone, or has no annotation {ANNOTATION}")
            elif pods.switch(pod, None):
                lines.append(f"taken away: {ANNOTATION} of pod {pod}; a process that failed fails until it ends")
        return Evidence(lines=tuple(lines) or (f"no pod has the annotation {ANNOTATION}",))

    def verify_undone(self, parameters: CudaErrorParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        pods = _pods(parameters, host)
        return not any(pods.is_on(pod) for pod in _switched(pods, undo_state))


def _pods(parameters: CudaErrorParameters, host: Host) -> CudaPods:
    return CudaPods(host.api_server(), parameters.wanted_pods())


def _switched(pods: CudaPods, undo_state: dict[str, str]) -> list[CudaPod]:
    """Return the pod of the undo state; without one, this node's pods that have a value, as no other run is here."""
    if {"namespace", "pod", "uid"} <= undo_state.keys():
        return [CudaPod(undo_state["namespace"], undo_state["pod"], undo_state["uid"])]
    return pods.switched_on()


def _wait(condition: Callable[[], bool], longest: timedelta) -> float | None:
    """Wait until the condition holds, and return after how many seconds it did; None if it did not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > longest.total_seconds():
            return None
        time.sleep(_LOOK_EVERY_S)
    return time.monotonic() - began
