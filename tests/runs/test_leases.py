"""One season or one game-day per cluster; a season's runs live under its lease, and end with it."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome, RunResult
from gameday.clock import Clock
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile, GuestAddress
from gameday.errors import RefusedError, StopRunError
from gameday.history.events import Aborted, FaultUndone, IntentRecorded, Refused, RunEnded
from gameday.history.journal import read_history
from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases, node_lease
from gameday.ledger.ledger import Ledger
from gameday.lifecycle.opening import open_run
from gameday.lifecycle.undo import undo_at_the_end
from gameday.reaper.reap import ReapResult, reap_under
from gameday.run.record import start_record
from gameday.run.season_member import SeasonMember
from gameday.runs.assignment import RunQueue
from gameday.runs.play import OpenSeason, fit_nodes, open_season, run_all
from gameday.runs.season_record import Assignment, DrawnTime
from gameday.values.results import Cleanliness, Step
from tests.runs.season_builders import chosen
from tests.support.opened import BY_HAND
from tests.support.runs import quick_plan
from tests.support.world import PATIENCE_S, World, unique

pytestmark = pytest.mark.timeout(60)


def profile(world: World) -> ClusterProfile:
    return world.profile(world.kubeconfig("gameday-runner"))


def place_on(node: str, number: int = 1) -> Assignment:
    return Assignment(run_id=f"season-1-{number:02d}", plan=f"plan-{number}", asked_as="x", targets=(node,))


def passed(cleanliness: Cleanliness = Cleanliness.CLEAN) -> RunResult:
    return RunResult(outcome=RunOutcome.PASSED, cleanliness=cleanliness, exit_code=0, why="")


def member(season: str = "season-1") -> SeasonMember:
    return SeasonMember(season=season, targets=("n1",), seed=1)


def test_a_season_holds_the_clusters_lease_and_gives_it_back(world: World) -> None:
    with open_season("season-1", profile(world), print):
        assert world.holders() == {CLUSTER_LEASE: "season-1"}
    assert world.holders() == {}


def test_a_season_reports_its_undos_of_dead_runs_before_it_begins(world: World) -> None:
    header = Header(run_id="dead", plan="p", started=datetime.now(UTC), operator="ada", host="here")
    with world.connected("gameday-runner") as kubernetes:
        Ledger(kubernetes, header).intend(
            id="mark", act="make a pod", node=None, undo=DeletePod(pod="gd-dead-mark"), expires=datetime.now(UTC)
        )
    reaped: list[ReapResult] = []
    with open_season("season-1", profile(world), reaped.append):
        (result,) = reaped
        assert [(one.cleanliness, one.entry.id) for one in result.changed["dead"]] == [(Cleanliness.CLEAN, "mark")]


def test_a_second_season_is_refused_with_the_first_ones_name(world: World) -> None:
    with open_season("season-1", profile(world), print):
        with pytest.raises(RefusedError, match="held by run season-1"), open_season("season-2", profile(world), print):
            pytest.fail("two seasons at once")
        assert world.holders() == {CLUSTER_LEASE: "season-1"}


def test_a_game_day_of_its_own_is_refused_while_a_season_runs(world: World, tmp_path: Path) -> None:
    record = start_record("other", quick_plan(), tmp_path)
    with (
        open_season("season-1", profile(world), print),
        pytest.raises(RefusedError, match="held by run season-1"),
        open_run(record, profile(world), BY_HAND),
    ):
        pytest.fail("the run began")
    refused = read_history(tmp_path / "other" / "history.jsonl").of(Refused)
    assert "held by run season-1" in refused[0].why


def test_a_run_of_the_season_lives_under_its_lease(world: World, tmp_path: Path) -> None:
    with open_season("season-1", profile(world), print):
        record = start_record("season-1-01", quick_plan(), tmp_path, member())
        with open_run(record, profile(world), BY_HAND) as run:
            run.leases.acquire(node_lease("n1"))
            assert world.holders() == {CLUSTER_LEASE: "season-1", "gameday-node-n1": "season-1-01"}
        assert world.holders() == {CLUSTER_LEASE: "season-1"}


def test_a_run_whose_season_does_not_hold_the_lease_is_refused(world: World, tmp_path: Path) -> None:
    record = start_record("season-9-01", quick_plan(), tmp_path, member("season-9"))
    with pytest.raises(RefusedError), open_run(record, profile(world), BY_HAND):
        pytest.fail("the run began")
    refused = read_history(tmp_path / "season-9-01" / "history.jsonl").of(Refused)
    assert refused[0].why == "season-9 no longer holds lease gameday-cluster: nobody does"


def test_a_living_seasons_runs_are_not_reaped(world: World, runner: Kubernetes) -> None:
    with open_season("season-1", profile(world), print):
        Leases(runner, "season-1-01", lambda _: None).acquire(node_lease("n1"))
        reap_under(runner, "season-1")
        assert world.holders()["gameday-node-n1"] == "season-1-01"
        world.coordination.delete_namespaced_lease(node_lease("n1"), "gameday")


def test_a_signal_stops_the_runs_of_all_threads_and_no_other_begins(world: World, tmp_path: Path) -> None:
    open_runs = threading.Barrier(3, timeout=PATIENCE_S)

    def play(one: Assignment) -> RunResult:
        record = start_record(one.run_id, quick_plan(), tmp_path, member())
        with suppress(StopRunError), open_run(record, profile(world), BY_HAND) as run, undo_at_the_end(run):
            run.record.begin_step(Step.INJECT)
            open_runs.wait()
            run.wait("for ever", timedelta(seconds=100), lambda: None, every_s=100)
        return passed()

    def interrupt() -> None:
        open_runs.wait()
        signal.raise_signal(signal.SIGINT)

    places = [place_on("n1", 1), place_on("n2", 2), place_on("n1", 3)]
    with open_season("season-1", profile(world), print) as season:
        threading.Thread(target=interrupt, daemon=True).start()
        run_all(season, RunQueue(places, 9), 9, play, tmp_path)
        assert season.stopped == "you pressed Ctrl-C"
    for run_id in ("season-1-01", "season-1-02"):
        aborted = read_history(tmp_path / run_id / "history.jsonl").of(Aborted)
        assert [(one.by, one.why) for one in aborted] == [("operator", "you pressed Ctrl-C")]
    assert not (tmp_path / "season-1-03").exists()
    assert world.holders() == {}


def season_of(runner: Kubernetes) -> OpenSeason:
    from gameday.run.abort import Abort

    return OpenSeason("season-1", runner, Abort())


def test_no_run_begins_after_one_that_left_the_cluster_dirty(runner: Kubernetes, tmp_path: Path) -> None:
    begun: list[str] = []

    def play(one: Assignment) -> RunResult:
        begun.append(one.run_id)
        return passed(Cleanliness.DIRTY)

    season = season_of(runner)
    run_all(season, RunQueue([place_on("n1", 1), place_on("n1", 2)], 1), 1, play, tmp_path)
    assert begun == ["season-1-01"]
    assert season.stopped == "after run season-1-01 (plan-1) the cluster is dirty"


def left_dirty(reports: Path, run_id: str, undo: str = "restore-node", node: str | None = "n1") -> None:
    """Write the history of a run that left one change: by default the quarantine of its node."""
    record = start_record(run_id, quick_plan(), reports, member())
    expires = datetime.now(UTC)
    record.note(IntentRecorded(intent="i", act="a", undo=undo, object="n1", node=node, expires=expires))
    record.note(FaultUndone(intent="i", node=node, by="flow", cleanliness=Cleanliness.DIRTY, evidence=("it is back",)))
    record.note(RunEnded(cleanliness=Cleanliness.DIRTY))
    record.journal.close()


def beside_guest(runner: Kubernetes) -> Kubernetes:
    guest = GuestAddress(name="npd", url="http://127.0.0.1:1/guests")
    beside = copy(runner)
    beside.profile = runner.profile.model_copy(update={"guest": guest})
    return beside


def test_a_node_that_a_guest_left_dirty_is_taken_out_and_the_season_goes_on(runner: Kubernetes, tmp_path: Path) -> None:
    begun: list[str] = []

    def play(one: Assignment) -> RunResult:
        begun.append(one.run_id)
        if one.run_id != "season-1-01":
            return passed()
        left_dirty(tmp_path, one.run_id)
        return passed(Cleanliness.DIRTY)

    season = season_of(beside_guest(runner))
    places = [place_on("n1", 1), place_on("n1", 2), place_on("n2", 3)]
    run_all(season, RunQueue(places, 1), 1, play, tmp_path)
    assert begun == ["season-1-01", "season-1-03"]
    assert season.stopped == ""
    assert [str(one) for one in season.taken_out] == ["n1 was left dirty by run season-1-01 (plan-1) and taken out"]


@pytest.mark.parametrize(
    ("guest", "undo", "node", "history"),
    [
        (False, "restore-node", "n1", True),
        (True, "take-out-fault", "n1", True),
        (True, "delete-pod", None, True),
        (True, "restore-node", "n1", False),
    ],
    ids=["a real cluster", "the fault is in", "elsewhere", "no history"],
)
def test_whatever_else_is_left_dirty_stops_a_season(
    runner: Kubernetes, tmp_path: Path, guest: bool, undo: str, node: str | None, history: bool
) -> None:
    def play(one: Assignment) -> RunResult:
        if history:
            left_dirty(tmp_path, one.run_id, undo, node)
        return passed(Cleanliness.DIRTY)

    season = season_of(beside_guest(runner) if guest else runner)
    run_all(season, RunQueue([place_on("n1", 1), place_on("n2", 2)], 1), 1, play, tmp_path)
    assert season.stopped == "after run season-1-01 (plan-1) the cluster is dirty"
    assert season.taken_out == []


def test_a_run_that_ends_without_a_result_stops_the_season(runner: Kubernetes, tmp_path: Path) -> None:
    def play(one: Assignment) -> RunResult:
        raise OSError("no space left")

    season = season_of(runner)
    run_all(season, RunQueue([place_on("n1", 1), place_on("n1", 2)], 1), 1, play, tmp_path)
    assert season.stopped == "run season-1-01 (plan-1) broke off: OSError: no space left"


def test_a_failed_run_lets_the_others_begin(runner: Kubernetes, tmp_path: Path) -> None:
    begun: list[str] = []

    def play(one: Assignment) -> RunResult:
        begun.append(one.run_id)
        return passed().model_copy(update={"outcome": RunOutcome.FAILED})

    season = season_of(runner)
    run_all(season, RunQueue([place_on("n1", 1), place_on("n1", 2)], 1), 1, play, tmp_path)
    assert begun == ["season-1-01", "season-1-02"]
    assert season.stopped == ""


def drawn_for(node: str, number: int, at_s: float, latest_s: float = 60.0) -> Assignment:
    """A run of a random season."""
    drawn = DrawnTime(at_s=at_s, latest_s=latest_s, seed=number)
    return place_on(node, number).model_copy(update={"drawn": drawn})


def test_a_random_season_waits_for_its_times_and_names_the_runs_that_came_too_late(
    runner: Kubernetes, tmp_path: Path
) -> None:
    begun: list[tuple[str, float]] = []

    def play(one: Assignment) -> RunResult:
        begun.append((one.run_id, Clock().boottime() - start_s))
        return passed()

    season, start_s = season_of(runner), Clock().boottime()
    places = [drawn_for("n1", 1, 0.0), drawn_for("n1", 2, 0.5), drawn_for("n1", 3, 0.6, latest_s=-1.0)]
    run_all(season, RunQueue(places, 1), 1, play, tmp_path)
    assert [run_id for run_id, _ in begun] == ["season-1-01", "season-1-02"]
    assert begun[1][1] >= 0.5
    assert season.late == ["season-1-03"]


def test_a_random_season_that_is_stopped_between_two_runs_ends_at_once(runner: Kubernetes, tmp_path: Path) -> None:
    begun: list[str] = []

    def play(one: Assignment) -> RunResult:
        begun.append(one.run_id)
        season.abort.request("operator", "SIGINT received")
        return passed()

    season = season_of(runner)
    run_all(season, RunQueue([drawn_for("n1", 1, 0.0), drawn_for("n1", 2, 3600.0, 7200.0)], 1), 1, play, tmp_path)
    assert begun == ["season-1-01"]
    assert season.stopped == "SIGINT received"


def test_a_random_season_looks_at_more_nodes_than_its_plans_need(world: World, runner: Kubernetes) -> None:
    label = {"season-test": unique("label")}
    names = {world.add_node(labels=label) for _ in range(4)}
    plans = [chosen("a", selector=label)]
    assert len(fit_nodes(season_of(runner), plans, seed=3)) == 1
    assert {node.name for node in fit_nodes(season_of(runner), plans, seed=3, at_least=4)} == names


def test_nodes_are_chosen_by_the_seed_among_those_that_are_fit(world: World, runner: Kubernetes) -> None:
    label = {"season-test": unique("label")}
    names = [world.add_node(labels=label) for _ in range(4)]
    cordoned = world.add_node(labels=label, unschedulable=True)
    plans = [chosen(name, selector=label) for name in "abcd"]
    first = [node.name for node in fit_nodes(season_of(runner), plans, seed=3)]
    assert first == [node.name for node in fit_nodes(season_of(runner), plans, seed=3)]
    assert sorted(first) == sorted(names)
    assert cordoned not in first


def test_an_alert_about_a_siblings_node_is_a_siblings() -> None:
    ours = member().model_copy(update={"sibling_nodes": frozenset({"n2"}), "sibling_alerts": frozenset({"Expected"})})
    assert ours.is_siblings_alert("Any", "n2")
    assert not ours.is_siblings_alert("Any", "n1")
    assert not ours.is_siblings_alert("Any", "n7")
    assert ours.is_siblings_alert("Expected", None)
    assert not ours.is_siblings_alert("Any", None)


def test_a_node_on_which_something_is_still_in_is_not_chosen(world: World, runner: Kubernetes) -> None:
    from gameday.run.abort import Abort

    clean, dirty = world.add_node(), world.add_node()
    plans = [chosen(str(number)) for number in range(len(world.core.list_node().items))]
    found = {node.name for node in fit_nodes(OpenSeason("season-1", runner, Abort(), {dirty}), plans, seed=3)}
    assert clean in found
    assert dirty not in found
