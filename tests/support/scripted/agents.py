"""The output and reports of the agent's pods, in the agent's own models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel

from gameday.agent.mark import marker_line
from gameday.agent.run import TASK_VARIABLE
from gameday.agent.task import (
    TASK,
    AgentResult,
    CanaryNote,
    CanaryTask,
    DcgmEnginesNote,
    GpuPodsNote,
    InjectedNote,
    InjectTask,
    MarkTask,
    QaTask,
    SampledGpu,
    SampledNote,
    SampleTask,
    Task,
)
from gameday.faults.cuda_crash import CudaCrashParameters
from gameday.faults.registry import parse_parameters
from gameday.faults.xid import XidParameters
from gameday.host.base import GpuSample
from gameday.xid.lines import format_xid
from tests.support.scripted.script import AgentScript

GPUS = 8
EndedBy = Literal["done", "sigterm", "hold", "error"]


LOGGED_AFTER, NVML_AFTER = timedelta(milliseconds=2), timedelta(milliseconds=23)
"""The times after a real crash of the kernel's line and of NVML's event."""


def task_in(pod: dict[str, Any]) -> Task | None:
    """Return the order that a pod carries; None for a pod that is no agent's."""
    for variable in pod["spec"]["containers"][0].get("env") or ():
        if variable["name"] == TASK_VARIABLE:
            return TASK.validate_json(variable["value"])
    return None


def holds(task: Task) -> bool:
    """Return True if an agent, once it has done its task, goes on until somebody ends it."""
    return isinstance(task, InjectTask | SampleTask)


def kernel_line(task: Task) -> str:
    """Return the line that an agent's work leaves in the kernel log."""
    if isinstance(task, MarkTask):
        return marker_line(task.marker)
    if isinstance(task, InjectTask):
        parameters = parse_parameters(task.fault)
        if isinstance(parameters, XidParameters):
            gpu = task.gpu if parameters.gpu is None else parameters.gpu
            return format_xid(parameters.xid, pci(gpu), parameters.form)
        return f"a fault of type {parameters.type} is in"
    return ""


def notes(task: Task, script: AgentScript, at: datetime, measured: float) -> Iterator[BaseModel]:
    """Yield what an agent prints once it has done what it was sent for; `measured` is what a canary finds."""
    match task:
        case InjectTask():
            evidence = (f"written x1: <3>{kernel_line(task)}",)
            by_driver = isinstance(parse_parameters(task.fault), CudaCrashParameters)
            logged_at, nvml_at = (at + LOGGED_AFTER, at + NVML_AFTER) if by_driver else (None, None)
            yield InjectedNote(written_at=at, evidence=evidence, undo_state={}, logged_at=logged_at, nvml_at=nvml_at)
        case MarkTask():
            if task.gpu_pods:
                yield from (GpuPodsNote(gpu=gpu, pci=pci(gpu), pods=()) for gpu in range(GPUS))
            if task.dcgm_engines:
                yield DcgmEnginesNote(blind=(), others=(), unseen=())
        case SampleTask():
            for number in range(2):
                seconds = timedelta(seconds=task.interval_s * number)
                yield SampledNote(at=at + seconds, gpus=_sampled())
        case QaTask():
            yield from script.finds
        case CanaryTask():
            yield CanaryNote(value=measured)


def result(task: Task, script: AgentScript, written_at: datetime | None, ended_by: EndedBy) -> AgentResult:
    """Return the termination message of an agent that did as its script says."""
    if isinstance(task, InjectTask) and script.error:
        written_at = None  # the host said no before anything was written
    done = () if isinstance(task, InjectTask) else (f"{task.role}: {script.error or 'done'}",)
    evidence = (f"written x1: <3>{kernel_line(task)}", "read back: the fault is out") if written_at else done
    return AgentResult(
        role=task.role,
        ok=not script.error,
        cleanliness=script.cleanliness,
        written_at=written_at,
        ended_by="error" if script.error else ended_by,
        error=script.error,
        evidence=evidence,
    )


def pci(gpu: int) -> str:
    """Return a GPU's address as the kernel log writes it."""
    return f"0000:{0x18 + 8 * gpu:02x}:00"


@cache
def _sampled() -> tuple[SampledGpu, ...]:
    """Return what NVML shows of a node's GPUs, idle and well."""
    return tuple(SampledGpu.of(_gpu(gpu)) for gpu in range(GPUS))


def _gpu(index: int) -> GpuSample:
    return GpuSample(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=pci(index),
        temperature_c=40.0,
        power_w=120.0,
        utilization_pct=0.0,
    )
