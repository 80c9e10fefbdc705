"""The detector asks the log store for every line that it knows, and reads each node's log in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gameday.cluster.loki import LogLine, LogStore
from gameday.cluster.profile import Endpoint
from gameday.xid.lines import format_xid, recognise
from gameday_health import detect
from tests.xid.known_lines import known_lines


class Follower:
    """A log follower whose lines are given."""

    def __init__(self, given: list[tuple[str, str]]) -> None:
        self.query = ""
        self._given = given

    def __call__(self, store: LogStore, query: str, *more: Any, **others: Any) -> Follower:
        self.query = query
        return self

    def lines(self) -> Iterator[LogLine]:
        for ns, (node, text) in enumerate(self._given):
            yield LogLine(ns, (("node", node),), text)


def follow(monkeypatch: pytest.MonkeyPatch, *given: tuple[str, str]) -> tuple[detect.Detector, Follower]:
    follower = Follower(list(given))
    monkeypatch.setattr(detect, "LogFollower", follower)
    return detect.Detector(
        cast(LogStore, None), '{job="dmesg"}', "node", 0, lambda up: None, lambda count: None
    ), follower


def test_the_query_finds_every_known_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _, follower = follow(monkeypatch)
    pattern = follower.query.split("`")[1]
    known = [known.line.splitlines() for known in known_lines() if known.form != "neighbour"]
    lines = [line for sentence in known for line in sentence if recognise(line) or line == sentence[0]]
    assert len(lines) > 100
    assert [line for line in lines if not re.search(pattern, line)] == []


def test_the_query_asks_for_a_policys_patterns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower([])
    monkeypatch.setattr(detect, "LogFollower", follower)
    patterns = ("^pcieport .{0,20}: AER", "RmInit|UVM", "(?s)of a pattern.with flags")
    detect.Detector(cast(LogStore, None), "{}", "node", 0, lambda up: None, lambda count: None, patterns)
    pattern = follower.query.split("`")[1]
    for line in (
        "[  100.000001] pcieport 0000:00:01.0: AER: Uncorrected",
        "NVRM: RmInitAdapter",
        "x UVM",
        "of a pattern with flags",
    ):
        assert re.search(pattern, line)
    assert not re.search(pattern, "usb 1-1: new device")


def test_a_sentence_over_several_lines_is_read_in_each_nodes_own_log(monkeypatch: pytest.MonkeyPatch) -> None:
    first = "NVRM: The NVIDIA GPU 0000:{}:00.0"
    last = "NVRM: fallen off the bus and is not responding to commands."
    given = [("n1", first.format("b3")), ("n2", first.format("18")), ("n1", last), ("n3", last), ("n2", last)]
    detector, _ = follow(monkeypatch, *given)
    found = list(detector.detections())
    assert [(seen.node, seen.event.pci) for seen in found if seen.event] == [
        ("n1", "0000:b3:00"),
        ("n3", None),
        ("n2", "0000:18:00"),
    ]


def test_a_line_without_the_collectors_label_is_of_no_node() -> None:
    store = LogStore(Endpoint(url="http://127.0.0.1:9"))
    detector = detect.Detector(store, "{}", "k8s_node_name", 0, lambda up: None, lambda count: None)
    line = LogLine(1, (("k8s_pod_label_k8s_node_name", "n1"), ("node", "n1")), format_xid(79, "0000:4e:00"))
    detector._follower.lines = lambda: iter([line])  # type: ignore[method-assign]
    assert [found.node for found in detector.lines()] == [""]
    store.close()


def test_the_rest_of_a_record_is_asked_for_and_read_with_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = "[   12.345678] NVRM: Xid (PCI:0000:03:00): 145, pid=1, name=a"
    rest = f"{'':15}b, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"
    forged = f"{'':15}NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus."
    detector, follower = follow(monkeypatch, ("n1", begun), ("n2", rest), ("n1", rest), ("n1", forged))
    assert all(re.search(follower.query.split("`")[1], line) for line in (begun, rest, forged))
    severities = [(seen.node, seen.event.severity) for seen in detector.detections() if seen.event]
    assert severities == [("n1", None), ("n1", "fatal")]
