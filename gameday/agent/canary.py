"""Role canary: measure once what work achieves on this node, with the node's own programs.

It changes nothing. If it cannot measure, it reports the reason, so that this is not taken for a fault.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gameday.agent.context import Context
from gameday.agent.own_gpus import own_gpus
from gameday.agent.task import AgentResult, CanaryNote, CanaryTask
from gameday.errors import HostError
from gameday.faults.network import query
from gameday.faults.numa import NumaParameters, alignment
from gameday.host.base import CopyToGpu, Host, ProbeMemory, ProgramResult
from gameday.values.measures import Measure
from gameday.values.memory import MemoryBlocks
from gameday.values.results import Cleanliness

ALL_REDUCE = "all_reduce_perf"
_BYTES = "1G"
"""Large enough that latency does not count (NCCL reaches its bandwidth from 256 MiB on), small enough for any GPU."""
_WARMUPS, _ITERATIONS = 5, 20
"""The defaults of nccl-tests."""
_ALL_REDUCE_TIMEOUT_S = 90.0
"""NCCL's start takes up to half a minute without persistence mode; a hang must end before the pod's deadline."""
_MIN_GPUS = 2
_OVER_NETWORK = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
_PINGS, _PING_EVERY_S = 100, 0.02
"""Number of pings and the pause between them: two seconds in all, enough to show a loss of one in twenty."""
_ANSWER_TIMEOUT_S = 1
_PING_TIMEOUT_S = 20.0
_NOT_FOUND = 127
"""The exit status of `env` for a program that is not on PATH."""
_MAX_DETAIL_CHARACTERS = 300
_MAX_REASON_CHARACTERS = 1000
"""Room for the reasons of all the ways to find a pod's GPUs."""
_BANDWIDTH = re.compile(r"^# Avg bus bandwidth\s*:\s*([0-9.]+)", re.MULTILINE)
_NCCL_FAILED = re.compile(r"NCCL WARN.*|Test NCCL failure.*")
_ANSWERED = re.compile(r"(?<!\d)(\d{1,9}) packets transmitted, (\d{1,9}) received")
_AVERAGE = re.compile(r"(?:rtt|round-trip) min/avg/max/\S+ = [0-9.]+/([0-9.]+)/")


def canary(task: CanaryTask, context: Context, environment: Mapping[str, str]) -> AgentResult:
    """Measure, and print the value or the reason why there is none. Never raises HostError.

    Args:
        task: What to measure.
        context: The host, and the pod's log.
        environment: The container's environment.
    """
    try:
        note = _measure(task, context.host, environment)
    except HostError as error:
        note = CanaryNote(value=None, detail=str(error)[:_MAX_REASON_CHARACTERS])
    context.print_note(note)
    value = "not measured" if note.value is None else f"{note.value:g} {task.measure.unit}"
    return AgentResult(
        role=task.role,
        ok=note.value is not None,
        cleanliness=Cleanliness.CLEAN,
        error="" if note.value is not None else note.detail,
        evidence=(f"{task.measure}: {value}", note.detail),
    )


def _measure(task: CanaryTask, host: Host, environment: Mapping[str, str]) -> CanaryNote:
    """Measure what the task asks for. Raises HostError."""
    if task.measure.uses_ping:
        return _ping(task, host)
    if task.measure is Measure.LARGEST_BLOCK:
        return _largest_block(task, host)
    gpus = own_gpus(host, environment, task.gpus).uuids
    return _copy(task, host, gpus) if task.measure is Measure.COPY else _all_reduce(task, host, gpus)


def _all_reduce(task: CanaryTask, host: Host, gpus: tuple[str, ...]) -> CanaryNote:
    """Return the bus bandwidth; 0 if NCCL itself gives the job up.

    Raises:
        HostError: The job failed for another reason, so nothing was measured.
    """
    if len(gpus) < _MIN_GPUS:
        raise HostError("an all-reduce needs two free GPUs, and this pod holds one")
    environment = (_OVER_NETWORK if task.over_network else {}) | task.environment
    variables = [f"{name}={value}" for name, value in environment.items()]
    argv = (
        "env",
        f"CUDA_VISIBLE_DEVICES={','.join(gpus)}",
        "NCCL_DEBUG=WARN",
        *variables,
        *(ALL_REDUCE, "-b", _BYTES, "-e", _BYTES, "-g", str(len(gpus))),
        *("-w", str(_WARMUPS), "-n", str(_ITERATIONS)),
    )
    done = host.run(argv, _ALL_REDUCE_TIMEOUT_S)
    if done.exit_status == _NOT_FOUND:
        raise HostError(f"there is no {ALL_REDUCE} on the node's PATH: install nccl-tests there")
    setup = " ".join((f"{len(gpus)} GPUs", *variables))
    failure = _NCCL_FAILED.search(done.stdout + done.stderr) if done.exit_status else None
    if failure:
        return CanaryNote(value=0.0, detail=f"{setup}: the job failed: {failure[0][:_MAX_DETAIL_CHARACTERS]}")
    return CanaryNote(value=_bandwidth(done), detail=setup)


def _bandwidth(done: ProgramResult) -> float:
    """Return the job's average bus bandwidth, GB/s. Raises HostError if it printed none."""
    found = _BANDWIDTH.search(done.stdout)
    if done.exit_status or found is None:
        output = " ".join((done.stderr or done.stdout[-_MAX_DETAIL_CHARACTERS:]).split())[:_MAX_DETAIL_CHARACTERS]
        raise HostError(f"{ALL_REDUCE}: exit {done.exit_status}, no bandwidth: {output}")
    return float(found[1])


def _copy(task: CanaryTask, host: Host, gpus: tuple[str, ...]) -> CanaryNote:
    """Return the rate of a copy to the pod's first idle GPU. Raises HostError."""
    index_by_uuid = {sample.uuid: sample.index for sample in host.gpus()}
    indexes = [index_by_uuid[uuid] for uuid in gpus if uuid in index_by_uuid]
    idle = [index for index in indexes if not host.has_work(index)]
    if not idle:
        raise HostError("a fault's work runs on every GPU of this pod")
    place = alignment(NumaParameters(), idle[0], host)
    node, cpus = (place.far_node, place.far_cpus) if task.far_from_gpu else (place.gpu_node, place.near_cpus)
    try:
        report = host.start_work(idle[0], CopyToGpu(cpus=cpus, memory_node=node))
    finally:
        host.end_work(idle[0])
    if not report.copy_gbs:
        raise HostError(f"nothing was copied to GPU {idle[0]}")
    return CanaryNote(value=report.copy_gbs, detail=f"GPU {idle[0]}, from memory of NUMA node {node}")


def _largest_block(task: CanaryTask, host: Host) -> CanaryNote:
    """Return the share of the GPU's free memory that its largest free block has. Raises HostError.

    Only a fresh process can say it, one that holds no memory of the GPU.
    """
    if task.gpu is None:
        raise HostError("the task names no GPU to measure")
    if host.has_work(task.gpu):
        raise HostError(f"a fault's work runs on GPU {task.gpu}")
    try:
        report = host.start_work(task.gpu, ProbeMemory())
    finally:
        host.end_work(task.gpu)
    if not report.free_bytes or report.largest_block_bytes is None:
        raise HostError(f"GPU {task.gpu} has no free memory, or does not say how much")
    blocks = MemoryBlocks(free_bytes=report.free_bytes, largest_bytes=report.largest_block_bytes)
    said = f"GPU {task.gpu}: {blocks.largest_bytes >> 20} of {blocks.free_bytes >> 20} MiB free, in one piece"
    return CanaryNote(value=blocks.share_percent, detail=said)


def _ping(task: CanaryTask, host: Host) -> CanaryNote:
    """Return the share of pings that were answered, or their average round-trip time. Raises HostError."""
    interface = task.interface or ""
    peer = task.peer or _neighbour(host, interface)
    rate = ("-c", str(_PINGS), "-i", str(_PING_EVERY_S), "-W", str(_ANSWER_TIMEOUT_S))
    argv = ("ping", "-n", "-q", *rate, "-s", str(task.payload), "-I", interface, peer)
    done = host.run(argv, _PING_TIMEOUT_S)
    counts, average = _ANSWERED.search(done.stdout), _AVERAGE.search(done.stdout)
    if counts is None and "unreachable" in done.stdout + done.stderr:
        sent, answered, summary = _PINGS, 0, "network is unreachable"
    elif counts is None:
        output = " ".join((done.stderr or done.stdout).split())[:_MAX_DETAIL_CHARACTERS]
        raise HostError(f"ping through {interface} to {peer}: exit {done.exit_status}: {output}")
    else:
        sent, answered, summary = int(counts[1]), int(counts[2]), f"{counts[2]} of {counts[1]} came back"
    detail = f"{interface} to {peer}: {summary}"
    if task.measure is Measure.ANSWERED:
        return CanaryNote(value=100 * answered / sent, detail=detail, peer=peer)
    if average is None:
        return CanaryNote(value=None, detail=f"{detail}: no time; measure answered pings instead", peer=peer)
    return CanaryNote(value=float(average[1]), detail=detail, peer=peer)


def _neighbour(host: Host, interface: str) -> str:
    """Return the address of a neighbour of the interface; raises HostError if it knows none."""
    for one in query(host, "ip", "-j", "-4", "neigh", "show", "dev", interface):
        if {"REACHABLE", "STALE", "DELAY", "PROBE", "PERMANENT"} & set(one.get("state", ())):
            return str(one["dst"])
    raise HostError(f"{interface} knows no neighbour that could answer: name one in expect.canary.peer")
