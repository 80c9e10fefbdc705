"""What a run says while it runs."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from gameday.cli.live import LiveView
from gameday.history.events import NodeReplaced, RepairHopSeen, StepEnded, StepStarted, WaitStarted
from gameday.history.journal import Journal
from gameday.values.results import RepairHop, RepairKind, Step, StepOutcome


def test_a_wait_after_the_last_step_is_shown(tmp_path: Path) -> None:
    """Nobody else says why a run that was stopped does not end."""
    journal = Journal(tmp_path / "history.jsonl")
    for event in (
        StepStarted(step=Step.INJECT, deadline_s=60),
        WaitStarted(step=Step.INJECT, what="the pod", deadline_s=60),
        StepEnded(step=Step.INJECT, outcome=StepOutcome.ABORTED, why="SIGINT received"),
        WaitStarted(step=Step.INJECT, what="the detector until 12:00:00 UTC", deadline_s=60),
    ):
        journal.append(event)
    journal.close()
    said = io.StringIO()
    with LiveView(journal.path, Console(file=said, width=200)):
        pass
    lines = [line.split("s  ", 1)[1] for line in said.getvalue().splitlines()]
    assert lines == ["inject: aborted: SIGINT received", "waits for the detector until 12:00:00 UTC"]


def test_each_hop_of_a_clusters_own_repair_is_a_line_with_its_actor(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    at = datetime(2026, 3, 3, 9, tzinfo=UTC)
    hop: dict[str, Any] = {"node": "n1", "at": at, "source": "watch", "took_s": 4.0, "since": "repair begun"}
    journal.append(RepairHopSeen(hop=RepairHop.REPAIRED, by="repair\x1b[31m", repair=RepairKind.REBOOT, **hop))
    journal.append(NodeReplaced(node="n1", successor="n2", pool={}, boot_id="b", at=at))
    journal.close()
    said = io.StringIO()
    with LiveView(journal.path, Console(file=said, width=200)):
        pass
    first, second = [line.split("s  ", 1)[1] for line in said.getvalue().splitlines()]
    assert first.startswith("n1: repaired by reboot, by repair")
    assert first.endswith("4.0 s after repair begun")
    assert "\x1b" not in first
    assert second == "n2 takes the place of n1"
