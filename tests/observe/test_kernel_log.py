"""The tail of a target's kernel log dates the injected line by the run's clock, when it arrives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.cluster.loki import LogLine
from gameday.errors import AdapterError
from gameday.observe.kernel_log import KernelLogTail
from gameday.values.results import Hop
from tests.support.virtual_clock import VirtualClock

LINE = "NVRM: Xid (PCI:0000:3b:00): 95, uncontained"


class Loki:
    """A log store whose lines a test hands over."""

    def __init__(self) -> None:
        self.followed: list[tuple[str, datetime]] = []
        self.stopped = False

    def follow_node(
        self,
        node: str,
        since: datetime,
        on_line: Callable[[LogLine], None],
        on_refused: Callable[[AdapterError], None],
    ) -> Loki:
        self.followed.append((node, since))
        self.hand_over, self.refuse = on_line, on_refused
        return self

    def stop(self) -> None:
        self.stopped = True


class TailedRun:
    """As much of a run as a tail needs."""

    def __init__(self) -> None:
        self.clock, self.loki = VirtualClock(), Loki()
        self.servers = SimpleNamespace(loki=self.loki)
        self.hops: list[tuple[Hop, str, datetime]] = []
        self.problems: list[str] = []

    def hop(self, hop: Hop, node: str, at: datetime, source: str) -> None:
        self.hops.append((hop, node, at))

    def problem(self, what: str, hint: str) -> None:
        self.problems.append(what)


@pytest.fixture
def run() -> Any:
    return TailedRun()


def test_the_injected_line_is_dated_when_it_arrives(run: Any) -> None:
    began = run.clock.now()
    tail = KernelLogTail(run, "n1")
    for at, text in ((1, "[ 1.0] usb 1-1: new device"), (2.5, f"[ 2.4] {LINE}"), (9, f"[ 8.9] {LINE}")):
        run.clock.at(at, lambda text=text: run.loki.hand_over(LogLine(0, (), text)))
    run.clock.sleep(2)
    tail.note_arrival([f"wrote {LINE}"])
    assert run.hops == []
    run.clock.sleep(60)
    tail.note_arrival([f"wrote {LINE}"])
    assert run.hops == [(Hop.IN_LOG_STORE, "n1", began + timedelta(seconds=2.5))]
    ((node, since),) = run.loki.followed
    assert (node, since < began) == ("n1", True)
    tail.stop()
    assert run.loki.stopped


def test_a_store_that_refuses_the_tail_is_a_problem_and_no_error(run: Any) -> None:
    tail = KernelLogTail(run, "n1")
    run.loki.refuse(AdapterError("http://loki", "parse error"))
    tail.note_arrival([LINE])
    assert run.hops == []
    assert run.problems == ["the log store could not be tailed: http://loki: parse error"]
