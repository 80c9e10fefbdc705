"""The node's kernel log of an incident is read in its order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from gameday.cluster.loki import LogLine, Loki
from gameday.post_mortem.kernel_log import node_log
from tests.post_mortem.conftest import at
from tests.xid.known_lines import known_lines


class Given:
    """A log store with one node's lines."""

    def iterate_node_lines(self, node: str, **window: Any) -> Iterator[LogLine]:
        lost = next(known.line for known in known_lines() if known.form == "lost-in-three-lines")
        return (LogLine(ns, (), line) for ns, line in enumerate(lost.splitlines()))


def test_a_lost_gpu_in_a_sentence_over_three_lines_is_named() -> None:
    log = node_log(cast(Loki, Given()), "n1", at(0), at(60))
    assert [(seen.family, seen.pci, seen.decision) for seen in log.gpu_lines] == [
        ("gpu-lost", "0000:b3:00", "quarantine")
    ]
    assert log.read == len(log.frame) == 3
