"""The worker's handling of lines: the brake, first sights of nodes, and the metrics that show silence."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gameday.cluster.loki import LogLine
from gameday.xid.lines import BEAT, format_xid
from gameday_health.detect import LineReader, NodeLine
from gameday_health.metrics import Metrics
from gameday_health.model import NodeView, Taint
from gameday_health.policy import Brake, Trust
from gameday_health.policy_files import load_policy
from gameday_health.worker import Options, Worker
from tests.health.conftest import KEY

OPTIONS = Options(load_policy().policy, Taint.parse(f"{KEY}=true:NoSchedule"), "{}", "node", "gameday")
DAY_S = 86_400.0
LOST = "NVRM: Xid (PCI:{}): 79, GPU has fallen off the bus."
RESET = "gameday-agent: GPU reset executed: PCI:{}, success: true"


class ManyNodes:
    """An API server that takes every write, and keeps taints and Events."""

    server = "memory"

    def __init__(self, *names: str) -> None:
        self.nodes: dict[str, dict[str, Any]] = {
            name: {
                "metadata": {"name": name, "resourceVersion": "1", "labels": {"nvidia.com/gpu.present": "true"}},
                "spec": {},
                "status": {"nodeInfo": {"bootID": "b1"}},
            }
            for name in names
        }
        self.events: list[str] = []

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, *_: object) -> dict[str, Any]:
        if path.endswith("/events") and body:
            self.events.append(body["message"])
        if "/configmaps" in path:
            return {"data": {}}
        node = self.nodes.get(path.rpartition("/")[2])
        if node is None:
            return {}
        if method == "PATCH" and body:
            node["spec"] |= body.get("spec") or {}
        return node

    @property
    def tainted(self) -> set[str]:
        return {name for name, node in self.nodes.items() if node["spec"].get("taints")}


def start(api: ManyNodes, metrics: Metrics | None = None, options: Options = OPTIONS) -> Worker:
    worker = Worker(api, options, metrics or Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    worker.load()
    for node in api.nodes.values():
        worker.handle_node(NodeView.of(node))
    worker.all_nodes_known()
    return worker


def read_line(worker: Worker, node: str, text: str, ns: int | None = None) -> None:
    line = LogLine(ns or time.time_ns(), (), text)
    worker.handle_line(LineReader(worker._policy.other_line).read(NodeLine(node, line)))
    worker.write_due()


def active_faults(metrics: Metrics) -> float:
    name = "gameday_health_gpu_fault_active"
    return sum(
        sample.value for metric in metrics.registry.collect() for sample in metric.samples if sample.name == name
    )


def beat(uptime_s: float) -> str:
    return f"[{uptime_s:.2f}] {BEAT}"


def lost(uptime_s: float) -> str:
    return f"[{uptime_s:12.6f}] {format_xid(79, '0000:4e:00')}"


def test_no_more_than_half_of_the_cluster_is_quarantined_within_minutes() -> None:
    api = ManyNodes(*(f"n{number}" for number in range(10)))
    metrics = Metrics(CollectorRegistry())
    worker = start(api, metrics)
    for name in api.nodes:
        read_line(worker, name, lost(DAY_S))
    read_line(worker, "n0", lost(DAY_S + 9).replace("4e", "5e"))  # one more fault of a node that is out
    assert api.tainted == {"n0", "n1", "n2", "n3", "n4"}
    assert metrics.registry.get_sample_value("gameday_health_withheld_quarantines_total") == 5
    assert sum("NOT quarantined" in message for message in api.events) == 5
    assert metrics.registry.get_sample_value(
        "gameday_health_gpu_fault_active",
        {"node": "n0", "kind": "xid", "code": "79", "pci_bus_id": "0000:5e:00", "remedy": "reboot"},
    )


def test_a_small_cluster_may_lose_four_nodes() -> None:
    api = ManyNodes("n1", "n2", "n3", "n4")
    worker = start(api)
    for name in api.nodes:
        read_line(worker, name, lost(DAY_S))
    assert len(api.tainted) == 4


def test_the_ring_buffer_of_a_node_never_seen_before_taints_nothing() -> None:
    api = ManyNodes("n1")
    worker = start(api)
    read_line(worker, "n1", beat(DAY_S))
    read_line(worker, "n1", lost(100))
    assert api.tainted == set()
    assert ["recorded only" in message for message in api.events] == [True]
    read_line(worker, "n1", lost(DAY_S + 1))
    assert api.tainted == {"n1"}


def talos(ago: timedelta) -> str:
    at = (datetime.now(UTC) - ago).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"10.0.0.1: kern:     err: [{at}]: {LOST.format('0000:4e:00')}"


def test_an_old_line_is_history_by_its_stamp_behind_any_host_name() -> None:
    for host in ("node-1", "ip-10-0-0-1.us-west-2.compute.internal", "n" * 253):
        api = ManyNodes("n1")
        worker = start(api)
        read_line(worker, "n1", beat(516_900))
        read_line(worker, "n1", f"Nov 27 21:00:01 {host} kernel: {lost(100)}")
        assert api.tainted == set()


def test_an_old_line_is_history_by_its_own_time_where_it_has_no_stamp() -> None:
    api = ManyNodes("n1")
    worker = start(api)
    read_line(worker, "n1", talos(timedelta(days=6)))
    assert api.tainted == set()
    assert ["recorded only" in message for message in api.events] == [True]
    read_line(worker, "n1", talos(timedelta(minutes=1)))
    assert api.tainted == {"n1"}


def test_a_line_with_a_time_of_its_own_that_is_shipped_again_is_a_repetition() -> None:
    # A shipper that starts again ships the whole log again, and the store dates each line by its arrival.
    day = "Nov 27 21:00:01 gpu-node-1.example.internal kernel: "
    for line in (talos(timedelta(seconds=30)), day + LOST.format("0000:4e:00")):
        api, metrics = ManyNodes("n1"), Metrics(CollectorRegistry())
        worker = start(api, metrics)
        read_line(worker, "n1", line)
        assert api.tainted == {"n1"}
        api.nodes["n1"]["spec"]["taints"] = []
        worker.handle_node(NodeView.of(api.nodes["n1"]))
        read_line(worker, "n1", line)
        assert api.tainted == set()
        read_line(worker, "n1", talos(timedelta(seconds=20)))
        assert api.tainted == set(), "it was written before the return, and came late"


def test_a_pattern_is_asked_of_lines_that_nobody_recognises_and_of_no_name_in_them(tmp_path: Path) -> None:
    text = "kind: HealthPolicy\nname: ours\nabout: A test's.\nrules:\n"
    for name, pattern in (("gsp", "heartbeat timed out"), ("pcie", "pcieport .{0,20}: AER: Uncorrected")):
        text += f"  - {{name: {name}, kernel_log: {{text: '{pattern}'}}, response: quarantine, remedy: reboot}}\n"
    (tmp_path / "ours.yaml").write_text(text, encoding="utf-8")
    options = replace(OPTIONS, policy=load_policy(str(tmp_path / "ours.yaml")).policy)
    api = ManyNodes("n1", "n2", "n3")
    metrics = Metrics(CollectorRegistry())
    worker = start(api, metrics, options)
    for forged in (
        "train[1]: segfault at 0 ip 0 sp 0 error 4 in heartbeat timed out[401000+1000]",
        "NVRM: x[1]: segfault at 0 ip 0 sp 0 error 4 in heartbeat timed out[401000+1000]",
        "NVRM: nvidia_open: timed out[12] was refused",
        "usb 1-1: Product: pcieport 0000:00:01.0: AER: Uncorrected",
    ):
        read_line(worker, "n3", f"[  100.000001] {forged}")
    read_line(worker, "n1", "[  101.000001] NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out")
    read_line(worker, "n2", "[  102.000001] pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received")
    assert api.tainted == {"n1", "n2"}
    assert active_faults(metrics) == 2


def test_the_driver_is_taken_at_its_word_without_an_xid() -> None:
    api = ManyNodes("n1", "n2", "n3", "n4")
    metrics = Metrics(CollectorRegistry())
    worker = start(api, metrics)
    fatal = "uvm encountered global fatal error 0x60, requiring os reboot to recover."
    read_line(worker, "n1", f"[  100.000001] NVRM: nvGpuOpsReportFatalError: {fatal}")
    read_line(worker, "n2", "[  100.000001] NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)")
    read_line(worker, "n3", "[  100.000001] nvidia-nvswitch: unrecoverable error in ISR")
    read_line(worker, "n4", "[  100.000001] NVRM: GPU is lost, skipping nvidia_ioctl")
    assert api.tainted == {"n1", "n3", "n4"}, "of a GPU that does not start the driver asks for nothing"
    count = metrics.registry.get_sample_value
    labels = {"node": "n2", "kind": "driver", "code": "adapter-failed"}
    assert count("gameday_health_kernel_events_total", labels) == 1


def test_every_line_of_a_node_that_joins_under_the_controllers_eyes_counts() -> None:
    api = ManyNodes("n1")
    worker = start(api)
    node = {"metadata": {"name": "n2"}, "spec": {}, "status": {"nodeInfo": {"bootID": "b1"}}}
    api.nodes["n2"] = node
    worker.handle_node(NodeView.of(node))
    read_line(worker, "n2", beat(DAY_S))
    read_line(worker, "n2", lost(100))
    assert api.tainted == {"n2"}


def test_a_line_that_is_read_before_the_bootid_of_its_boot_is_kept_for_it() -> None:
    api = ManyNodes("n1")
    metrics = Metrics(CollectorRegistry())
    worker = start(api, metrics)
    read_line(worker, "n1", f"[{DAY_S:12.6f}] {format_xid(13, '0000:4e:00')}")
    read_line(worker, "n1", lost(0.01), time.time_ns() + 10**9)
    assert api.tainted == set()
    assert metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "repeated"}) is None
    api.nodes["n1"]["status"]["nodeInfo"]["bootID"] = "b2"
    worker.handle_node(NodeView.of(api.nodes["n1"]))
    worker.write_due()
    assert api.tainted == {"n1"}


def test_a_line_of_every_gpu_node_is_awaited_once_one_shipper_beats() -> None:
    api = ManyNodes("n1", "n2")
    metrics = Metrics(CollectorRegistry())

    def last_line(node: str) -> float | None:
        return metrics.registry.get_sample_value("gameday_health_last_line_timestamp_seconds", {"node": node})

    worker = start(api, metrics)
    read_line(worker, "n1", "[1.0] gameday: marker 0123abcd")
    assert last_line("n1") is None, "of a shipper that does not beat nobody knows when it should speak"
    read_line(worker, "n1", beat(DAY_S), 1_600_000_000 * 10**9)
    assert last_line("n1") == 1_600_000_000
    assert (last_line("n2") or 0) > 1_600_000_000
    worker.handle_deleted_node("n2")
    assert last_line("n2") is None


def test_a_line_of_no_known_node_is_counted_even_if_it_is_only_a_beat() -> None:
    metrics = Metrics(CollectorRegistry())
    worker = start(ManyNodes("n1"), metrics)

    def unknown() -> float | None:
        return metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "unknown node"})

    assert unknown() == 0
    read_line(worker, "", beat(DAY_S))
    assert unknown() == 1


def test_lines_of_no_node_push_out_none_of_a_node_that_joins() -> None:
    api = ManyNodes("n1")
    worker = start(api)
    read_line(worker, "n2", lost(100))
    for number in range(3000):
        read_line(worker, "", lost(number))
        read_line(worker, f"forged-{number % 900}", lost(number))
    node = {"metadata": {"name": "n2"}, "spec": {}, "status": {"nodeInfo": {"bootID": "b1"}}}
    api.nodes["n2"] = node
    worker.handle_node(NodeView.of(node))
    worker.write_due()
    assert api.tainted == {"n2"}


def test_a_beat_from_the_future_is_counted_and_changes_nothing() -> None:
    api, metrics = ManyNodes("n1"), Metrics(CollectorRegistry())
    worker = start(api, metrics)
    read_line(worker, "n1", beat(DAY_S))
    read_line(worker, "n1", beat(999_999_999))
    read_line(worker, "n1", f"[999999999.000001] {format_xid(13, '0000:03:00')}")
    assert metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "impossible stamp"}) == 2
    read_line(worker, "n1", lost(DAY_S + 1))
    assert api.tainted == {"n1"}


def test_a_line_read_again_at_the_start_does_not_count_for_the_logs_lag() -> None:
    metrics = Metrics(CollectorRegistry())
    worker = start(ManyNodes("n1"), metrics)
    read_line(worker, "n1", beat(DAY_S), time.time_ns() - 900 * 10**9)
    assert metrics.registry.get_sample_value("gameday_health_log_lag_seconds") == 0
    read_line(worker, "n1", beat(DAY_S))
    assert 0 < (metrics.registry.get_sample_value("gameday_health_log_lag_seconds") or 0) < 60


def braked(api: ManyNodes, window_s: float) -> Worker:
    """Start a controller that may quarantine two nodes within the window."""
    brake = Brake(share=0.2, least=2, window=timedelta(seconds=window_s))
    worker = start(api, options=replace(OPTIONS, policy=OPTIONS.policy.model_copy(update={"brake": brake})))
    for name in ("n0", "n1", "n2"):
        read_line(worker, name, lost(DAY_S))
    return worker


def test_a_quarantine_counts_for_the_brake_until_the_window_is_over() -> None:
    api = ManyNodes(*(f"n{number}" for number in range(10)))
    worker = braked(api, 1.0)
    assert api.tainted == {"n0", "n1"}
    deadline, stamp = time.monotonic() + 30, DAY_S
    while "n3" not in api.tainted and time.monotonic() < deadline:
        stamp += 2
        read_line(worker, "n3", lost(stamp))
        time.sleep(0.02)
    assert "n3" in api.tainted


def test_a_node_that_is_back_does_not_count_for_the_brake() -> None:
    api = ManyNodes(*(f"n{number}" for number in range(10)))
    worker = braked(api, 3600)
    assert api.tainted == {"n0", "n1"}
    api.nodes["n0"]["spec"]["taints"] = []
    worker.handle_node(NodeView.of(api.nodes["n0"]))
    for name in ("n3", "n4"):
        read_line(worker, name, lost(DAY_S))
    assert api.tainted == {"n1", "n3"}


def test_a_program_with_a_forged_name_neither_taints_its_node_nor_ends_a_fault() -> None:
    # As x86 kernels print them; the programs ran without any privilege.
    segfault = "segfault at 0 ip 0000555be799a132 sp 00007fff06268690 error 6 in"
    xid, note = (
        f"NVRM: Xid (PCI:[9220]: {segfault} {LOST.format('0000:03:00')}[1132,555be799a000+1000] likely on CPU 1",
        f"gameday-agent: [9223]: {segfault} {RESET.format('0000:4e:00')}[1132,555be799a000+1000] likely on CPU 0",
    )
    api, metrics = ManyNodes("n1", "n2"), Metrics(CollectorRegistry())
    worker = start(api, metrics)
    read_line(worker, "n1", f"[ 7258.296356] {xid}")
    assert api.tainted == set()
    read_line(worker, "n2", f"[ 7258.300000] {format_xid(95, '0000:4e:00')}")
    read_line(worker, "n2", f"[ 7258.314756] {note}")
    assert api.tainted == {"n2"}
    assert active_faults(metrics) == 1
    read_line(worker, "n2", f"[ 7259.000000] {RESET.format('0000:4e:00')}")
    assert active_faults(metrics) == 0


def test_a_policy_that_trusts_the_kernel_acts_on_lines_that_show_it_and_on_roots_notes() -> None:
    strict = replace(OPTIONS, policy=OPTIONS.policy.model_copy(update={"trust": Trust.KERNEL}))
    api, metrics = ManyNodes("n1", "n2", "n3"), Metrics(CollectorRegistry())
    worker = start(api, metrics, strict)
    uncontained = "NVRM: Xid (PCI:0000:4e:00): 95, Uncontained: FBHUB. RST: Yes, D-RST: No"
    read_line(worker, "n1", f"user  :err   : [  100.000001] kernel: {uncontained}")
    read_line(worker, "n2", f"[  100.000001] {uncontained}")
    assert api.tainted == set()
    read_line(worker, "n3", f"kern  :err   : [  100.000001] {uncontained}")
    assert api.tainted == {"n3"}
    read_line(worker, "n3", f"Nov 27 21:00:01 n3 {RESET.format('0000:4e:00')}")
    assert active_faults(metrics) == 1
    read_line(worker, "n3", f"user  :info  : [  101.000001] {RESET.format('0000:4e:00')}")
    assert active_faults(metrics) == 0
    assert metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "not trusted"}) == 3
