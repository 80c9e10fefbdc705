"""A crash between any two writes loses no quarantine and begins none again on a node that was returned."""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from prometheus_client import CollectorRegistry

from gameday.cluster.loki import LogLine
from gameday.health.checkpoint import LATE_NS, LONGEST_LOOK_BACK_NS, MOST_BYTES, Checkpoint
from gameday.health.detect import Detection
from gameday.health.metrics import Metrics
from gameday.health.model import REASON, NodeView, Seen, Taint, digest, read_reason
from gameday.health.worker import Options, Worker
from gameday.xid.decide import Policy
from gameday.xid.lines import format_xid, recognise
from tests.health.conftest import KEY, TAINT

OPTIONS = Options(Policy.CATALOGUE, Taint.parse(f"{KEY}=true:NoSchedule"), "{}", "node", "gameday")
LOST = f"[   12.500000] {format_xid(79, '0000:4e:00')}"


class Crash(BaseException):
    """Past every `except Exception`, as a kill is."""


class DictApi:
    """One node and one ConfigMap; dies, or refuses, before the write it is told to."""

    server = "memory"

    def __init__(self) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "n1", "uid": "u", "resourceVersion": "1", "annotations": {"mine": "kept"}},
            "spec": {},
            "status": {"nodeInfo": {"bootID": "b1"}},
        }
        self.data: dict[str, str] | None = None
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
            raise ApiException(status=409, reason="Conflict")
        merge(self.node, patch)
        self._count_up()
        return copy.deepcopy(self.node)

    def _of_configmap(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.refuses_configmap:
            raise ApiException(status=self.refuses_configmap, reason="refused")
        if method == "POST":
            assert self.data is None
            self.data = {}
        elif self.data is None:
            raise ApiException(status=404, reason="Not Found")
        merge(self.data, body.get("data") or {})
        return {"data": dict(self.data)}

    def untaint(self) -> None:
        self.node["spec"]["taints"] = []
        self._count_up()

    def _count_up(self) -> None:
        self.node["metadata"]["resourceVersion"] = str(int(self.node["metadata"]["resourceVersion"]) + 1)

    def is_tainted(self) -> bool:
        taints = self.node["spec"].get("taints") or []
        assert taints in ([], [TAINT])
        return bool(taints)

    def seen(self) -> Seen:
        return Seen.model_validate_json((self.data or {}).get("n1", "{}"))


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7396."""
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
    """A controller's start: what the log store still has from the cursor on is read again."""
    worker = Worker(api, OPTIONS, metrics or Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    since = worker.load()
    worker.node(NodeView.of(api.node))
    worker.all_nodes_known()
    worker.write()
    for known in log:
        if known.line.ns >= since:
            worker.line(known)
            worker.write()
    return worker


def see_untainted(worker: Worker, api: DictApi) -> None:
    api.untaint()
    worker.node(NodeView.of(api.node))
    worker.write()


def at_every_crash(
    run: Callable[[DictApi], object], prepare: Callable[[DictApi], object] = lambda _: None
) -> list[DictApi]:
    """What is left behind by a crash before each of the writes that `run` makes."""
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
    worker.line(detection(time.time_ns()))  # a new shipper pod ships the old line anew
    worker.write()
    assert not api.is_tainted()
    assert api.node["metadata"]["annotations"] == {"mine": "kept"}
    begun_again = start(api, detection(time.time_ns()))
    begun_again.write()
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
        assert api.seen() == reason.seen and len(reason.seen.lines) == 1
        see_untainted(worker, api)
        replays_change_nothing(api, worker)


def test_a_node_returned_after_a_crash_stays_returned() -> None:
    fault = detection(time.time_ns())
    for api in at_every_crash(lambda api: start(api, fault))[1:]:
        assert api.is_tainted() and api.seen() == Seen()  # only the node knows
        api.untaint()
        worker = start(api, fault)
        assert not api.is_tainted()
        assert len(api.seen().lines) == 1
        replays_change_nothing(api, worker)


def test_a_crash_at_the_end_of_a_quarantine_begins_none() -> None:
    fault = detection(time.time_ns())
    left = at_every_crash(lambda api: see_untainted(start(api), api), lambda api: start(api, fault))
    assert [REASON in api.node["metadata"]["annotations"] for api in left] == [True, True]
    assert [api.seen().until_ns > fault.line.ns for api in left] == [False, True]
    for api in left:
        worker = start(api, fault)
        replays_change_nothing(api, worker)
        worker.line(detection(time.time_ns(), LOST.replace("12.5", "99.5")))
        worker.write()
        assert api.is_tainted()


def xid_119(uptime_s: float) -> str:
    return f"[{uptime_s:12.6f}] {format_xid(119, '0000:4e:00')}"


def test_no_line_of_a_storm_taints_the_repaired_node_when_controller_and_shipper_start_again() -> None:
    api = DictApi()
    storm = [detection(time.time_ns() + number, xid_119(100 + 7 * number)) for number in range(5)]
    worker = start(api)
    for line in storm:
        worker.line(line)
        worker.write()
    assert api.is_tainted()
    see_untainted(worker, api)
    worker.save(at_once=True)
    again = start(api)
    for number, line in enumerate(storm):
        again.line(detection(time.time_ns() + number, line.line.text))
        again.write()
    assert not api.is_tainted()
    again.line(detection(time.time_ns(), xid_119(135)))
    again.write()
    assert api.is_tainted()


def test_lines_of_a_slow_node_are_read_after_a_start() -> None:
    api = DictApi()
    worker = start(api)
    newest = time.time_ns()
    worker.line(Detection("n2", LogLine(newest, (), "[1.0] x"), None))  # a fast node's, which moves the cursor
    worker.save(at_once=True)
    start(api, detection(newest - 300 * 10**9))
    assert api.is_tainted()


def test_what_a_start_reads_again_is_not_counted_again() -> None:
    api = DictApi()
    told = detection(time.time_ns(), f"[   20.000000] {format_xid(13, '0000:4e:00')}")
    start(api, told).save(at_once=True)
    metrics = Metrics(CollectorRegistry())
    start(api, told, metrics=metrics)
    assert metrics.registry.get_sample_value("gameday_health_ignored_lines_total", {"why": "handled before"}) == 1


def test_a_reason_stays_until_the_checkpoint_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.health.worker.RETRY_S", (0.0, 0.0))
    api = DictApi()
    api.refuses_configmap = 403
    worker = start(api, detection(time.time_ns()))
    assert api.is_tainted()
    see_untainted(worker, api)
    assert REASON in api.node["metadata"]["annotations"]
    api.refuses_configmap = 0
    worker.write()
    replays_change_nothing(api, worker)


def test_a_checkpoint_that_cannot_be_read_now_is_not_taken_for_an_empty_one() -> None:
    api = DictApi()
    api.refuses_configmap = 503
    with pytest.raises(ApiException):
        Checkpoint(api, "gameday").load()  # type: ignore[arg-type]


def seen_at(ns: int, boot: str = "b1", lines: int = 16) -> Seen:
    seen = Seen()
    for number in range(lines):
        seen = seen.past(boot, ns, 12.5).plus(digest(f"{ns} {number}"))
    return seen


def test_the_checkpoint_is_bounded_and_forgets_the_oldest() -> None:
    api = DictApi()
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    now = checkpoint.load()
    for number in range(5000):
        checkpoint.note(f"node-{number}", seen_at(now + number))
        if number % 100 == 0:
            assert checkpoint.save(now + number, at_once=True)
    assert checkpoint.save(now + 5000, at_once=True)
    data = api.data or {}
    assert MOST_BYTES * 0.99 < sum(len(key) + len(value) for key, value in data.items()) <= MOST_BYTES
    kept = sorted(int(node.removeprefix("node-")) for node in data if node.startswith("node-"))
    assert kept == list(range(5000 - len(kept), 5000)) and len(kept) > 1000
    again = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    assert again.load() == now + 5000 - LATE_NS
    assert again.seen("node-4999") == seen_at(now + 4999)
    api.writes_left = 0
    assert again.save(at_once=True)  # what was just read needs no writing


def test_the_checkpoint_forgets_nodes_that_are_gone_or_booted_long_ago() -> None:
    api = DictApi()
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    checkpoint.load()
    long_ago = time.time_ns() - LONGEST_LOOK_BACK_NS - 1
    for name, ns in {"gone": time.time_ns(), "kept": long_ago, "old": long_ago, "new": time.time_ns()}.items():
        checkpoint.note(name, seen_at(ns))
    checkpoint.save(at_once=True)
    checkpoint.keep_only({"kept", "old", "new"})
    checkpoint.meet("kept", "b1")
    checkpoint.meet("old", "b2")
    checkpoint.meet("new", "b2")  # its old boot's lines can still be read again
    checkpoint.save(at_once=True)
    assert set(api.data or {}) - {"handled_until_ns"} == {"kept", "new"}


def test_a_checkpoint_anyone_wrote_is_no_trouble() -> None:
    api = DictApi()
    api.data = {"handled_until_ns": "soon", "n1": "[", "n2": json.dumps({"lines": ["x" * 1000]}), "n3": '{"lines": 5}'}
    checkpoint = Checkpoint(api, "gameday")  # type: ignore[arg-type]
    assert checkpoint.load() < time.time_ns()
    assert checkpoint.seen("n1") == Seen()
    assert checkpoint.save(5, at_once=True)
    assert api.data == {"handled_until_ns": "5"}


def test_a_start_forgets_nodes_that_are_gone() -> None:
    api = DictApi()
    api.data = {name: seen_at(time.time_ns()).model_dump_json(exclude_defaults=True) for name in ("n1", "gone")}
    start(api)
    assert api.data.keys() == {"n1"}
