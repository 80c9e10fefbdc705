"""Cells and tallies of the league, out of stored seasons: noticed, missed, wrongly acted, cannot see and the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.history.events import (
    Aborted,
    AllocatableSeen,
    BystanderChanged,
    BystandersWatched,
    ConditionSeen,
    FaultUndone,
    GuestState,
    IntentRecorded,
    Refused,
    RunEnded,
)
from gameday.league.cells import LeagueCell, LeagueState
from gameday.league.page import write_league
from gameday.league.record import fault_of, still_to_play
from gameday.league.table import league_table
from gameday.season.record import Assignment, DirtyNode, LeftOut
from gameday.values.results import Cleanliness
from tests.coverage.builders import plan, seen
from tests.league.builders import NPD, OURS, consulted, fault, named, record, run, season, untainted
from tests.report.run_builder import FAULT_AT, NODE, Timed, at, passing, replacing, without


def cell(folder: Path, *events: Timed, quiet: bool = False, expect: dict[str, object] | None = None) -> LeagueCell:
    mine = plan("lost", **(expect or {"stays_schedulable_for": "5s"})).model_copy(update={"detector": "npd"})
    watched = [*events, named(), Timed(0.6, GuestState(node=NODE, change="running", at=at(0.6)))]
    season(folder, NPD, "s", run(folder, NPD, "s", "lost", watched, mine))
    (row,) = league_table(record(fault("lost", stays_in_service=quiet), entries=(NPD,)), folder).rows
    return row.cells[0]


CONDITION = {"conditions": [{"type": "Gpu", "status": "True", "within": "10s"}]}


def condition(seconds: float, name: str = "Gpu") -> Timed:
    at_ = at(FAULT_AT + seconds)
    return seen(seconds, ConditionSeen(node=NODE, condition=name, status="True", reason="Xid", at=at_))


def test_a_fault_that_was_noticed_has_its_signals_and_the_first_ones_latency(tmp_path: Path) -> None:
    found = cell(tmp_path, *passing(), condition(0.6))
    assert found.state is LeagueState.NOTICED
    assert (str(found.signals[0].signal), found.seconds) == ("condition", 0.6)
    assert {str(one.signal) for one in found.signals} == {"condition", "taint"}
    assert (found.text, found.run) == ("0.60 s", "npd/s-lost")


def test_an_expected_signal_that_did_not_come_is_missed(tmp_path: Path) -> None:
    found = cell(tmp_path, *untainted(consulted(True)), expect=CONDITION)
    assert (found.state, found.signals) == (LeagueState.MISSED, ())
    assert "not seen on" in found.why


def test_a_detector_that_cannot_see_the_fault_says_why(tmp_path: Path) -> None:
    found = cell(tmp_path, *untainted(consulted(False, "It reads no DCGM.")))
    assert (found.state, found.why) == (LeagueState.CANNOT_SEE, "It reads no DCGM.")


@pytest.mark.parametrize(("sees", "why"), [(None, "says nothing"), (True, "names nothing")])
def test_nothing_that_was_to_come_is_not_expected(tmp_path: Path, sees: bool | None, why: str) -> None:
    found = cell(tmp_path, *untainted(consulted(sees)))
    assert found.state is LeagueState.NOT_EXPECTED
    assert why in found.why


def test_a_quarantine_for_a_fault_that_must_stay_in_service_is_wrong(tmp_path: Path) -> None:
    found = cell(tmp_path, *passing(), quiet=True)
    assert found.state is LeagueState.WRONG
    assert "trainy.konduktor.ai/faulty" in found.why


def test_silence_about_such_a_fault_is_as_it_should_be(tmp_path: Path) -> None:
    assert cell(tmp_path, *untainted(), quiet=True).why == "it stayed quiet, as it should"


def test_a_write_to_another_node_is_wrong_whatever_else_was_noticed(tmp_path: Path) -> None:
    other = BystanderChanged(node="gpu-node-09", what="taint", value="a=b:NoSchedule", at=at(FAULT_AT + 1))
    found = cell(tmp_path, *passing(), Timed(0.7, BystandersWatched(nodes=7)), seen(1, other))
    assert found.state is LeagueState.WRONG
    assert "gpu-node-09: taint a=b:NoSchedule" in found.why


def test_a_guest_that_died_leaves_the_cell_unknown(tmp_path: Path) -> None:
    died = seen(1, GuestState(node=NODE, change="ended by itself", at=at(FAULT_AT + 1), detail="signal 9"))
    for number, expect in enumerate((CONDITION, None)):
        found = cell(tmp_path / str(number), *untainted(died), expect=expect)
        assert found.state is LeagueState.UNKNOWN
        assert "signal 9" in found.why


def test_a_refused_run_is_unknown_with_its_reason(tmp_path: Path) -> None:
    refused = [Timed(0.3, Refused(why="the guest npd does not run")), Timed(0.5, RunEnded(cleanliness="clean"))]
    found = cell(tmp_path, *[one for one in passing() if one.seconds < 0.3], *refused)
    assert found.state is LeagueState.UNKNOWN
    assert "does not run" in found.why


def test_what_the_kubelet_says_by_itself_is_no_signal_of_the_detector(tmp_path: Path) -> None:
    fewer = seen(1, AllocatableSeen(node=NODE, gpus=7, before=8, at=at(FAULT_AT + 1)))
    assert cell(tmp_path, *untainted(), condition(1, "DiskPressure"), fewer).state is LeagueState.NOT_EXPECTED


def test_tallies_count_what_asks_for_action_apart(tmp_path: Path) -> None:
    places = [run(tmp_path, NPD, "s", name, passing()) for name in ("a", "quiet")]
    places.append(run(tmp_path, NPD, "s", "b", untainted(consulted(True)), plan("b", **CONDITION)))
    season(tmp_path, NPD, "s", *places)
    faults = (fault("a"), fault("b"), fault("quiet", stays_in_service=True))
    (ours, npd) = league_table(record(*faults), tmp_path).tallies
    assert (npd.played, npd.to_notice, npd.noticed, npd.noticed_to_notice, npd.wrong) == (3, 2, 2, 1, 1)
    assert npd.median_s == pytest.approx(0.31, abs=2)
    assert npd.seasons == ("npd/s",)
    assert (ours.played, ours.median_s) == (0, None)


def test_only_what_has_no_finished_run_is_still_to_play(tmp_path: Path) -> None:
    aborted = [*passing(), seen(5, Aborted(by="operator", why="SIGINT received"))]
    cut_off = without(passing(), lambda event: isinstance(event, RunEnded))
    places = [
        run(tmp_path, NPD, "s", "done", passing()),
        run(tmp_path, NPD, "s", "aborted", aborted),
        run(tmp_path, NPD, "s", "killed", cut_off),
    ]
    season(tmp_path, NPD, "s", *places, left_out=(LeftOut(plan="slow", title="", why="too long"),))
    faults = [fault(name) for name in ("done", "aborted", "killed", "slow", "never")]
    mine = record(*faults)
    assert [one.plan for one in still_to_play(mine, tmp_path, NPD)] == ["aborted", "killed", "never"]
    assert len(still_to_play(mine, tmp_path, OURS)) == len(faults)
    season(tmp_path, NPD, "t", run(tmp_path, NPD, "t", "killed", passing()))
    assert [one.plan for one in still_to_play(mine, tmp_path, NPD)] == ["aborted", "never"]
    states = {row.fault.plan: row.cells[1] for row in league_table(mine, tmp_path).rows}
    assert states["killed"].run == "npd/t-killed"
    assert (states["slow"].state, states["slow"].why) == (LeagueState.NOT_PLAYED, "too long")
    assert states["never"].why == "not played yet"


def test_a_season_that_was_cut_off_leaves_out_nothing_for_good(tmp_path: Path) -> None:
    season(tmp_path, NPD, "s", left_out=(LeftOut(plan="slow", title="", why="x"),), ended=False)
    assert [one.plan for one in still_to_play(record(fault("slow")), tmp_path, NPD)] == ["slow"]


@pytest.mark.parametrize(
    ("fault_", "expect", "asks", "stays"),
    [
        ({"type": "xid", "xid": 79}, {"taints": [{"key": "a/b", "within": "9s"}]}, True, False),
        ({"type": "xid", "xid": 13}, {"alerts": [{"name": "A", "within": "9s"}]}, False, True),
        ({"type": "xid", "xid": 13}, {"taints": [{"key": "a/b", "within": "9s"}]}, False, False),
        ({"type": "power_cap", "watts": 350}, {"stays_schedulable_for": "9s"}, False, False),
    ],
    ids=["quarantine", "workload", "a stricter team", "no line"],
)
def test_which_faults_ask_for_action(
    fault_: dict[str, object], expect: dict[str, object], asks: bool, stays: bool
) -> None:
    found = fault_of(plan("one", fault_, **expect), "one")
    assert (found.asks_for_action, found.stays_in_service) == (asks, stays)


def test_a_cell_says_what_was_noticed_and_that_the_node_was_left_dirty(tmp_path: Path) -> None:
    back = FaultUndone(intent="quarantine", node=NODE, by="flow", cleanliness=Cleanliness.DIRTY, evidence=("back",))
    intent = IntentRecorded(intent="quarantine", act="a", undo="restore-node", object=NODE, node=NODE, expires=at(900))
    events = replacing(passing(), lambda event: isinstance(event, RunEnded), cleanliness=Cleanliness.DIRTY)
    noted = [*events, Timed(5, intent), Timed(40, back)]
    places = [
        run(tmp_path, OURS, "s", "lost", noted),
        Assignment(run_id="s-2", plan="x", asked_as="x", targets=(NODE,)),
    ]
    dirty = DirtyNode(node=NODE, run_id="s-lost", plan="lost")
    season(tmp_path, OURS, "s", *places, dirty_nodes=(dirty,))
    mine = record(fault("lost"), fault("x"), entries=(OURS,))
    lost, other = (row.cells[0] for row in league_table(mine, tmp_path).rows)
    assert (lost.state, lost.left) == (LeagueState.NOTICED, f"the node was left dirty: {NODE} (restore-node)")
    assert lost.text == "0.97 s"
    assert "taint" in lost.reason
    assert lost.left in lost.reason
    assert (other.state, other.why) == (LeagueState.NOT_PLAYED, f"its node {dirty}")
    assert [one.plan for one in still_to_play(mine, tmp_path, OURS)] == ["x"]
    rendered = write_league(tmp_path, mine, at(100))
    assert "ours, lost: node left dirty." in rendered.html.read_text(encoding="utf-8")
    assert "ours, lost: node left dirty." in rendered.markdown
    assert rendered.content.result == "ours noticed 1 of 1; 1 left dirty; not to its end."
