"""The part of a run that exists before the cluster is asked: identity, plan, history, and the ways to stop."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from gameday.clock import Clock
from gameday.history.durable import RESERVE_BYTES
from gameday.history.events import Event, Problem, WaitStarted
from gameday.history.journal import Journal
from gameday.history.room import room_in
from gameday.ledger.entries import object_prefix
from gameday.plain_file import not_written, write_whole
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.run.abort import Abort
from gameday.run.season_member import SeasonMember
from gameday.values.results import Step

T = TypeVar("T")
HISTORY_FILE = "history.jsonl"


class RunRecord:
    """The identity, the plan and the history of one run."""

    def __init__(
        self,
        id: str,
        folder: Path,
        loaded: LoadedPlan,
        member: SeasonMember | None = None,
        clock: Clock = Clock(),
    ) -> None:
        """Open the history in `folder`, which must exist.

        Args:
            id: The run's name, unique in its cluster.
            folder: The run's own folder.
            loaded: The plan and the file it came from.
            member: The run's place in a season; None for a single run.
            clock: The run's clock.

        Raises:
            OSError: The history cannot be written.
        """
        self.id = id
        self.folder = folder
        self.loaded = loaded
        self.member = member
        self.clock = clock
        self.journal = Journal(folder / HISTORY_FILE, clock, RESERVE_BYTES)
        self.abort = Abort(clock)
        self.started = clock.now()
        self.started_boottime_s = clock.boottime()
        self._cpu_at_start_s = _cpu_s()
        self._step = Step.BASELINE
        self._errands: list[Callable[[], None]] = []

    @property
    def cpu_s(self) -> float:
        """Processor seconds since the run's start, of its process and of its finished children."""
        return _cpu_s() - self._cpu_at_start_s

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def step(self) -> Step:
        """The current or last step."""
        return self._step

    def begin_step(self, step: Step) -> None:
        """Make `step` the current step."""
        self._step = step

    def note(self, event: Event) -> None:
        """Write into the history. If the history cannot be written, the run ends after its undo."""
        self.journal.append(event)
        if why := self.why_unwritten:
            self.abort.request("guard", why)

    @property
    def why_unwritten(self) -> str:
        """The reason why an event could not be written at once, and what to do; empty if all were written."""
        failed = self.journal.failed
        return f"the history cannot be written: {not_written(failed, self.journal.path)}" if failed else ""

    def problem(self, what: str, hint: str = "") -> None:
        """Note a problem that does not end the run."""
        self.note(Problem(step=self._step, what=what, hint=hint))

    def while_waiting(self, errand: Callable[[], None]) -> None:
        """Call `errand`, too, at every turn of every wait, in the run's own thread."""
        self._errands.append(errand)

    def wait(self, what: str, timeout: timedelta, condition: Callable[[], T | None], every_s: float = 0.1) -> T | None:
        """Wait until `condition` returns a value, and note the awaited event in the history.

        Args:
            what: The awaited event, in words.
            timeout: The longest wait; the condition is called at least once.
            condition: Called immediately and then every `every_s` seconds; it returns None until it holds.
            every_s: Seconds between two calls.

        Returns:
            The condition's first value that is not None; None after `timeout`.

        Raises:
            StopRunError: A stop was requested. Errors of the condition pass through as well.
        """
        limit = max(0.0, timeout.total_seconds())
        self.note(WaitStarted(step=self._step, what=what, deadline_s=limit))
        deadline = self.clock.monotonic() + limit
        while True:
            self.abort.check()
            for errand in self._errands:
                errand()
            value = condition()
            if value is not None:
                return value
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return None
            self.abort.sleep(self.clock.pause(every_s, left))

    def object_name(self, purpose: str, index: int = 0) -> str:
        """Return the name of an object of the run in the cluster, unique for the purpose and the target's index."""
        return f"{object_prefix(self.id)}{purpose}" + (f"-{index}" if index else "")

    def log_marker(self, index: int) -> str:
        """Return the text that marks the run's start in the kernel log of the target with this index."""
        return f"{self.id}-{index}"


def start_record(
    run_id: str, loaded: LoadedPlan, reports: Path, member: SeasonMember | None = None, clock: Clock = Clock()
) -> RunRecord:
    """Create the run's folder in `reports`, with the plan in it, and open its history.

    Args:
        run_id: The run's name, unique in its cluster.
        loaded: The plan and the file it came from.
        reports: The folder that holds the runs' own folders.
        member: The run's place in a season; None for a single run.
        clock: The run's clock.

    Raises:
        OSError: The folder exists already, cannot be written, or has too little room; nothing was changed.
    """
    reports.mkdir(parents=True, exist_ok=True)
    room_in(reports).require()
    folder = reports / run_id
    folder.mkdir()
    write_whole(folder / "plan.yaml", loaded.source)
    write_whole(folder / "plan.json", loaded.plan.model_dump_json(indent=1))
    return RunRecord(run_id, folder, loaded, member, clock)


def folder_of_run(reports: Path, run_id: str) -> Path:
    """Return the run's own folder; a run that plays an arm has it in the comparison's folder.

    For a run without a folder, return the path that it would have as a single run.
    """
    own = reports / run_id
    return own if own.is_dir() else next(reports.glob(f"*/{glob.escape(run_id)}"), own)


def new_run_id() -> str:
    """Return a run id like 20260303-090000-7f3a1c: the current second, and a unique end.

    It fits into an object's name, and ids sort by time. The end is random, because the machines that may start a run
    share neither a folder nor a cluster.
    """
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
