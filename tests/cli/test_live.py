"""What a run says while it runs."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from gameday.cli.live import LiveView
from gameday.history.events import StepEnded, StepStarted, WaitStarted
from gameday.history.journal import Journal
from gameday.values.results import Step, StepOutcome


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
