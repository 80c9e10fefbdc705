"""Nodes and episodes for tests of the pure core."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gameday.xid.catalogue import Remedy
from gameday_health.episodes.model import SeenFault
from gameday_health.episodes.node import NodeSeen

T0 = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
PCI = "0000:4e:00"
OTHER_PCI = "0000:8f:00"


def fault(code: int = 95, remedy: Remedy = Remedy.GPU_RESET, after_s: float = 0, device: str = PCI) -> SeenFault:
    return SeenFault(kind="xid", code=code, device=device, at=T0 + timedelta(seconds=after_s), remedy=remedy)


NODE = NodeSeen(
    name="n1",
    uid="u1",
    version="1",
    boot="b1",
    ready=True,
    cordoned=False,
    taints=((("effect", "NoSchedule"), ("key", "trainy.konduktor.ai/faulty"), ("value", "true")),),
    ours=True,
    foreign=(),
    faults=(fault(),),
    gpus=8,
    gpu_capacity=8,
    offered_gpus=8,
    state=None,
    repair=None,
)


def with_faults(*faults: SeenFault) -> NodeSeen:
    return replace(NODE, faults=faults)
