"""Whole runs against an API server, with a test's own code in place of the steps."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from gameday.errors import StopRunError
from gameday.guard.check import under_guardrails
from gameday.history.journal import History, read_history
from gameday.ledger.entries import DeletePod
from gameday.lifecycle.opening import Invocation, open_run
from gameday.lifecycle.undo import undo_at_the_end
from gameday.plan.load import LoadedPlan
from gameday.run.record import HISTORY_FILE, RunRecord, start_record
from gameday.run.run import Run
from tests.support.runs import quick_plan
from tests.support.world import Administrator, unique

LONG = timedelta(seconds=100)
BY_HAND = Invocation("manual", "test")


class OpenedRun:
    """A run that puts one pod into the cluster, and what its folder says afterwards."""

    def __init__(self, world: Administrator, reports: Path) -> None:
        self.world = world
        self.reports = reports
        self.id = unique("run")
        self.pod = f"gd-{self.id}-mark"
        self.run: Run

    def play(
        self, act: Callable[[Run], object], loaded: LoadedPlan | None = None, *, return_without_qa: bool = True
    ) -> OpenedRun:
        """Open the run, let `act` be its steps, and close it."""
        record = self._record(loaded)
        profile = self.world.profile_of("gameday-runner")
        with (
            patch("gameday.lifecycle.closing.write_frames"),  # pandas for nobody who reads them here
            suppress(StopRunError),
            open_run(record, profile, BY_HAND, connect=self.world.connect) as run,
            undo_at_the_end(run, return_without_qa=return_without_qa),
            under_guardrails(run),
        ):
            self.run = run
            run.intend("mark", "mark", DeletePod(pod=self.pod), None, LONG)
            self.world.add_pod(self.pod, self.id)
            act(run)
        return self

    def refused(self, loaded: LoadedPlan | None = None) -> OpenedRun:
        """Try to open the run, which must be refused before its first step."""
        profile = self.world.profile_of("gameday-runner")
        with suppress(StopRunError), open_run(self._record(loaded), profile, BY_HAND, connect=self.world.connect):
            pytest.fail("a refused run began a step")
        return self

    def _record(self, loaded: LoadedPlan | None) -> RunRecord:
        return start_record(self.id, loaded or quick_plan(), self.reports, clock=self.world.clock)

    @property
    def history(self) -> History:
        return read_history(self.reports / self.id / HISTORY_FILE)

    def is_as_if_it_never_was(self) -> bool:
        """Return True where nothing of the run is left in the cluster."""
        return self.world.pods(self.id) == [] and self.world.ledgers() == [] and self.world.holders() == {}
