"""Role canary: one measurement of what work reaches on this node, with the programs that are on it.

It changes nothing. What could not be measured is said, and is no failure of
the role: a canary that failed without a word would look like a fault.
"""

from __future__ import annotations

import re

from gameday.agent.context import Context
from gameday.agent.task import CanaryNote, CanaryTask, Outcome
from gameday.errors import HostError
from gameday.faults.network import query
from gameday.faults.numa import NumaParameters, alignment
from gameday.host.base import CopyToGpu, Host, ProgramResult
from gameday.plan.canary import Measure
from gameday.values.results import Cleanliness

ALL_REDUCE = "all_reduce_perf"
_BYTES = "1G"
"""Large enough that latency does not count (NCCL reaches its bandwidth from 256 MiB on), small enough for any GPU."""
_WARMUPS, _ITERATIONS = 5, 20
"""nccl-tests' own defaults."""
_REDUCED_WITHIN_S = 90.0
"""NCCL's start takes up to half a minute without persistence mode; a hang must end before the pod's deadline."""
_SMALLEST_RING = 2
_OVER_NETWORK = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
_PINGS, _EVERY_S = 100, 0.02
"""Two seconds, and enough of them that one lost in twenty shows."""
_ANSWER_WITHIN_S = 1
_PINGED_WITHIN_S = 20.0
_NOT_FOUND = 127
_SAID_CHARACTERS = 300
_GPU = re.compile(r"(GPU|MIG)-[0-9A-Fa-f-]{8,80}")
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9.]+)", re.MULTILINE)
_NCCL_FAILED = re.compile(r"NCCL WARN.*|Test NCCL failure.*")
_ANSWERED = re.compile(r"(\d+) packets transmitted, (\d+) received")
_AVERAGE = re.compile(r"(?:rtt|round-trip) min/avg/max/\S+ = [0-9.]+/([0-9.]+)/")


def canary(task: CanaryTask, context: Context, gpus: str) -> Outcome:
    """`gpus`: the pod's NVIDIA_VISIBLE_DEVICES, as the device plugin set it. Never raises HostError."""
    try:
        note = _measure(task, context.host, tuple(filter(_GPU.fullmatch, gpus.split(","))))
    except HostError as error:
        note = CanaryNote(value=None, detail=str(error)[:_SAID_CHARACTERS])
    context.say(note)
    told = f"{task.measure}: {'not measured' if note.value is None else f'{note.value:g} {task.measure.unit}'}"
    return Outcome(
        role=task.role,
        ok=note.value is not None,
        cleanliness=Cleanliness.CLEAN,
        error="" if note.value is not None else note.detail,
        evidence=(told, note.detail),
    )


def _measure(task: CanaryTask, host: Host, gpus: tuple[str, ...]) -> CanaryNote:
    """Raises HostError."""
    if task.measure.pings:
        return _ping(task, host)
    if not gpus:
        raise HostError(
            "the pod holds no GPU that NVIDIA_VISIBLE_DEVICES would name: is the NVIDIA device plugin there?"
        )
    return _copy(task, host, gpus) if task.measure is Measure.COPY else _all_reduce(task, host, gpus)


def _all_reduce(task: CanaryTask, host: Host, gpus: tuple[str, ...]) -> CanaryNote:
    """A job that NCCL itself gives up has no bandwidth at all: 0. What else goes wrong is not measured."""
    if len(gpus) < _SMALLEST_RING:
        raise HostError("an all-reduce needs two free GPUs, and this pod holds one")
    environment = (_OVER_NETWORK if task.over_network else {}) | task.environment
    given = [f"{name}={value}" for name, value in environment.items()]
    argv = (
        "env",
        f"CUDA_VISIBLE_DEVICES={','.join(gpus)}",
        "NCCL_DEBUG=WARN",
        *given,
        *(ALL_REDUCE, "-b", _BYTES, "-e", _BYTES, "-g", str(len(gpus))),
        *("-w", str(_WARMUPS), "-n", str(_ITERATIONS)),
    )
    done = host.run(argv, _REDUCED_WITHIN_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(f"there is no {ALL_REDUCE} on the node's PATH: install nccl-tests there")
    how = " ".join((f"{len(gpus)} GPUs", *given))
    failed = _NCCL_FAILED.search(done.stdout + done.stderr) if done.exit_status else None
    if failed:
        return CanaryNote(value=0.0, detail=f"{how}: the job failed: {failed[0][:_SAID_CHARACTERS]}")
    return CanaryNote(value=_bandwidth(done), detail=how)


def _bandwidth(done: ProgramResult) -> float:
    """GB/s. Raises HostError."""
    found = _BANDWIDTH.search(done.stdout)
    if done.exit_status or found is None:
        said = " ".join((done.stderr or done.stdout[-_SAID_CHARACTERS:]).split())[:_SAID_CHARACTERS]
        raise HostError(f"{ALL_REDUCE}: exit {done.exit_status}, no bandwidth: {said}")
    return float(found[1])


def _copy(task: CanaryTask, host: Host, gpus: tuple[str, ...]) -> CanaryNote:
    """Raises HostError."""
    known = {sample.uuid: sample.index for sample in host.gpus()}
    idle = [known[uuid] for uuid in gpus if uuid in known and not host.work_runs(known[uuid])]
    if not idle:
        raise HostError("every GPU of this pod has work of a fault already")
    place = alignment(NumaParameters(), idle[0], host)
    node, cpus = (place.far_node, place.far_cpus) if task.far_from_gpu else (place.gpu_node, place.near_cpus)
    try:
        report = host.start_work(idle[0], CopyToGpu(cpus=cpus))
    finally:
        host.end_work(idle[0])
    if not report.copy_gbs:
        raise HostError(f"nothing was copied to GPU {idle[0]}")
    return CanaryNote(value=report.copy_gbs, detail=f"GPU {idle[0]}, from NUMA node {node}")


def _ping(task: CanaryTask, host: Host) -> CanaryNote:
    """Raises HostError."""
    interface = task.interface or ""
    peer = task.peer or _neighbour(host, interface)
    rate = ("-c", str(_PINGS), "-i", str(_EVERY_S), "-W", str(_ANSWER_WITHIN_S))
    argv = ("ping", "-n", "-q", *rate, "-s", str(task.payload), "-I", interface, peer)
    done = host.run(argv, _PINGED_WITHIN_S)
    counted, average = _ANSWERED.search(done.stdout), _AVERAGE.search(done.stdout)
    if counted is None and "unreachable" in done.stdout + done.stderr:
        sent, back, how = _PINGS, 0, "network is unreachable"
    elif counted is None:
        said = " ".join((done.stderr or done.stdout).split())[:_SAID_CHARACTERS]
        raise HostError(f"ping through {interface} to {peer}: exit {done.exit_status}: {said}")
    else:
        sent, back, how = int(counted[1]), int(counted[2]), f"{counted[2]} of {counted[1]} came back"
    detail = f"{interface} to {peer}: {how}"
    if task.measure is Measure.ANSWERED:
        return CanaryNote(value=100 * back / sent, detail=detail, peer=peer)
    if average is None:
        return CanaryNote(value=None, detail=f"{detail}: no time; measure answered pings instead", peer=peer)
    return CanaryNote(value=float(average[1]), detail=detail, peer=peer)


def _neighbour(host: Host, interface: str) -> str:
    """Raises HostError where the interface knows nobody."""
    for one in query(host, "ip", "-j", "-4", "neigh", "show", "dev", interface):
        if {"REACHABLE", "STALE", "DELAY", "PROBE", "PERMANENT"} & set(one.get("state", ())):
            return str(one["dst"])
    raise HostError(f"{interface} knows no neighbour that could answer: name one in expect.canary.peer")
