"""A whole game-day on a scripted cluster: the product's steps, ledger, watches, guardrails, checks, in one thread."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd

from gameday.checks.outcome import RunOutcome, RunResult, fold_outcome
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.detectors.resolve import load_complete_plan
from gameday.errors import StopRunError
from gameday.guard.check import under_guardrails
from gameday.history.events import Event, Record
from gameday.history.frames import Columns, Frames, conform
from gameday.history.journal import History
from gameday.lifecycle.opening import Invocation, open_run
from gameday.lifecycle.undo import undo_at_the_end
from gameday.plan.catalogue import find_plan
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.run.record import start_record
from gameday.run.run import Run
from gameday.tasks.await_alert import await_alert
from gameday.tasks.baseline import baseline
from gameday.tasks.inject import inject
from gameday.tasks.qa_node import qa_node
from gameday.tasks.recover import recover
from gameday.tasks.verify_taint import verify_taint
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script
from tests.support.scripted.wire import Killed, Moment

_INVOCATION = Invocation("manual", "test")
_NUMBERS = itertools.count(1)
OnWrite = Callable[[Event, Moment], None]


def steps(run: Run) -> None:
    """Play the steps in the order of flows/game_day.py, which a test holds this to."""
    targets = baseline.fn(run)
    faults = inject.fn(run, targets)
    await_alert.fn(run, faults)
    verify_taint.fn(run, faults)
    repairs = recover.fn(run, faults)
    qa_node.fn(run, repairs)


@dataclass(frozen=True)
class Played:
    """A game-day that was played, and what it left."""

    plan: Plan
    history: History
    verdicts: tuple[Verdict, ...]
    result: RunResult
    cluster: ScriptedCluster
    folder: Path

    @property
    def outcome(self) -> RunOutcome:
        return self.result.outcome

    def status(self, check: str) -> Status:
        """Return the status of a check's only verdict."""
        (found,) = [one for one in self.verdicts if one.check == check]
        return found.status

    @property
    def not_held(self) -> list[str]:
        """Return what did not hold, in words."""
        return [
            f"{one.check}: {one.status}: {one.why or one.measured}" for one in self.verdicts if one.status != "held"
        ]


# No check reads any other, and each takes pandas a millisecond.
_JUDGED_FRAMES = ("api_server", "scheduler")


@dataclass
class _FramesInMemory:
    """Keeps the frames that a run would let a child process write."""

    tables: dict[str, Columns] = field(default_factory=dict)

    def write(self, tables: Mapping[str, Columns], folder: Path) -> None:
        self.tables = dict(tables)

    def frames(self) -> Frames:
        """Return the frames that checks read, where they have any rows."""
        filled = {name: self.tables[name] for name in _JUDGED_FRAMES if any(self.tables.get(name, {}).values())}
        return Frames(**{name: conform(name, pd.DataFrame(columns)) for name, columns in filled.items()})


def play(
    plan: str | LoadedPlan = "gpu-fell-off-the-bus",
    change: Callable[[Script], Script] = lambda script: script,
    *,
    reports: Path,
    prepare: Callable[[ScriptedCluster], object] = lambda cluster: None,
    act: Callable[[Run], object] = steps,
    on_write: OnWrite = lambda event, moment: None,
    **settings: Any,
) -> Played:
    """Play a game-day.

    Args:
        plan: A shipped plan's name, or a plan.
        change: Makes the script of the one that does what the plan expects.
        reports: The folder that the run's own folder is made in.
        prepare: Called with the cluster before the run begins.
        act: The steps.
        on_write: As for `play_on`.
        settings: Of the cluster's profile, which allows the plan's dangers, as nothing here can be harmed.
    """
    loaded = shipped(plan) if isinstance(plan, str) else plan
    cluster = ScriptedCluster(change(Script.as_expected(loaded.plan)))
    prepare(cluster)
    return play_on(cluster, loaded, reports=reports, act=act, on_write=on_write, **settings)


def play_on(
    cluster: ScriptedCluster,
    loaded: LoadedPlan,
    *,
    reports: Path,
    act: Callable[[Run], object] = steps,
    on_write: OnWrite = lambda event, moment: None,
    **settings: Any,
) -> Played:
    """Play a game-day on a cluster, which may kill it.

    Args:
        cluster: The cluster.
        loaded: The plan.
        reports: As for `play`.
        act: As for `play`.
        on_write: Called before and after every event is written into the history; may kill the run.
        settings: As for `play`.
    """
    random.seed(0)  # the jitter of pauses between attempts: every play is the same
    record = start_record(f"scripted-{next(_NUMBERS)}", loaded, reports, clock=cluster.clock)
    append = record.journal.append

    def write(event: Event) -> Record:
        if cluster.is_dead:
            raise Killed
        on_write(event, "before")
        written = append(event)
        on_write(event, "after")
        return written

    record.journal.append = write  # type: ignore[method-assign]
    profile = cluster.profile(**{"allow_dangerous": tuple(loaded.plan.dangers()), **settings})
    frames = _FramesInMemory()
    with (
        patch("gameday.lifecycle.closing.write_frames", frames.write),
        suppress(StopRunError, Killed),
        open_run(record, profile, _INVOCATION, connect=cluster.connect) as run,
        undo_at_the_end(run),
        under_guardrails(run),
    ):
        act(run)
    history = record.journal.history()
    verdicts = run_checks(loaded.plan, history, frames.frames())
    return Played(loaded.plan, history, tuple(verdicts), fold_outcome(history, verdicts), cluster, record.folder)


@cache
def shipped(name: str) -> LoadedPlan:
    """Return a shipped plan as the flow completes it."""
    return load_complete_plan(find_plan(name), (), "gameday")
