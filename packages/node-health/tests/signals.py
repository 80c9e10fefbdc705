"""A policy with a rule for every kind of signal, and signals that it answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from gameday_health.model import digest
from gameday_health.policy import Policy
from gameday_health.policy_files import load_policy
from gameday_health.signal import Signal, SignalKind

TEXT = """\
kind: HealthPolicy
name: signals
about: A rule for every kind of signal.
rules:
  - name: an-alert
    alert: {names: [GPUHot]}
    response: quarantine
    remedy: gpu-reset
  - name: a-condition
    condition: {type: GpuUnhealthy, reasons: [DoubleBit]}
    response: quarantine
    remedy: reboot
  - name: an-event
    event: {reasons: [GpuFellOff], type: Warning}
    response: quarantine
    remedy: reboot
  - name: a-metric
    metric: {query: broken > 0}
    response: quarantine
    remedy: gpu-reset
  - name: a-pods-line
    pod_log: {namespaces: [training], pattern: "NCCL WARN|CUDA error"}
    response: quarantine
  - name: twice
    alert: {names: [GPUWarm]}
    response: watch
    watch: {times: 2, within: 1h, apart: 1m}
  - name: lines
    kernel_log: {catalogue: [quarantine]}
    response: quarantine
"""
NAMES = {
    SignalKind.ALERT: "GPUHot",
    SignalKind.CONDITION: "GpuUnhealthy",
    SignalKind.EVENT: "GpuFellOff",
    SignalKind.METRIC: "a-metric",
    SignalKind.POD_LOG: "",
}
LABELS = {
    SignalKind.CONDITION: {"status": "True", "reason": "DoubleBit"},
    SignalKind.EVENT: {"type": "Warning", "component": "somebody"},
    SignalKind.POD_LOG: {"namespace": "training"},
}
PCI = "0000:4e:00"


def written(folder: Path) -> Path:
    """Write the policy into a folder; return its file."""
    file = folder / "signals.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return file


def policy(folder: Path) -> Policy:
    return load_policy(str(written(folder))).policy


def signal(kind: SignalKind, age_s: float = 0.0, name: str | None = None, node: str = "n1") -> Signal:
    """Return a signal that happened `age_s` seconds ago."""
    now = datetime.now(UTC)
    at = now - timedelta(seconds=age_s)
    gpu = None if kind in (SignalKind.EVENT, SignalKind.CONDITION, SignalKind.POD_LOG) else PCI
    text = "NCCL WARN Cuda failure" if kind is SignalKind.POD_LOG else "something is broken"
    name = NAMES[kind] if name is None else name
    return Signal(node, kind, name, at, now, text, gpu, LABELS.get(kind, {}), digest(f"{kind} {name} {at}"))
