"""`gameday health explain`: how the node-health controller answers a line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.text import printable

if TYPE_CHECKING:
    from gameday.xid.lines import KernelEvent
    from gameday_health.policy import PolicyDecision
    from gameday_health.policy_files import LoadedPolicy
    from gameday_health.signal import Signal

_LONGEST_LINE_BYTES = 64 * 1024
"""Longest line that is read from stdin; the controller reads 2,048 characters of it."""


def explain(
    line: Annotated[str, typer.Argument(help="A line of a kernel log or of a pod's log; - reads lines from stdin.")],
    policy: Annotated[
        str, typer.Option("--policy", help="default, konduktor, conservative, or a policy file.")
    ] = "default",
) -> None:
    """Say what the controller would do about a line, by which rule, and why."""
    from gameday.xid.lines import LogReader
    from gameday_health.policy_files import load_policy

    loaded = load_policy(policy)
    reader = LogReader()
    lines = _from_stdin() if line == "-" else iter([line.strip()])
    for index, text in enumerate(lines):
        if index:
            typer.echo()
        event = reader.recognise(text) or loaded.policy.other_line(text)
        for name, value in _explanation(text, event, loaded):
            typer.echo(f"{name:<10}{printable(value)}")


def _from_stdin() -> Iterator[str]:
    while piece := sys.stdin.buffer.readline(_LONGEST_LINE_BYTES):
        text = piece.decode("utf-8", "replace").rstrip()
        if text:
            yield text


def _explanation(text: str, event: KernelEvent | None, loaded: LoadedPolicy) -> Iterator[tuple[str, str]]:
    from gameday_health.policy_files import kernel_signal

    yield "line", text
    if event is None:
        yield from _of_no_gpu_line(text, loaded)
        return
    yield from _facts(event)
    if not loaded.policy.trusts(event):
        yield "response", f"ignore: policy {loaded.policy.name} has trust: {loaded.policy.trust}"
        return
    signal = kernel_signal(event)
    yield from _answer(loaded.policy.decide(signal), signal, loaded)


def _of_no_gpu_line(text: str, loaded: LoadedPolicy) -> Iterator[tuple[str, str]]:
    from gameday_health.policy_files import pod_log_signal
    from gameday_health.signal import SignalKind

    yield "form", _form_of_no_gpu_line(text)
    for rule in loaded.policy.rules_of(SignalKind.POD_LOG):
        if rule.pod_log is None:
            continue
        signal = pod_log_signal(text, rule.pod_log.namespaces[0])
        if rule.pod_log.matches(signal):
            yield "pod log", f"in the log of a pod in namespace {', '.join(rule.pod_log.namespaces)}:"
            yield from _answer(loaded.policy.decide(signal), signal, loaded)
            return
    yield "rule", f"none of policy {loaded.policy.name} is about such a line"
    yield "response", "ignore: nothing is recorded"


def _form_of_no_gpu_line(text: str) -> str:
    from gameday.xid.messages import is_of_the_driver
    from gameday.xid.record import read_record

    if is_of_the_driver(read_record(text).message):
        return "a message of the NVIDIA driver without a code, and none of those known by name"
    heads = "NVRM:, nvidia-nvswitchN: or nvidia-peermem"
    return f"no line of the NVIDIA driver, of a switch or of nvidia-peermem: their messages begin with {heads}"


def _facts(event: KernelEvent) -> Iterator[tuple[str, str]]:
    from gameday.xid.catalogue import sxids, xids
    from gameday.xid.lines import Kind
    from gameday.xid.messages import MESSAGE_BY_NAME
    from gameday_health.policy import nvidia_actions

    yield "form", _form(event)
    yield "writer", _writer(event)
    if event.code is not None:
        known = (sxids() if event.kind is Kind.SXID else xids()).get(event.code)
        yield "code", f"{event.code}: {known.name if known else 'in no catalogue'}"
    elif event.kind in (Kind.XID, Kind.SXID):
        yield "code", "not readable"
    if message := MESSAGE_BY_NAME.get(event.name):
        yield "message", f"{message.name}: {message.about}"
    if event.kind in (Kind.XID, Kind.GPU_LOST):
        actions = sorted(str(action) or "none stated" for action in nvidia_actions(event))
        yield "NVIDIA", ", ".join(actions) or "no action: the code is unused or in no catalogue"
    if event.severity:
        yield "severity", f"{event.severity}, by the line"
    if event.recovery:
        yield "states", event.recovery
    if event.pci:
        yield ("switch" if event.kind is Kind.SXID else "GPU"), event.pci


def _form(event: KernelEvent) -> str:
    from gameday.xid.lines import Kind

    kinds = {
        Kind.XID: "an Xid of the driver",
        Kind.SXID: "an SXid of an NVSwitch",
        Kind.GPU_LOST: "a GPU that has fallen off the bus, in a line without an Xid",
        Kind.PEERMEM: "an invalid context that nvidia-peermem found",
        Kind.DRIVER: "a message of the driver without a code",
        Kind.OTHER: "a line that is not recognised: a rule's pattern decides",
        Kind.GPU_RESET: "our agent's note of a GPU reset: it ends faults, and is never one",
    }
    details = [
        *([f"MIG: GPU instance {event.gpu_instance}"] if event.gpu_instance is not None else []),
        *(["details of the line before"] if event.detail_only else []),
    ]
    return ", ".join([kinds[event.kind], *details])


def _writer(event: KernelEvent) -> str:
    from gameday.xid.record import Writer

    return {
        Writer.KERNEL: "the kernel: nobody else can write in its facility",
        Writer.ROOT: "root on the node, through /dev/kmsg: a game-day's fault, or our agent's note",
        Writer.RING_BUFFER: "the kernel, or root through /dev/kmsg: this form does not show the facility; where the "
        "reader uses syslog(2), as dmesg -S and BusyBox do, also a process with a newline in its name",
        Writer.ANYBODY: "anybody on the host: this form shows nothing of the writer, or not that it was the kernel",
    }[event.writer]


def _answer(decision: PolicyDecision, signal: Signal, loaded: LoadedPolicy) -> Iterator[tuple[str, str]]:
    from gameday.documents.fields import format_duration
    from gameday.xid.decide import Response

    if decision.rule is None:
        yield "rule", f"none of policy {loaded.policy.name} is about this line"
        yield "response", "ignore: nothing is recorded"
        return
    yield "rule", f"{decision.rule.name} ({loaded.place(decision.rule)})"
    what = {
        Response.QUARANTINE: "quarantine: the node is tainted",
        Response.WORKLOAD: "workload: recorded as the application's own error, node kept",
        Response.EVENT: "event: recorded only, node kept",
        Response.IGNORE: "ignore: nothing is recorded",
    }
    if watch := decision.rule.watch:
        times = f"{watch.times} times within {format_duration(watch.within)}"
        yield "response", f"watch: recorded; the node is tainted when the same device shows it {times}"
    else:
        yield "response", what[decision.response]
    if decision.response in (Response.QUARANTINE, Response.WATCH):
        is_none = decision.remedy.value == "none"
        yield "remedy", "none known: removing the taint by hand ends it" if is_none else str(decision.remedy)
    yield "why", decision.reason
    if decision.rule.source:
        yield "source", decision.rule.source
