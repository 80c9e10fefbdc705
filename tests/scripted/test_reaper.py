"""The reaper where a run holds the cluster's lease: it watches for the lease's whole duration whether the run lives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.lease import CLUSTER_LEASE, LEASE_DURATION, Leases, node_lease
from gameday.ledger.ledger import Ledger
from gameday.reaper.reap import reap
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script

RUN, FLOW_RUN, NODE = "some-run", "flow-1", "gpu-node-1"


@pytest.fixture
def cluster() -> ScriptedCluster:
    return ScriptedCluster(Script())


@pytest.fixture
def leases(cluster: ScriptedCluster) -> Iterator[Leases]:
    """The leases of a run that has announced a change, and renews nothing yet."""
    kubernetes = cluster.kubernetes()
    leases = Leases(kubernetes, RUN, lambda why: None)
    leases.acquire(CLUSTER_LEASE)
    leases.acquire(node_lease(NODE), timedelta(minutes=20))
    now = cluster.clock.now()
    header = Header(run_id=RUN, plan="p", started=now, operator="ada", host="here", flow_run=FLOW_RUN)
    undo = DeletePod(pod=f"gd-{RUN}-canary")
    Ledger(kubernetes, header).intend(id="canary", act="create a pod", node=NODE, undo=undo, expires=now)
    yield leases
    leases.release()
    kubernetes.close()


@pytest.mark.parametrize("flow_run", [None, FLOW_RUN])
def test_a_run_that_renews_its_lease_is_left_alone(
    cluster: ScriptedCluster, leases: Leases, flow_run: str | None
) -> None:
    leases.keep_renewing()
    before = cluster.left()
    reaper = cluster.kubernetes("gameday-reaper")
    result = reap(reaper, flow_run=flow_run)
    reaper.close()
    assert (result.reaped, [held.holder for held in result.alive]) == ((), [RUN])
    assert cluster.left() == before


def test_a_run_that_renews_nothing_is_dead_once_its_lease_was_watched(cluster: ScriptedCluster, leases: Leases) -> None:
    began = cluster.clock.monotonic()
    reaper = cluster.kubernetes("gameday-reaper")
    result = reap(reaper)
    reaper.close()
    assert [one.run_id for one in result.reaped] == [RUN]
    assert cluster.clock.monotonic() - began == LEASE_DURATION.total_seconds()
    assert cluster.left() == []
