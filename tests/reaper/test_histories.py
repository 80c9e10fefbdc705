"""A killed run that the CronJob undid, which knows of no reports: the flow beside them finds it and says so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.history.events import FaultUndone, IntentRecorded, RunEnded
from gameday.history.journal import Journal, read_history
from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.ledger.ledger import Ledger
from gameday.reaper.histories import note_reaped_elsewhere
from gameday.report.run_folder import load_run_folder
from gameday.values.results import Cleanliness
from tests.report.run_builder import NODE, cut_off, passing, replacing, write
from tests.support.scripted.administrator import ScriptedWorld

LATER = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def killed(runner: Kubernetes, tmp_path: Path) -> Path:
    """The folder of a run of this cluster that was killed with its fault in."""
    uid = runner.identity().uid
    return write(
        tmp_path / "r1", replacing(cut_off(passing(), 12.5), lambda e: e.kind == "run_started", cluster_uid=uid)
    )


def undone(folder: Path) -> set[tuple[str, str, Cleanliness]]:
    return {(one.intent, one.by, one.cleanliness) for one in read_history(folder / "history.jsonl").of(FaultUndone)}


def test_what_a_killed_run_left_open_is_noted_once_its_ledger_is_gone(runner: Kubernetes, killed: Path) -> None:
    assert note_reaped_elsewhere(runner, killed.parent) == [killed]
    intents = {one.intent for one in read_history(killed / "history.jsonl").of(IntentRecorded)}
    assert intents
    assert undone(killed) == {(intent, "reaper", Cleanliness.CLEAN) for intent in intents}
    assert load_run_folder(killed).result.cleanliness is Cleanliness.CLEAN


@pytest.mark.parametrize("bad", ["a0", "z0"])
def test_a_history_that_cannot_be_read_costs_the_others_nothing(runner: Kubernetes, killed: Path, bad: str) -> None:
    (killed.parent / bad / "history.jsonl").mkdir(parents=True)
    assert note_reaped_elsewhere(runner, killed.parent) == [killed]


def of_another_cluster(folder: Path, runner: Kubernetes) -> None:
    write(folder, cut_off(passing(), 12.5))


def with_its_ledger(folder: Path, runner: Kubernetes) -> None:
    ledger = Ledger(runner, Header(run_id=folder.name, plan="p", started=LATER, operator="o", host="h"))
    ledger.intend(id="i1", act="put it in", node=NODE, undo=DeletePod(pod="p"), expires=LATER)


def while_somebody_holds_the_cluster(folder: Path, runner: Kubernetes) -> None:
    Leases(runner, "another", lambda _: None).acquire(CLUSTER_LEASE)


def with_a_report(folder: Path, runner: Kubernetes) -> None:
    (folder / "report.html").touch()


def that_said_its_end(folder: Path, runner: Kubernetes) -> None:
    journal = Journal(folder / "history.jsonl")
    journal.append(RunEnded(cleanliness=Cleanliness.UNKNOWN))
    journal.close()


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "made", [of_another_cluster, with_its_ledger, while_somebody_holds_the_cluster, with_a_report, that_said_its_end]
)
def test_no_other_run_is_touched(runner: Kubernetes, killed: Path, made: Callable[[Path, Kubernetes], None]) -> None:
    made(killed, runner)
    assert note_reaped_elsewhere(runner, killed.parent) == []
    assert undone(killed) == set()


def test_reports_that_are_not_here_are_asked_for_nothing(
    world: ScriptedWorld, runner: Kubernetes, tmp_path: Path
) -> None:
    before = runner.counter.cost().requests
    assert note_reaped_elsewhere(runner, tmp_path / "nowhere") == []
    assert runner.counter.cost().requests == before
