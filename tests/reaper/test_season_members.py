"""A run of a season that dies leaves nothing for longer than it takes to undo it, and costs no sibling its run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.history.events import FaultUndone, IntentRecorded, Problem, RunEnded
from gameday.history.journal import Journal, read_history
from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.lease import Leases, node_lease
from gameday.ledger.ledger import Ledger, stored_ledgers
from gameday.reaper.reap import reap_under
from gameday.report.run_folder import load_run_folder
from gameday.run.abort import Abort
from gameday.runs.assignment import RunQueue
from gameday.runs.play import OpenSeason, run_all
from gameday.runs.season_record import Assignment
from gameday.values.results import Cleanliness
from tests.support.world import NAMESPACE, PATIENCE_S, World

pytestmark = pytest.mark.timeout(60)
DIED = RunResult(outcome=RunOutcome.UNKNOWN, cleanliness=Cleanliness.UNKNOWN, exit_code=2, why="")
PASSED = RunResult(outcome=RunOutcome.PASSED, cleanliness=Cleanliness.CLEAN, exit_code=0, why="")


@pytest.fixture
def world(server: World) -> Iterator[World]:
    """The real server: runs of a season are threads."""
    yield server
    server.clear()


def place_on(node: str, number: int) -> Assignment:
    return Assignment(run_id=f"season-1-{number:02d}", plan=f"plan-{number}", asked_as="x", targets=(node,))


def leave(world: World, kubernetes: Kubernetes, place: Assignment, reports: Path, *, said_the_end: bool) -> None:
    """What a thread leaves that dies between its act and its undo."""
    now, undo = datetime.now(UTC), DeletePod(pod=f"gd-{place.run_id}-mark")
    Leases(kubernetes, place.run_id, lambda _: None).acquire(node_lease(place.targets[0]), timedelta(minutes=30))
    ledger = Ledger(kubernetes, Header(run_id=place.run_id, plan="p", started=now, operator="o", host="h"))
    entry = ledger.intend(id="mark", act="create pod", node=None, undo=undo, expires=now)
    world.add_pod(undo.pod, place.run_id)
    (reports / place.run_id).mkdir()
    journal = Journal(reports / place.run_id / "history.jsonl")
    about = {"object": entry.object, "node": None, "expires": now}
    journal.append(IntentRecorded(intent="mark", act="create pod", undo=undo.kind, **about))
    if said_the_end:
        journal.append(RunEnded(cleanliness=Cleanliness.UNKNOWN))
    journal.close()


@pytest.mark.parametrize("said_the_end", [False, True])
def test_what_a_dead_run_left_is_undone_while_its_sibling_goes_on(
    world: World, runner: Kubernetes, tmp_path: Path, said_the_end: bool
) -> None:
    left, undone = threading.Event(), threading.Event()

    def play(one: Assignment) -> RunResult:
        if one.run_id.endswith("01"):
            leave(world, runner, one, tmp_path, said_the_end=said_the_end)
            left.set()
            return DIED
        assert left.wait(PATIENCE_S)
        while stored_ledgers(runner).ledgers or "gameday-node-n1" in world.holders():
            assert not undone.wait(0.05)
        undone.set()
        return PASSED

    season = OpenSeason("season-1", runner, Abort())
    run_all(season, RunQueue([place_on("n1", 1), place_on("n2", 2)], 2), 2, play, tmp_path)
    assert undone.is_set()
    assert season.stopped == ""
    assert season.died == {"season-1-01"}
    assert not [pod for pod in world.core.list_namespaced_pod(NAMESPACE).items if "season-1-01" in pod.metadata.name]
    history = read_history(tmp_path / "season-1-01" / "history.jsonl")
    assert [(one.intent, one.by, one.cleanliness) for one in history.of(FaultUndone)] == [
        ("mark", "reaper", Cleanliness.CLEAN)
    ]
    assert load_run_folder(tmp_path / "season-1-01").result.cleanliness is Cleanliness.CLEAN


def test_what_cannot_be_undone_in_its_place_stops_the_season(
    world: World, runner: Kubernetes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> object:
        raise KubernetesError("https://server", "list our pods: connection refused")

    def play(one: Assignment) -> RunResult:
        leave(world, runner, one, tmp_path, said_the_end=False)
        return DIED

    monkeypatch.setattr("gameday.reaper.histories.reap_run", away)
    season = OpenSeason("season-1", runner, Abort())
    run_all(season, RunQueue([place_on("n1", 1), place_on("n1", 2)], 1), 1, play, tmp_path)
    assert season.stopped == "after run season-1-01 (plan-1) the cluster is unknown"
    assert not (tmp_path / "season-1-02").exists()
    problems = read_history(tmp_path / "season-1-01" / "history.jsonl").of(Problem)
    assert "could not be undone: https://server" in problems[0].what
    reap_under(runner, "test")
