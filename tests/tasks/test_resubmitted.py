"""Why a resubmitted job ran nowhere: a fault of the cluster's only where another node could have taken it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gameday.cluster.kubernetes import Candidate
from gameday.cluster.pods import PodSeen
from gameday.tasks.quarantine_workloads import _why_not_running

POOL = {"nvidia.com/gpu.present": "true"}
TARGETS = {"n0"}
FULL = "0/5 nodes are available: 1 node(s) had untolerated taint(s), 4 Insufficient nvidia.com/gpu."
TAINTED = "0/2 nodes are available: 2 node(s) had untolerated taint(s)."


def pod(unschedulable: str | None, waiting: str = "") -> PodSeen:
    node = None if unschedulable else "n1"
    return PodSeen("p", "u", "resubmitted", node, "Pending", "", False, False, unschedulable, None, "job", 1, waiting)


@pytest.mark.parametrize(
    ("seen", "others", "ok", "said"),
    [
        (pod(FULL), ["n1", "n2"], None, FULL),
        (pod(TAINTED), [], None, "no other node carries nvidia.com/gpu.present=true"),
        (pod(TAINTED), ["n1"], False, TAINTED),
        (pod(None, "ImagePullBackOff"), ["n1"], False, "Pending on n1: ImagePullBackOff"),
        (None, ["n1"], False, "no pod of it was seen"),
    ],
    ids=["full", "alone", "tainted", "no-image", "no-pod"],
)
def test_where_no_other_node_could_take_it_nothing_is_proved(
    seen: PodSeen | None, others: list[str], ok: bool | None, said: str
) -> None:
    pool = [Candidate(name=name, status="Ready") for name in (*TARGETS, *others)]
    run: Any = SimpleNamespace(
        pods=SimpleNamespace(present=lambda: [seen] if seen else []),
        kubernetes=SimpleNamespace(candidates=lambda labels: pool if labels == POOL else []),
    )
    judged, why = _why_not_running(run, "job", POOL, TARGETS)
    assert judged is ok
    assert said in why
