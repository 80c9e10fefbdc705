"""From a line in the log store to a tainted node, and back; through restarts of everything."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from gameday.xid.lines import Form, format_xid
from tests.health.conftest import KEY, TAINT, Cluster, eventually

PCI = "0000:4e:00"
LOST = format_xid(79, PCI)
ECC = format_xid(95, PCI)
RESET = f"gameday-agent: GPU reset executed: PCI:{PCI}, success: true"


def stamped(line: str, uptime_s: float = 12.5) -> str:
    return f"[{uptime_s:12.6f}] {line}"


def active(cluster: Cluster, code: str = "79", node: str = "n1") -> float | None:
    return cluster.metric("gpu_fault_active", node=node, code=code)


def await_taint(cluster: Cluster, node: str = "n1") -> None:
    eventually(lambda: TAINT in cluster.taints(node))


def await_handled(cluster: Cluster, node: str = "n2") -> None:
    """Everything pushed before this call has been handled: a harmless line behind it has."""
    before = cluster.metric("kernel_events_total", node=node, code="13") or 0
    cluster.push(stamped(format_xid(13, "0000:01:00"), time.monotonic()), node)
    eventually(lambda: (cluster.metric("kernel_events_total", node=node, code="13") or 0) > before)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)


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
        "kind": "xid", "code": 79, "pci": PCI, "remedy": "reboot", "policy": "catalogue", "boot": "boot-1",
    }  # fmt: skip
    event = eventually(lambda: cluster.events("n1").get("GPUXid79"))
    assert (event["type"], event["count"], event["involvedObject"]["kind"]) == ("Warning", 1, "Node")
    assert "GPU has fallen off the bus" in event["message"] and "reboot" in event["message"]
    assert cluster.metric("gpu_fault_active", node="n1", kind="xid", code="79", pci_bus_id=PCI, remedy="reboot") == 1
    assert cluster.metric("kernel_events_total", node="n1", kind="xid", code="79") == 1
    assert cluster.metric("decision_seconds_count") == 1
    assert cluster.metric("log_stream_connected") == 1
    eventually(lambda: cluster.metric("quarantined_nodes") == 1)


def test_workload_errors_and_repetitions_do_not(cluster: Cluster) -> None:
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


def test_the_konduktor_policy_taints_on_the_blogs_line(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster("--policy", "konduktor")
    cluster.add_node("n1")
    cluster.health.start()
    cluster.push(stamped("NVRM: Xid (0000:03:00): 14, Channel 00000001"))
    await_taint(cluster)
    assert eventually(lambda: cluster.reason("n1"))["policy"] == "konduktor"
    assert active(cluster, "14") == 1


@pytest.mark.parametrize("there", [{**TAINT, "value": "by-hand"}, {**TAINT, "effect": "NoExecute"}])
def test_a_key_that_is_there_is_left_alone_and_told(cluster: Cluster, there: dict[str, str]) -> None:
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


def test_removing_the_taint_clears_and_a_new_fault_begins_again(cluster: Cluster) -> None:
    cluster.push(stamped(format_xid(74, PCI)))  # contact-support: only a person ends it
    await_taint(cluster)
    cluster.boot("n1", "boot-2")
    await_handled(cluster)
    assert active(cluster, "74") == 1
    cluster.patch_node("n1", {"spec": {"taints": None}})
    eventually(lambda: active(cluster, "74") is None)
    eventually(lambda: cluster.reason("n1") is None)
    eventually(lambda: cluster.metric("quarantined_nodes") == 0)
    cluster.push(stamped(LOST, 99))
    await_taint(cluster)


@pytest.mark.parametrize("kill", [True, False])
def test_nothing_is_lost_when_the_log_store_restarts(cluster: Cluster, kill: bool) -> None:
    at_ns = time.time_ns()
    cluster.logs.stop(kill=kill)
    eventually(lambda: cluster.metric("log_stream_connected") == 0)
    cluster.logs.start()
    cluster.push(stamped(LOST), at_ns=at_ns)  # the shipper catches up
    await_taint(cluster)
    eventually(lambda: cluster.metric("log_stream_connected") == 1)
    assert cluster.metric("kernel_events_total", node="n1", code="79") == 1


@pytest.mark.parametrize("kill", [True, False])
def test_nothing_is_lost_when_the_api_server_restarts(cluster: Cluster, kill: bool) -> None:
    cluster.apiserver.stop(kill=kill)
    cluster.push(stamped(LOST))
    eventually(lambda: (cluster.metric("write_failures_total", what="node") or 0) >= 1)
    assert active(cluster) == 1
    cluster.apiserver.start()
    await_taint(cluster)
    cluster.boot("n1", "boot-2")  # and the watch is alive again
    eventually(lambda: active(cluster) is None)


def test_a_restarted_controller_knows_what_it_knew(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    cluster.health.stop(kill=True)
    cluster.push(stamped(format_xid(119, "0000:01:00")), "n2")
    cluster.health.start()
    assert eventually(lambda: active(cluster)) == 1
    await_taint(cluster, "n2")
    assert cluster.events("n1")["GPUXid79"]["count"] == 1

    cluster.patch_node("n1", {"spec": {"taints": None}})
    eventually(lambda: cluster.reason("n1") is None)
    cluster.health.stop(kill=True)
    cluster.health.start()
    cluster.push(stamped(LOST))  # `dmesg -w` of a new shipper pod ships the old line anew
    await_handled(cluster)
    assert cluster.taints("n1") == [] and active(cluster) is None
    assert cluster.health.stop() == 0


def test_what_happened_while_it_was_away_is_seen(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    cluster.push(stamped(format_xid(74, PCI)), "n2")
    await_taint(cluster, "n2")
    cluster.health.stop(kill=True)
    cluster.boot("n1", "boot-2")
    cluster.patch_node("n2", {"spec": {"taints": None}})
    cluster.health.start()
    eventually(lambda: (cluster.reason("n1") or {}).get("remedied"))
    eventually(lambda: cluster.reason("n2") is None)
    assert active(cluster) is None and active(cluster, "74", "n2") is None
    assert cluster.taints("n1") == [TAINT] and cluster.taints("n2") == []


def test_two_writers_lose_nothing(cluster: Cluster) -> None:
    for number in range(5):
        cluster.push(stamped(format_xid(79, f"0000:0{number}:00"), number))
        cluster.patch_node("n1", {"metadata": {"annotations": {f"writer-{number}": "x"}}})
    await_taint(cluster)
    eventually(lambda: len((cluster.reason("n1") or {"others": ()})["others"]) == 4)
    annotations = cluster.node("n1")["metadata"]["annotations"]
    assert {f"writer-{number}" for number in range(5)} <= annotations.keys()
    assert len(annotations["gameday.dev/faulty-reason"].encode()) <= 1024


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--kubeconfig", "/nowhere", "--loki-url", "http://127.0.0.1:1"], "no usable Kubernetes configuration"),
     (["--loki-url", "ftp://x"], "write a base URL"),
     (["--loki-url", "http://127.0.0.1:1", "--taint", "nonsense"], "write it like trainy")],
)  # fmt: skip
def test_bad_options_are_told_in_one_line(options: list[str], said: str) -> None:
    ran = run([sys.executable, "-m", "gameday.health", *options])
    assert ran.returncode == 64
    assert said in ran.stderr and "Traceback" not in ran.stderr and ran.stderr.count("\n") == 1


def test_a_selector_that_does_not_parse_ends_it(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    ran = run([*cluster.health.command, "--log-selector", "{"])
    assert ran.returncode == 64
    assert "parse error" in ran.stderr and KEY not in ran.stderr
