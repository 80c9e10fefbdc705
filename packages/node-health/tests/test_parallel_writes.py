"""Many nodes are written at once, each by one write at a time, and nothing that happens meanwhile is lost."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from typing import Any

from prometheus_client import CollectorRegistry

from gameday.errors import KubernetesError
from gameday_health.metrics import Metrics
from gameday_health.model import NodeView
from gameday_health.quarantine import Failure, Result
from gameday_health.worker import WRITES_AT_ONCE, Worker
from tests.health.conftest import KEY
from tests.health.test_worker import DAY_S, OPTIONS, ManyNodes, lost, read_line


class SlowNodes(ManyNodes):
    """Nodes whose writes wait until the test lets them through."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.gate = threading.Semaphore(0)
        self.entered: queue.Queue[str] = queue.Queue()
        self.under_way: Counter[str] = Counter()
        self.most = 0
        self.most_of_one = 0
        self.refuses = 0
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, *rest: object) -> dict[str, Any]:
        if method != "PATCH" or "/nodes/" not in path:
            return super().request(method, path, body, *rest)
        name = path.rpartition("/")[2]
        with self._lock:
            self.under_way[name] += 1
            self.most = max(self.most, self.under_way.total())
            self.most_of_one = max(self.most_of_one, self.under_way[name])
        self.entered.put(name)
        assert self.gate.acquire(timeout=10)
        with self._lock:
            self.under_way[name] -= 1
            if self.refuses:
                self.refuses -= 1
                raise KubernetesError("memory", "refused", status=500)
            node = super().request(method, path, body, *rest)
            self.count_up(name)
            return {**node, "metadata": dict(node["metadata"]), "spec": dict(node["spec"])}

    def count_up(self, name: str) -> None:
        meta = self.nodes[name]["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    def view(self, name: str) -> NodeView:
        return NodeView.of(self.nodes[name])


class Running:
    """A worker whose results of writes are taken in when the test says so."""

    def __init__(self, *names: str) -> None:
        self.api = SlowNodes(*names)
        self.results: queue.Queue[Result | Failure] = queue.Queue()
        self.worker = Worker(self.api, OPTIONS, Metrics(CollectorRegistry()), self.results.put)  # type: ignore[arg-type]
        self.worker.load()
        for name in names:
            self.worker.handle_node(self.api.view(name))
        self.worker.all_nodes_known()

    def let_through(self, count: int = 1) -> None:
        """Let writes end, and take in their results."""
        for _ in range(count):
            self.api.gate.release()
            self.worker.handle_written(self.results.get(timeout=60))
            self.worker.write_due()


def test_a_storm_is_written_at_once_in_bounded_number_and_each_node_once() -> None:
    names = [f"n{number}" for number in range(40)]
    running = Running(*names)
    for name in names[:20]:
        read_line(running.worker, name, lost(DAY_S))
    for _ in range(WRITES_AT_ONCE):
        running.api.entered.get(timeout=60)
    assert running.worker.seconds_until_due() > 0, "nothing to do until a write ends"
    running.let_through(20)
    assert running.api.tainted == set(names[:20])
    assert running.api.most == WRITES_AT_ONCE
    assert running.api.most_of_one == 1


def test_the_brake_counts_before_the_write() -> None:
    names = [f"n{number}" for number in range(10)]
    running = Running(*names)
    for name in names:
        read_line(running.worker, name, lost(DAY_S))
    running.let_through(5)
    assert running.api.tainted == set(names[:5])
    assert running.results.empty()


def test_a_fault_that_comes_during_a_write_is_written_after_it() -> None:
    running = Running("n1")
    read_line(running.worker, "n1", lost(DAY_S))
    running.api.entered.get(timeout=60)
    read_line(running.worker, "n1", lost(DAY_S + 9).replace("4e", "5e"))
    running.let_through(2)
    assert running.api.most_of_one == 1
    running.worker.write_due()
    assert running.results.empty()


def test_a_taint_that_is_removed_before_its_write_is_known_is_not_put_back() -> None:
    running = Running("n1")
    read_line(running.worker, "n1", lost(DAY_S))
    running.api.entered.get(timeout=60)
    running.api.gate.release()
    result = running.results.get(timeout=60)
    for taints in ([{"key": KEY, "value": "true", "effect": "NoSchedule"}], []):  # the watch is faster than the result
        running.api.nodes["n1"]["spec"]["taints"] = taints
        running.api.count_up("n1")
        running.worker.handle_node(running.api.view("n1"))
    running.worker.handle_written(result)
    running.worker.write_due()
    running.let_through()  # the reason is taken off
    assert running.api.tainted == set()
    running.worker.write_due()
    assert running.api.entered.qsize() == 1


def test_a_write_that_is_refused_is_tried_again() -> None:
    running = Running("n1")
    running.api.refuses = 1
    read_line(running.worker, "n1", lost(DAY_S))
    running.let_through()
    assert running.api.tainted == set()
    while running.worker.seconds_until_due() > 0:
        threading.Event().wait(running.worker.seconds_until_due())
    running.worker.write_due()
    running.let_through()
    assert running.api.tainted == {"n1"}


def test_a_node_that_is_deleted_during_its_write_is_forgotten() -> None:
    running = Running("n1", "n2")
    read_line(running.worker, "n1", lost(DAY_S))
    running.api.entered.get(timeout=60)
    running.worker.handle_deleted_node("n1")
    running.let_through()
    read_line(running.worker, "n2", lost(DAY_S))
    running.let_through()
    assert "n2" in running.api.tainted


def test_an_answer_that_nobody_can_read_is_a_failure_that_is_tried_again() -> None:
    running = Running("n1")
    count_up = running.api.count_up

    def break_once(name: str) -> None:
        running.api.count_up = count_up  # type: ignore[method-assign]
        raise ValueError("no JSON")

    running.api.count_up = break_once  # type: ignore[method-assign]
    read_line(running.worker, "n1", lost(DAY_S))
    running.let_through()
    assert running.worker.seconds_until_due() < 5, "it is tried again"
