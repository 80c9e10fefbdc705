"""The ranks of an all-reduce over nodes by NCCL: one GPU and one working process on each node.

Rank 0's process creates NCCL's unique id, and the meeting brings it to the others. NCCL waits for a dead peer as it
waits for a dead link, so each agent watches its own process and reports how it ended. An agent that stays silent has
died; if all agents answer, the network is what failed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from pydantic import Field

from gameday.agent.channel import Channel
from gameday.agent.context import Context, Ending
from gameday.agent.meeting import ANSWER_MARGIN_S, JOIN_TIMEOUT_S, Message, answers, gather, join
from gameday.agent.own_gpus import own_gpus
from gameday.agent.task import AllReduceNote, AllReduceTask
from gameday.errors import HostError, LinkError
from gameday.host.base import AllReduceOverNodes, Host, WorkReport
from gameday.host.work import FIRST_REPORT_TIMEOUT_S
from gameday.text import printable

_WORK_S = 60.0
"""Connecting takes NCCL some seconds, a refused connection 21 s (gameday/host/nccl_over_nodes.py). After that come
two times 3 s, and rounds that double until one takes that long."""
_LOOK_EVERY_S = 0.2
LONGEST_S = 2 * (FIRST_REPORT_TIMEOUT_S + ANSWER_MARGIN_S) + _WORK_S + ANSWER_MARGIN_S
"""The longest time a rank takes after the meeting, in seconds."""
_SHOWN_CHARACTERS = 300


class _Start(Message):
    """The unique id of the communicator, in hexadecimal: 128 bytes."""

    unique_id: str = Field(pattern=r"^[0-9a-f]{256}$")


class _Part(Message):
    """A rank's report on its process: it began, or how it ended or was cut off."""

    error: str = Field(default="", max_length=500)
    no_link: bool = Field(default=False, description="`error` is about the network between the ranks")
    connected: bool = False
    finished: bool = False
    gpu: int | None = Field(default=None, ge=0, lt=256)
    wrong: int = Field(default=0, ge=0, description="sums that were wrong")


class _Over(Message):
    """Rank 0's message that every process may end; before it, one may still have bytes for another."""


def lead(task: AllReduceTask, context: Context, environment: Mapping[str, str]) -> AllReduceNote:
    """Gather the peers, measure, and return the figure. Raises HostError if nothing can be measured."""
    with ExitStack() as open_ends:
        gpu = _own_gpu(task, context.host, environment)
        channels = [channel for channel, _ in gather(task, context, open_ends)]
        try:
            unique_id = _begin(task, context.host, gpu, "", open_ends).unique_id
        except LinkError as error:
            return _note(task, WorkReport(seconds=0), [_Part(error=str(error)[:500], no_link=True)])
        if not unique_id:
            raise HostError(f"NCCL on {task.node} made no unique id")
        for channel in channels:
            channel.send(_Start(unique_id=unique_id))
        begun = answers(channels, _Part, FIRST_REPORT_TIMEOUT_S + ANSWER_MARGIN_S)
        if any(part.error for part in begun):
            return _note(task, WorkReport(seconds=0), [_Part(), *begun])
        own = _last_report(context.host, gpu, context.ending)
        parts = [_part(own, gpu), *answers(channels, _Part, ANSWER_MARGIN_S + _WORK_S)]
        _send_over(channels)
        return _note(task, own, parts)


def follow(task: AllReduceTask, context: Context, environment: Mapping[str, str]) -> None:
    """Join rank 0, be one rank, and report how it ended. Raises HostError."""
    with ExitStack() as open_ends:
        channel = join(task, context, open_ends)
        start = channel.receive(_Start, JOIN_TIMEOUT_S + FIRST_REPORT_TIMEOUT_S + ANSWER_MARGIN_S)
        try:
            gpu = _own_gpu(task, context.host, environment)
            _begin(task, context.host, gpu, start.unique_id, open_ends)
        except HostError as error:
            channel.send(_Part(error=str(error)[:500], no_link=isinstance(error, LinkError)))
            raise
        channel.send(_Part())
        channel.send(_part(_last_report(context.host, gpu, context.ending), gpu))
        channel.receive(_Over, ANSWER_MARGIN_S + _WORK_S)


def _own_gpu(task: AllReduceTask, host: Host, environment: Mapping[str, str]) -> int:
    """Return the index of this pod's GPU, after a check that the node has the interface. Raises HostError."""
    host.listen(task.interface).socket.close()
    uuid = own_gpus(host, environment, task.gpus).uuids[0]
    index = next((sample.index for sample in host.gpus() if sample.uuid == uuid), None)
    if index is None:
        raise HostError(f"NVML does not show this pod's GPU {printable(uuid, 80)}")
    return index


def _begin(task: AllReduceTask, host: Host, gpu: int, unique_id: str, open_ends: ExitStack) -> WorkReport:
    """Start this rank's process, which ends with `open_ends`. Raises HostError; LinkError for the network's faults."""
    order = AllReduceOverNodes(
        rank=task.rank,
        ranks=len(task.nodes),
        unique_id=unique_id,
        interface=task.interface,
        hca=task.hca,
        environment=task.environment,
        bytes=task.bytes,
    )
    open_ends.callback(host.end_work, gpu)
    return host.start_work(gpu, order)


def _last_report(host: Host, gpu: int, ending: Ending) -> WorkReport:
    """Return the process's last report, or the latest one when its time is up. Raises HostError."""
    deadline = time.monotonic() + _WORK_S
    while True:
        report = host.work_report(gpu)
        if report is None:
            raise HostError(f"the work on GPU {gpu} is gone")
        if report.error or report.finished or ending.event.is_set() or time.monotonic() > deadline:
            return report
        ending.event.wait(_LOOK_EVERY_S)


def _part(report: WorkReport, gpu: int) -> _Part:
    return _Part(
        gpu=gpu,
        error=report.error[:500],
        no_link=report.no_link,
        connected=report.latency_ms is not None,
        finished=report.finished,
        wrong=report.wrong_sums,
    )


def _send_over(channels: Sequence[Channel]) -> None:
    for channel in channels:
        channel.send(_Over())


def _note(task: AllReduceTask, own: WorkReport, parts: Sequence[_Part]) -> AllReduceNote:
    """Return the figure, and how each unfinished rank ended. Raises HostError if a link is not the cause."""
    by_node = dict(zip(task.nodes, parts, strict=False))
    for node, part in by_node.items():
        if part.error and not part.no_link:
            raise HostError(f"{node}: {printable(part.error, _SHOWN_CHARACTERS)}")
    if wrong := sum(part.wrong for part in parts):
        raise HostError(f"{wrong} sums of the all-reduce are not the sum of what the nodes sent")
    way = f"RDMA over {task.hca}" if task.hca else f"sockets over {task.interface}"
    gpus = ", ".join(f"GPU {part.gpu} of {node}" for node, part in by_node.items() if part.gpu is not None)
    said = f"{len(task.nodes)} nodes, NCCL from GPU to GPU, {way}" + (f", {gpus}" if gpus else "")
    if own.round_bytes and own.latency_ms is not None:
        said += f": {own.round_bytes >> 10} KiB, latency {own.latency_ms:.3g} ms"
    ends = [f"{node} {_end_of(part)}" for node, part in by_node.items() if not part.finished]
    return AllReduceNote(
        value=own.bus_gbs or 0.0,
        detail=said + (f"; cut off: {'; '.join(ends)}" if ends else ""),
        latency_ms=own.latency_ms,
        bytes=own.round_bytes or 0,
        ranks=len(task.nodes),
    )


def _end_of(part: _Part) -> str:
    """Return in words how an unfinished rank ended."""
    if part.error:
        return f"lost the network: {printable(part.error, _SHOWN_CHARACTERS)}"
    return f"was {'still summing' if part.connected else 'not connected'} when its time was up"
