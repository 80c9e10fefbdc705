"""Show a run's progress on its flow run's page in Prefect: a bar, and the current step."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from gameday.history.background import BackgroundView
from gameday.history.events import Record, RunEnded, StepEnded, StepStarted
from gameday.history.journal import HistoryTail
from gameday.report.formatting import limit
from gameday.tasks.artifacts import where_prefect_answers
from gameday.values.results import Step

_LOOK_EVERY_S = 0.5


class LiveProgress(BackgroundView):
    """Follow a run's history in a thread of its own, apart from the log. One request for each step."""

    def __init__(self, history: Path) -> None:
        """Show the progress of the current flow run."""
        super().__init__()
        self._history = HistoryTail(history)
        self._logger = get_run_logger()

    def follow(self) -> None:
        if not self._logger.isEnabledFor(logging.ERROR):
            return  # the command line mutes Prefect's log, and shows all of it itself
        with where_prefect_answers():
            artifact = create_progress_artifact(0.0, key="progress", description="before the first step")
            assert isinstance(artifact, UUID)  # a coroutine only if this thread had an event loop
            for _ in self.looks(_LOOK_EVERY_S):
                self._update(artifact)

    def _update(self, artifact: UUID) -> None:
        if shown := progress(self._history.added()):
            with where_prefect_answers():
                update_progress_artifact(artifact, *shown)


def progress(added: Iterable[Record]) -> tuple[float, str] | None:
    """Return the percentage and text of a run's newest step, or None if no step began or ended."""
    shown = None
    for record in added:
        event = record.event
        if isinstance(event, StepStarted):
            bound = f", at most {limit(event.deadline_s)}" if event.deadline_s is not None else ""
            shown = _done_before(event.step), f"{event.step}, since {record.at:%H:%M:%S} UTC{bound}"
        elif isinstance(event, StepEnded):
            shown = _done_before(event.step) + 100 / len(Step), f"{event.step}: {event.outcome}"
        elif isinstance(event, RunEnded):
            shown = 100.0, f"ended, cluster {event.cleanliness}"
    return shown


def _done_before(step: Step) -> float:
    return 100 * list(Step).index(step) / len(Step)
