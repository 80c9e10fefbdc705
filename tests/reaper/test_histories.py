"""A killed run that the CronJob undid, which knows of no reports: the flow beside them finds it and says so."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.history.events import FaultUndone, IntentRecorded, Problem, RunEnded
from gameday.history.journal import Journal, read_history
from gameday.ledger.entries import DeletePod, Entry, Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.ledger.ledger import Ledger, Unreadable, ledger_name
from gameday.plain_file import open_to_append
from gameday.reaper.histories import note_reaped, note_reaped_elsewhere
from gameday.reaper.reap import Reaped, ReapResult
from gameday.report.run_folder import load_run_folder
from gameday.run.record import HISTORY_FILE
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


def noted(folder: Path) -> list[FaultUndone]:
    return list(read_history(folder / HISTORY_FILE).of(FaultUndone))


def undone(folder: Path) -> set[tuple[str, str, Cleanliness]]:
    return {(one.intent, one.by, one.cleanliness) for one in read_history(folder / HISTORY_FILE).of(FaultUndone)}


def test_what_a_killed_run_left_open_is_noted_once_its_ledger_is_gone(runner: Kubernetes, killed: Path) -> None:
    assert note_reaped_elsewhere(runner, killed.parent) == [killed]
    intents = {one.intent: one.node for one in read_history(killed / HISTORY_FILE).of(IntentRecorded)}
    assert NODE in intents.values()
    assert undone(killed) == {(intent, "reaper", Cleanliness.CLEAN) for intent in intents}
    assert {one.intent: one.node for one in noted(killed)} == intents
    assert all(ledger_name(killed.name) in one.evidence[0] for one in noted(killed)), "what proves it"
    assert load_run_folder(killed).result.cleanliness is Cleanliness.CLEAN


@pytest.mark.parametrize("bad", ["a0", "z0"])
def test_a_history_that_cannot_be_read_costs_the_others_nothing(runner: Kubernetes, killed: Path, bad: str) -> None:
    (killed.parent / bad / "history.jsonl").mkdir(parents=True)
    assert note_reaped_elsewhere(runner, killed.parent) == [killed]


def test_what_the_killed_run_had_undone_itself_is_not_noted_twice(runner: Kubernetes, killed: Path) -> None:
    first, *rest = read_history(killed / HISTORY_FILE).of(IntentRecorded)
    journal = Journal(killed / HISTORY_FILE)
    own = FaultUndone(intent=first.intent, node=NODE, by="flow", cleanliness=Cleanliness.CLEAN, evidence=())
    journal.append(own)
    journal.close()
    assert note_reaped_elsewhere(runner, killed.parent) == [killed]
    assert [(one.intent, one.by) for one in noted(killed)] == [
        (first.intent, "flow"),
        *((one.intent, "reaper") for one in rest),
    ]


def test_another_runs_history_that_cannot_be_written_or_is_of_another_cluster_costs_this_one_nothing(
    runner: Kubernetes, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = killed.parent
    write(reports / "a1", cut_off(passing(), 12.5))
    full = reports / "a2" / HISTORY_FILE
    full.parent.mkdir()
    full.write_bytes((killed / HISTORY_FILE).read_bytes())

    def opened(path: Path) -> Any:
        if path == full:
            raise OSError(errno.ENOSPC, "no space left")
        return open_to_append(path)

    monkeypatch.setattr("gameday.history.durable.open_to_append", opened)
    assert note_reaped_elsewhere(runner, reports) == [killed]


@pytest.mark.parametrize(
    ("had_ended", "found", "unreadable", "ends_clean"),
    [
        (True, ["clean"], "", True),
        (True, ["clean", "unknown"], "", False),
        (True, [], "", False),
        (True, ["clean"], "r1", False),
        (True, ["clean"], "r2", True),  # another run's
        (False, ["clean"], "", False),  # its report says so, from the undos
    ],
)
def test_a_run_that_had_ended_ends_again_once_all_that_it_left_is_clean(
    world: ScriptedWorld, tmp_path: Path, had_ended: bool, found: list[str], unreadable: str, ends_clean: bool
) -> None:
    folder = write(tmp_path / "r1", cut_off(passing(), 12.5))
    if had_ended:
        that_said_its_end(folder)
    entry = Entry(id="i", seq=0, act="a", node=NODE, undo=DeletePod(pod="p"), expires=LATER)
    reaped = [Reaped("r1", entry, Cleanliness(one), ("as read",)) for one in found]
    others = (Reaped("r2", entry, Cleanliness.DIRTY, ()),)
    odd = (Unreadable(ledger_name(unreadable), "0009-odd.json", "no json"),) if unreadable else ()
    world.clock.sleep(3600)
    assert note_reaped(folder, ReapResult((*others, *reaped), unreadable=odd), "left open", world.clock)
    history = read_history(folder / HISTORY_FILE)
    own = [one for one in history.records if one.at == world.clock.now()]
    assert [type(one.event) for one in own] == [Problem, *[FaultUndone] * len(found), *[RunEnded] * ends_clean]
    assert [(one.cleanliness, one.node, one.evidence) for one in noted(folder)] == [
        (one, NODE, ("as read",)) for one in found
    ]
    ends = [one.cleanliness for one in history.of(RunEnded)]
    assert ends == ["unknown"] * had_ended + ["clean"] * ends_clean


def test_a_folder_without_a_history_gets_none(tmp_path: Path) -> None:
    assert note_reaped(tmp_path / "r1", ReapResult(), "left open") is False
    assert list(tmp_path.iterdir()) == []


def of_another_cluster(folder: Path, runner: Kubernetes) -> None:
    write(folder, cut_off(passing(), 12.5))


def with_its_ledger(folder: Path, runner: Kubernetes) -> None:
    ledger = Ledger(runner, Header(run_id=folder.name, plan="p", started=LATER, operator="o", host="h"))
    ledger.intend(id="i1", act="put it in", node=NODE, undo=DeletePod(pod="p"), expires=LATER)


def while_somebody_holds_the_cluster(folder: Path, runner: Kubernetes) -> None:
    Leases(runner, "another", lambda _: None).acquire(CLUSTER_LEASE)


def with_a_report(folder: Path, runner: Kubernetes) -> None:
    (folder / "report.html").touch()


def that_said_its_end(folder: Path, runner: Kubernetes | None = None) -> None:
    journal = Journal(folder / HISTORY_FILE)
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
