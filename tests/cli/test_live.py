"""What a run says while it runs."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from gameday.cli.live import LiveView
from gameday.history.events import (
    FaultInjected,
    NodeReplaced,
    Problem,
    RepairHopSeen,
    StepEnded,
    StepStarted,
    TaintSeen,
    WaitStarted,
)
from gameday.history.journal import Journal
from gameday.values.nodes import Taint, Target
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


def test_a_wait_that_is_over_has_no_deadline(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    journal.append(StepStarted(step=Step.BASELINE, deadline_s=None))
    view, table = LiveView(journal.path, Console(width=200)), io.StringIO()
    for deadline_s, shown in ((0.0, False), (60.0, True)):
        journal.append(WaitStarted(step=Step.BASELINE, what="the window", deadline_s=deadline_s))
        view._read()
        table.truncate(0)
        Console(file=table, width=200).print(view._table())
        assert ("the window" in table.getvalue(), " 60 s" in table.getvalue()) == (shown, shown)
        assert " 0 s" not in table.getvalue()
    journal.close()


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


def _lines(journal: Journal, **console: Any) -> list[str]:
    journal.close()
    said = io.StringIO()
    with LiveView(journal.path, Console(file=said, **{"width": 200, **console})):
        pass
    return said.getvalue().splitlines()


def _fault_in(node: str, written_at: datetime) -> FaultInjected:
    return FaultInjected(
        fault="xid",
        target=Target(node=node, gpu=0),
        layer="kernel log",
        intent="i",
        evidence=(),
        written_at=written_at,
    )


def _taint_on(node: str) -> TaintSeen:
    taint = Taint(key="k", value="v", effect="NoSchedule")
    return TaintSeen(node=node, taint=taint, present=True, manager=None, at=datetime.now(UTC))


def test_an_effect_is_printed_after_its_cause(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    journal.append(StepStarted(step=Step.INJECT, deadline_s=60))
    for event in (_taint_on("n2"), _taint_on("n1"), _fault_in("n1", datetime(2020, 1, 1, tzinfo=UTC))):
        journal.append(event)
    journal.append(_fault_in("n2", datetime.now(UTC)))
    journal.append(_taint_on("n1"))
    words = [line.split("s  ", 1)[1].partition(",")[0] for line in _lines(journal)]
    taint = "taint k=v:NoSchedule on"
    assert words == [
        f"fault xid went in on {n} GPU 0" if f else f"{taint} {n}"
        for n, f in (("n1", 1), ("n1", 0), ("n2", 1), ("n2", 0), ("n1", 0))
    ]


def test_a_fault_is_stamped_by_the_moment_it_went_in_and_never_before_its_step(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    journal.append(StepStarted(step=Step.INJECT, deadline_s=60))
    journal.append(_fault_in("n1", datetime(2020, 1, 1, tzinfo=UTC)))
    journal.append(_fault_in("n2", datetime(2120, 1, 1, tzinfo=UTC)))
    assert [line.split()[0] for line in _lines(journal)] == ["0.0", "0.0"]


def test_effects_of_a_fault_that_never_went_in_are_not_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    journal.append(StepStarted(step=Step.INJECT, deadline_s=60))
    journal.append(_taint_on("n1"))
    assert "taint k=v:NoSchedule on n1" in "".join(_lines(journal))


def test_a_long_line_hangs_under_its_own_words_on_a_terminal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "history.jsonl")
    journal.append(
        Problem(step=None, what="one two three four five six seven eight nine ten", hint="do something about it")
    )
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in _lines(journal, width=40, force_terminal=True)]
    at = next(at for at, line in enumerate(lines) if line.startswith("   0.0 s"))
    assert [line.rstrip() for line in lines[at : at + 2]] == [
        "   0.0 s  one two three four five six",
        "          seven eight nine ten (do",
    ]
