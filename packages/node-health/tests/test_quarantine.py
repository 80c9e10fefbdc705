"""The way of a line in the log store to a tainted node, and back: one controller, nodes of its own for each test."""

import json
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

ECC = format_xid(95, PCI)
RESET = f"gameday-agent: GPU reset executed: PCI:{PCI}, success: true"


@pytest.fixture(scope="module")
def running(servers: Servers) -> Iterator[Cluster]:
    with a_cluster(servers) as cluster:
        cluster.health.start()
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """Two nodes that no other test has touched, and no other quarantined."""
    eventually(lambda: running.metric("quarantined_nodes") == 0)
    running.add_node("n1")
    running.add_node("n2")
    yield running
    running.remove_nodes()


def test_a_lost_gpu_quarantines_its_node(cluster: Cluster) -> None:
    foreign = {"key": "other.example/x", "value": "1", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    cluster.patch_node("n1", {"spec": {"taints": [foreign]}, "metadata": {"annotations": {"mine": "kept"}}})
    cluster.push("[1.0] gameday: marker 0123abcd NVRM: Xid (PCI:0000:4e:00): 79, no")
    cluster.push(stamped(LOST))
    await_taint(cluster)

    assert cluster.taints("n1") == [foreign, TAINT]
    assert cluster.taints("n2") == []
    node = cluster.node("n1")["metadata"]
    assert node["annotations"]["mine"] == "kept"
    assert "gameday-health" in {entry["manager"] for entry in node["managedFields"]}
    reason = cluster.reason("n1")
    assert reason is not None
    assert {key: reason[key] for key in ("kind", "code", "pci", "remedy", "policy", "boot")} == {
        "kind": "xid", "code": 79, "pci": PCI, "remedy": "reboot", "policy": "default", "boot": "boot-1",
    }  # fmt: skip
    event = eventually(lambda: cluster.events("n1").get("GPUXid79"))
    assert (event["type"], event["count"], event["involvedObject"]["kind"]) == ("Warning", 1, "Node")
    assert "GPU has fallen off the bus" in event["message"] and "reboot" in event["message"]
    assert cluster.metric("gpu_fault_active", node="n1", kind="xid", code="79", pci_bus_id=PCI, remedy="reboot") == 1
    assert cluster.metric("kernel_events_total", node="n1", kind="xid", code="79") == 1
    assert cluster.metric("decision_seconds_count") == 1
    assert cluster.metric("log_stream_connected", by="tail") == 1
    eventually(lambda: cluster.metric("quarantined_nodes") == 1)


def test_workload_errors_and_repeated_lines_quarantine_nothing(cluster: Cluster) -> None:
    for uptime in (1, 2, 3):
        cluster.push(stamped(format_xid(13, PCI, Form.BARE), uptime))
    for at_ns in (None, None):  # a shipper that starts again ships the same stamped line with a new time
        cluster.push(stamped(format_xid(31, PCI), 9), at_ns=at_ns)
    cluster.push(stamped("NVRM: Xid (0000:03:00): 14, Channel 00000001"))
    await_handled(cluster)
    assert cluster.taints("n1") == [] and cluster.reason("n1") is None
    assert cluster.metric("kernel_events_total", node="n1", code="13") == 3
    assert cluster.metric("kernel_events_total", node="n1", code="31") == 1
    assert cluster.metric("ignored_lines_total", why="repeated") == 1
    assert active(cluster) is None
    events = eventually(lambda: cluster.events("n1") if "GPUXid14" in cluster.events("n1") else None)
    assert (events["GPUXid13"]["type"], events["GPUXid14"]["type"]) == ("Normal", "Warning")
    # Three lines, one write: at most one a minute. The rest is counted in the next.
    assert events["GPUXid13"]["count"] == 1


BLIND = "[999999999.000001] NVRM: Xid (PCI:0000:03:00): 13, pid=1, name=x, blind"


def test_nobody_speaks_for_a_node_from_another_namespace(cluster: Cluster) -> None:
    refused = cluster.metric("ignored_lines_total", why="impossible stamp")
    for line in (BLIND, stamped(LOST)):
        cluster.push(line, k8s_namespace_name="tenant-a")
    await_handled(cluster)
    assert cluster.taints("n1") == []
    assert cluster.metric("ignored_lines_total", why="impossible stamp") == refused


def test_a_line_from_the_future_is_counted_and_its_node_still_watched(cluster: Cluster) -> None:
    refused = cluster.metric("ignored_lines_total", why="impossible stamp") or 0
    cluster.push(BLIND)
    eventually(lambda: cluster.metric("ignored_lines_total", why="impossible stamp") == refused + 1)
    cluster.push(stamped(LOST))
    await_taint(cluster)


@pytest.mark.parametrize("there", [{**TAINT, "value": "by-hand"}, {**TAINT, "effect": "NoExecute"}])
def test_a_foreign_taint_of_our_key_is_left_alone_and_reported(cluster: Cluster, there: dict[str, str]) -> None:
    cluster.patch_node("n1", {"spec": {"taints": [there]}})
    cluster.push(stamped(LOST))
    event = eventually(lambda: cluster.events("n1").get("TaintConflict"))
    assert "left alone" in event["message"]
    assert cluster.taints("n1") == [there]
    assert active(cluster) == 1


def test_the_very_taint_is_not_added_twice(cluster: Cluster) -> None:
    cluster.patch_node("n1", {"spec": {"taints": [TAINT]}})
    cluster.push(stamped(LOST))
    eventually(lambda: cluster.reason("n1"))
    assert cluster.taints("n1") == [TAINT]
    assert "TaintConflict" not in cluster.events("n1")


def test_remedies_end_faults_and_the_taint_stays_for_qa(cluster: Cluster) -> None:
    cluster.push(stamped(ECC))
    cluster.push(stamped(LOST, 13))
    eventually(lambda: active(cluster, "95") == 1 and active(cluster, "79") == 1)
    cluster.push(stamped(RESET.replace("4e", "4f"), 14))
    cluster.push(stamped(RESET.replace("true", "false"), 15))
    await_handled(cluster)
    assert active(cluster, "95") == 1
    cluster.push(stamped(RESET, 16))
    eventually(lambda: active(cluster, "95") is None)
    assert active(cluster, "79") == 1
    cluster.boot("n1", "boot-2")
    eventually(lambda: active(cluster, "79") is None)
    assert TAINT in cluster.taints("n1")

    def all_remedied() -> bool:
        reason = cluster.reason("n1")
        assert reason is not None
        return all("remedied" in fault for fault in (reason, *reason["others"]))

    eventually(all_remedied)
    eventually(lambda: "GPUFaultEnded" in cluster.events("n1"))


def test_removing_the_taint_ends_the_quarantine_and_a_new_fault_begins_another(cluster: Cluster) -> None:
    before = cluster.annotations("n1")
    cluster.push(stamped(format_xid(74, PCI)))  # contact-support: only a person ends it
    await_taint(cluster)
    cluster.boot("n1", "boot-2")
    await_handled(cluster)
    assert active(cluster, "74") == 1
    cluster.patch_node("n1", {"spec": {"taints": None}})
    eventually(lambda: active(cluster, "74") is None)
    eventually(lambda: cluster.reason("n1") is None)
    assert cluster.annotations("n1") == before
    assert len(json.loads(cluster.checkpoint()[cluster.named("n1")])["lines"]) == 1
    eventually(lambda: cluster.metric("quarantined_nodes") == 0)
    cluster.push(stamped(LOST, 99))
    await_taint(cluster)


@pytest.mark.slow
def test_two_writers_lose_neither_taint(cluster: Cluster) -> None:
    for number in range(5):
        cluster.push(stamped(format_xid(79, f"0000:0{number}:00"), number))
        cluster.patch_node("n1", {"metadata": {"annotations": {f"writer-{number}": "x"}}})
    await_taint(cluster)
    eventually(lambda: len((cluster.reason("n1") or {}).get("others", ())) == 4)
    annotations = cluster.node("n1")["metadata"]["annotations"]
    assert {f"writer-{number}" for number in range(5)} <= annotations.keys()
    assert len(annotations["gameday.dev/faulty-reason"].encode()) <= 1024
