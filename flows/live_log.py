"""Write a run's live lines into the log of its flow run, so that Prefect's page shows what happens."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from prefect import get_run_logger

from gameday.history.background import BackgroundView
from gameday.history.journal import HistoryTail
from gameday.report.live_lines import LiveLine, LiveLines, Tone

_LOOK_EVERY_S = 0.5
_LEVELS = {Tone.DOUBT: logging.WARNING, Tone.BAD: logging.ERROR}


class LiveLog(BackgroundView):
    """Follow a run's history in a thread of its own, so that a log that blocks or fails never delays the undo."""

    def __init__(self, history: Path) -> None:
        """Log to the current flow run."""
        super().__init__()
        self._history = HistoryTail(history)
        self._lines = LiveLines()
        self._logger = get_run_logger()

    def follow(self) -> None:
        if not self._logger.isEnabledFor(logging.ERROR):
            return  # the command line mutes Prefect's log, and shows the lines itself
        for _ in self.looks(_LOOK_EVERY_S):
            self._read()
        self._log(self._lines.rest())

    def _read(self) -> None:
        for record in self._history.added():
            self._log(self._lines.added(record))

    def _log(self, lines: Iterable[LiveLine]) -> None:
        for line in lines:
            self._logger.log(_LEVELS.get(line.words.tone, logging.INFO), "%s%s", line.stamp, line.words.text)
