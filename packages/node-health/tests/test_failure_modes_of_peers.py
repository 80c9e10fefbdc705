"""The six ways in which other detectors fail (docs/sources.md says which does what), each played against ours.

Lost window: a line that came while nobody looked is lost. Replay re-taint: a log that is shipped again taints a
repaired node. Any-Xid taint: an application's error takes a node out. Missed MIG form and missed SXid without link: a
regular expression that is too narrow. Blocked return: a node cannot be given back, or not for long.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from gameday.xid.lines import Form, format_xid
from tests.health.conftest import (
    LOST,
    PCI,
    TAINT,
    Cluster,
    Servers,
    a_cluster,
    active,
    await_handled,
    await_taint,
    eventually,
    stamped,
)

pytestmark = pytest.mark.slow  # each starts a controller and servers of its own


@pytest.fixture
def cluster(servers: Servers) -> Iterator[Cluster]:
    with a_cluster(servers) as made:
        made.add_node("n1")
        made.add_node("n2")
        made.health.start()
        yield made


def return_node(cluster: Cluster) -> None:
    """Take the taint off, as a repairer does, and wait until the controller has ended the quarantine."""
    cluster.patch_node("n1", {"spec": {"taints": []}})
    eventually(lambda: cluster.reason("n1") is None)


def test_lost_window_a_line_written_while_the_controller_was_dead_taints_when_it_is_back(cluster: Cluster) -> None:
    await_handled(cluster)
    cluster.health.stop(kill=True)
    cluster.push(stamped(LOST), at_ns=time.time_ns() - 30 * 10**9)
    cluster.health.start()
    await_taint(cluster)


def test_lost_window_a_line_that_reaches_the_store_minutes_late_is_not_lost(cluster: Cluster) -> None:
    await_handled(cluster)
    cluster.health.stop()
    cluster.health.start()
    cluster.push(stamped(LOST), at_ns=time.time_ns() - 300 * 10**9)
    eventually(lambda: TAINT in cluster.taints("n1"), 45)  # the follower reads the range again each 30 s


def test_lost_window_an_outage_of_the_store_loses_no_line_that_it_keeps(cluster: Cluster) -> None:
    await_handled(cluster)
    cluster.logs.stop(kill=True)
    eventually(lambda: cluster.metric("log_stream_connected", by="tail") == 0)
    cluster.logs.start()
    cluster.push(stamped(LOST), at_ns=time.time_ns() - 20 * 10**9)
    await_taint(cluster)


def test_replay_re_taint_a_log_shipped_again_after_the_return_taints_nothing(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    return_node(cluster)
    cluster.push(stamped(LOST))  # a new shipper pod ships the ring buffer anew, with new times in the store
    await_handled(cluster)
    assert cluster.taints("n1") == []
    cluster.health.stop(kill=True)
    cluster.health.start()
    cluster.push(stamped(LOST))
    await_handled(cluster)
    assert cluster.taints("n1") == []


@pytest.mark.parametrize("code", [13, 14, 31, 43, 45, 63, 94])
def test_any_xid_taint_an_application_or_harmless_error_keeps_its_node(cluster: Cluster, code: int) -> None:
    cluster.push(stamped(format_xid(code, PCI), 20.0))
    eventually(lambda: cluster.metric("kernel_events_total", node="n1", code=str(code)))
    await_handled(cluster)
    assert cluster.taints("n1") == []


def test_missed_mig_form_an_xid_of_a_mig_instance_taints(cluster: Cluster) -> None:
    cluster.push(stamped(format_xid(95, PCI, Form.MIG)))
    await_taint(cluster)
    assert active(cluster, "95") == 1


@pytest.mark.parametrize(
    "line",
    ["nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003, Fatal, Host_unhandled_interrupt",
     "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 26006, Fatal, SOE halt"],
)  # fmt: skip
def test_missed_sxid_without_link_a_fatal_one_taints(cluster: Cluster, line: str) -> None:
    cluster.push(stamped(line))
    await_taint(cluster)


def test_blocked_return_a_returned_node_stays_in_service_and_carries_nothing_of_ours(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    return_node(cluster)
    await_handled(cluster)
    assert cluster.taints("n1") == []
    assert "gameday.dev/faulty-reason" not in cluster.annotations("n1")
    assert active(cluster) is None


def test_blocked_return_the_next_fault_of_a_returned_node_taints_again(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    return_node(cluster)
    cluster.push(stamped(LOST, 90.0))
    await_taint(cluster)


def test_blocked_return_the_taint_of_somebody_else_is_not_ours_to_touch(cluster: Cluster) -> None:
    foreign = {"key": "other.example/hold", "value": "1", "effect": "NoSchedule"}
    cluster.patch_node("n1", {"spec": {"taints": [foreign]}})
    cluster.push(stamped(LOST))
    eventually(lambda: cluster.taints("n1") == [foreign, TAINT])
    cluster.patch_node("n1", {"spec": {"taints": [foreign]}})
    eventually(lambda: cluster.reason("n1") is None)
    assert cluster.taints("n1") == [foreign]
