"""A crash between any two writes loses no quarantine and begins none again on a node that was returned."""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gameday.cluster.loki import LogLine
from gameday.errors import KubernetesError
from gameday.xid.lines import format_xid, recognise
from gameday_health.checkpoint import LATE_NS, LONGEST_LOOK_BACK_NS, MOST_BYTES, Checkpoint
from gameday_health.detect import Detection
from gameday_health.metrics import Metrics
from gameday_health.model import REASON, LogProgress, NodeView, Taint, digest, read_reason
from gameday_health.policy_files import load_policy
from gameday_health.signal import SignalKind
from gameday_health.worker import Options, Worker
from tests.health.conftest import KEY, TAINT

OPTIONS = Options(load_policy().policy, Taint.parse(f"{KEY}=true:NoSchedule"), "{}", "node", "gameday")
LOST = f"[   12.500000] {format_xid(79, '0000:4e:00')}"


class Crash(BaseException):
    """A crash that no `except Exception` catches, as a kill."""


class DictApi:
    """A node and a ConfigMap in memory, whose API crashes or refuses before a chosen write."""

    server = "memory"

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": {"mine": "kept"}},
            "spec": {},
            "status": {"nodeInfo": {"bootID": "b1"}},
        }
        self.data: dict[str, str] | None = None
        self.data_version = 0
        self.writes_left: int | None = None
        self.refuses_configmap = 0

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, *_: object) -> dict[str, Any]:
        body = copy.deepcopy(body or {})
        if path.endswith("/events"):
            return {}
        if method != "GET":
            if self.writes_left == 0:
                raise Crash
            self.writes_left = None if self.writes_left is None else self.writes_left - 1
        if path == "/api/v1/nodes/n1":
            return self._of_node(body) if method == "PATCH" else copy.deepcopy(self.node)
        assert path.startswith("/api/v1/namespaces/gameday/configmaps")
        return self._of_configmap(method, body)

    def _of_node(self, patch: dict[str, Any]) -> dict[str, Any]:
        if patch["metadata"].pop("resourceVersion") != self.node["metadata"]["resourceVersion"]:
            raise KubernetesError("memory", "Conflict", status=409)
        merge(self.node, patch)
        self._count_up()
        return copy.deepcopy(self.node)

    def _of_configmap(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.refuses_configmap:
            raise KubernetesError("memory", "refused", status=self.refuses_configmap)
        if method == "POST":
            assert self.data is None
            self.data = {}
        elif self.data is None:
            raise KubernetesError("memory", "Not Found", status=404)
        version = str(self.data_version)
        if method == "PATCH" and body.get("metadata", {}).get("resourceVersion", version) != version:
            raise KubernetesError("memory", "Conflict", status=409)
        self.data_version += method != "GET"
        merge(self.data, body.get("data") or {})
        return {"metadata": {"resourceVersion": str(self.data_version)}, "data": dict(self.data)}

    def untaint(self) -> None:
        self.node["spec"]["taints"] = []
        self._count_up()

    def _count_up(self) -> None:
        self.node["metadata"]["resourceVersion"] = str(int(self.node["metadata"]["resourceVersion"]) + 1)

    def is_tainted(self) -> bool:
        taints = self.node["spec"].get("taints") or []
        assert taints in ([], [TAINT])
        return bool(taints)

    def progress(self) -> LogProgress:
        return LogProgress.model_validate_json((self.data or {}).get("n1", "{}"))


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch (RFC 7396)."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def detection(ns: int, text: str = LOST) -> Detection:
    return Detection("n1", LogLine(ns, (), text), recognise(text))


def start(api: DictApi, *log: Detection, metrics: Metrics | None = None) -> Worker:
    """Start a controller, which reads the log store's lines from the cursor on again."""
    worker = Worker(api, OPTIONS, metrics or Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    since = worker.load()
    worker.handle_node(NodeView.of(api.node))
    worker.all_nodes_known()
    worker.write_due()
    for known in log:
        if known.line.ns >= since:
            worker.handle_line(known)
            worker.write_due()
    return worker


def see_untainted(worker: Worker, api: DictApi) -> None:
    api.untaint()
    worker.handle_node(NodeView.of(api.node))
    worker.write_due()


def at_every_crash(
    run: Callable[[DictApi], object], prepare: Callable[[DictApi], object] = lambda _: None
) -> list[DictApi]:
    """Return the states that a crash before each of the writes of `run` leaves behind."""
    left: list[DictApi] = []
    while True:
        api = DictApi()
        prepare(api)
        api.writes_left = len(left)
        try:
            run(api)
        except Crash:
            api.writes_left = None
            left.append(api)
        else:
            return left


def replays_change_nothing(api: DictApi, worker: Worker) -> None:
    worker.handle_line(detection(time.time_ns()))  # a new shipper pod ships the old line anew
    worker.write_due()
    assert not api.is_tainted()
    assert api.node["metadata"]["annotations"] == {"mine": "kept"}
    begun_again = start(api, detection(time.time_ns()))
    begun_again.write_due()
    assert not api.is_tainted()
    assert api.node["metadata"]["annotations"] == {"mine": "kept"}


def test_a_crash_in_a_quarantine_loses_nothing() -> None:
    fault = detection(time.time_ns())
    left = at_every_crash(lambda api: start(api, fault))
    assert [api.is_tainted() for api in left] == [False, True, True]  # node, ConfigMap: PATCH, then POST
    for api in left:
        worker = start(api, fault)
        assert api.is_tainted()
        reason = read_reason(api.node["metadata"]["annotations"][REASON])
        assert reason is not None and [known.code for known in reason.faults()] == [79]
        assert api.progress() == reason.seen and len(reason.seen.lines) == 1
        see_untainted(worker, api)
        replays_change_nothing(api, worker)


def test_a_node_returned_after_a_crash_stays_returned() -> None:
    fault = detection(time.time_ns())
    for api in at_every_crash(lambda api: start(api, fault))[1:]:
        assert api.is_tainted() and api.progress() == LogProgress()  # only the node knows
        api.untaint()
        worker = start(api, fault)
        assert not api.is_tainted()
        assert len(api.progress().lines) == 1
        replays_change_nothing(api, worker)


def test_a_crash_at_the_end_of_a_quarantine_begins_none() -> None:
    fault = detection(time.time_ns())
    left = at_every_crash(lambda api: see_untainted(start(api), api), lambda api: start(api, fault))
    assert [REASON in api.node["metadata"]["annotations"] for api in left] == [True, True]
    assert [api.progress().until_ns > fault.line.ns for api in left] == [False, True]
    for api in left:
        worker = start(api, fault)
        replays_change_nothing(api, worker)
        worker.handle_line(detection(time.time_ns(), LOST.replace("12.5", "99.5")))
        worker.write_due()
        assert api.is_tainted()


def xid_119(uptime_s: float) -> str:
    return f"[{uptime_s:12.6f}] {format_xid(119, '0000:4e:00')}"


def test_no_line_of_a_storm_taints_the_repaired_node_when_controller_and_shipper_start_again() -> None:
    api = DictApi()
    storm = [detection(time.time_ns() + number, xid_119(100 + 7 * number)) for number in range(5)]
    worker = start(api)
    for line in storm:
        worker.handle_line(line)
        worker.write_due()
    assert api.is_tainted()
    see_untainted(worker, api)
    worker.save(immediately=True)
    again = start(api)
    for number, line in enumerate(storm):
        again.handle_line(detection(time.time_ns() + number, line.line.text))
        again.write_due()
    assert not api.is_tainted()
    again.handle_line(detection(time.time_ns(), xid_119(135)))
    again.write_due()
    assert api.is_tainted()


def test_lines_of_a_slow_node_are_read_after_a_start() -> None:
    api = DictApi()
    worker = start(api)
    newest = time.time_ns()
    worker.handle_line(Detection("n2", LogLine(newest, (), "[1.0] x"), None))  # a fast node's, which moves the cursor
    worker.save(immediately=True)
    start(api, detection(newest - 300 * 10**9))
    assert api.is_tainted()


def test_a_line_that_a_start_reads_again_is_not_counted_again() -> None:
    api = DictApi()
    line = detection(time.time_ns(), f"[   20.000000] {format_xid(13, '0000:4e:00')}")
    start(api, line).save(immediately=True)
    metrics = Metrics(CollectorRegistry())
    start(api, line, metrics=metrics)
    assert metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "handled before"}) == 1


def test_a_reason_stays_until_the_checkpoint_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday_health.worker.RETRY_S", (0.0, 0.0))
    api = DictApi()
    api.refuses_configmap = 403
    worker = start(api, detection(time.time_ns()))
    assert api.is_tainted()
    see_untainted(worker, api)
    assert REASON in api.node["metadata"]["annotations"]
    api.refuses_configmap = 0
    worker.write_due()
    replays_change_nothing(api, worker)


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_an_empty_one() -> None:
    api = DictApi()
    api.refuses_configmap = 503
    with pytest.raises(KubernetesError):
        Checkpoint(api, "gameday").load()  # type: ignore[arg-type]


def progress_at(ns: int, boot: str = "b1", lines: int = 16) -> LogProgress:
    progress = LogProgress()
    for number in range(lines):
        progress = progress.advanced(boot, ns, 12.5).with_line(digest(f"{ns} {number}"))
    return progress


def test_the_checkpoint_is_bounded_and_forgets_the_oldest() -> None:
    api = DictApi()
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    now = checkpoint.load()
    for number in range(5000):
        checkpoint.record(f"node-{number}", progress_at(now + number))
        if number % 100 == 0:
            checkpoint.advance(SignalKind.KERNEL_LOG, now + number)
            assert checkpoint.save(with_cursors=True, immediately=True)
    checkpoint.advance(SignalKind.KERNEL_LOG, now + 5000)
    assert checkpoint.save(with_cursors=True, immediately=True)
    data = api.data or {}
    assert MOST_BYTES * 0.99 < sum(len(key) + len(value) for key, value in data.items()) <= MOST_BYTES
    kept = sorted(int(node.removeprefix("node-")) for node in data if node.startswith("node-"))
    assert kept == list(range(5000 - len(kept), 5000)) and len(kept) > 1000
    again = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    assert again.load() == now + 5000 - LATE_NS
    assert again.progress("node-4999") == progress_at(now + 4999)
    api.writes_left = 0
    assert again.save(with_cursors=True, immediately=True)  # what was just read needs no writing


def test_the_checkpoint_forgets_nodes_that_are_gone_or_booted_long_ago() -> None:
    api = DictApi()
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    checkpoint.load()
    long_ago = time.time_ns() - LONGEST_LOOK_BACK_NS - 1
    for name, ns in {"gone": time.time_ns(), "kept": long_ago, "old": long_ago, "new": time.time_ns()}.items():
        checkpoint.record(name, progress_at(ns))
    checkpoint.save(with_cursors=True, immediately=True)
    checkpoint.keep_only({"kept", "old", "new"})
    checkpoint.drop_outdated("kept", "b1")
    checkpoint.drop_outdated("old", "b2")
    checkpoint.drop_outdated("new", "b2")  # its old boot's lines can still be read again
    checkpoint.save(with_cursors=True, immediately=True)
    assert set(api.data or {}) - {"handled_until_ns"} == {"kept", "new"}


def test_a_checkpoint_that_somebody_garbled_does_no_harm() -> None:
    api = DictApi()
    api.data = {"handled_until_ns": "soon", "n1": "[", "n2": json.dumps({"lines": ["x" * 1000]}), "n3": '{"lines": 5}'}
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    assert checkpoint.load() < time.time_ns()
    assert checkpoint.progress("n1") == LogProgress()
    checkpoint.advance(SignalKind.KERNEL_LOG, 5)
    assert checkpoint.save(with_cursors=True, immediately=True)
    assert api.data == {"handled_until_ns": "5"}


def test_a_start_forgets_nodes_that_are_gone() -> None:
    api = DictApi()
    api.data = {name: progress_at(time.time_ns()).model_dump_json(exclude_defaults=True) for name in ("n1", "gone")}
    start(api)
    assert api.data.keys() == {"n1"}
