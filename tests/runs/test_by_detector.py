"""Seasons of several detectors side by side: what each made of a fault, and a page that is safe to open."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run as command
from gameday.history.events import (
    Aborted,
    AllocatableSeen,
    BystanderChanged,
    BystandersWatched,
    ConditionSeen,
    GuestNamed,
    GuestState,
    Refused,
    RunEnded,
    RunStarted,
    TaintSeen,
)
from gameday.plan.models import Plan
from gameday.runs.by_detector import DetectorAnswer, DetectorMatrix, compare_detectors
from gameday.runs.cells import CellState
from gameday.runs.season_page import render_season
from gameday.runs.season_record import Assignment, LeftOut, SeasonRecord, WatchingGuest
from gameday.values.dated import Dated
from gameday.values.results import Cleanliness
from tests.report.page import Page
from tests.report.run_builder import FAULT_AT, NODE, START, Timed, at, passing, replacing, without, write
from tests.runs.row_builders import plan, seen

HOSTILE = "<script>alert(1)</script>"
CONDITION = {"conditions": [{"type": "Gpu", "status": "True", "within": "10s"}]}
QUIET = {"stays_schedulable_for": "5s"}
LOST = "gpu-fell-off-the-bus"  # a plan with a case of which the answer is act
XID_13 = plan("xid-13-application-error", {"type": "xid", "xid": 13}, **QUIET)


def season(
    reports: Path,
    id: str,
    *runs: tuple[Plan, list[Timed]],
    guest: str = "",
    left_out: tuple[LeftOut, ...] = (),
    began: float = 0,
) -> Path:
    """Write a season with a run of each plan, and its page."""
    places = []
    for plan_, events in runs:
        run_id = f"{id}-{plan_.name}"
        timed = replacing(events, lambda event: isinstance(event, RunStarted), run_id=run_id)
        write(reports / run_id, timed, plan=plan_)
        places.append(Assignment(run_id=run_id, plan=plan_.name, asked_as=plan_.name, targets=(NODE,)))
    SeasonRecord(
        id=id,
        cluster="rehearsal",
        guest=WatchingGuest(name=guest, version="v1") if guest else None,
        trigger="rehearsal",
        command="gameday coverage",
        seed=1,
        at_once=4,
        started=at(began),
        ended=at(began + 90),
        places=tuple(places),
        left_out=left_out,
    ).save(reports / id)
    render_season(reports / id, START)
    return reports / id


def watched(*events: Timed) -> list[Timed]:
    """A run that a guest watches, with its program running on the target, and seven other nodes to write to."""
    running, others = GuestState(node=NODE, change="running", at=at(0.6)), BystandersWatched(nodes=7)
    return [*events, *(Timed(0.6, one) for one in (GuestNamed(name="npd", version="v1"), running, others))]


def untainted(*more: Timed) -> list[Timed]:
    return [*without(passing(), lambda event: isinstance(event, TaintSeen)), *more]


def answer(reports: Path, events: list[Timed], of: Plan) -> DetectorAnswer:
    of = of.model_copy(update={"detector": "npd"})
    folder = season(reports, "s", (of, watched(*events)), guest="npd")
    (row,) = compare_detectors([("", folder)], reports, START).content.rows
    return row.cells[0].plays[0]


def condition(seconds: float, name: str = "Gpu") -> Timed:
    came = ConditionSeen(node=NODE, condition=name, status="True", reason="Xid", at=at(FAULT_AT + seconds))
    return seen(seconds, came)


def test_a_fault_that_was_noticed_has_its_signals_and_the_first_ones_latency(tmp_path: Path) -> None:
    found = answer(tmp_path, [*passing(), condition(0.6)], plan(**QUIET))
    assert (found.state, found.seconds, found.run) == (CellState.SEEN, 0.6, "s-lost")
    assert [str(one.signal) for one in found.signals] == ["condition", "taint"]


def test_a_condition_that_its_own_clock_dates_just_before_the_fault_was_seen(tmp_path: Path) -> None:
    # node-problem-detector dates it by the line's stamp, cut to the second.
    def dated(seconds: float) -> Timed:
        own = at(FAULT_AT + seconds)
        looks = Dated(own=own, source="lastTransitionTime", seen_at=at(FAULT_AT + 0.2))
        return seen(0.2, ConditionSeen(node=NODE, condition="Gpu", status="True", at=own, dated=looks))

    found = answer(tmp_path / "a", untainted(dated(-0.4)), plan(**CONDITION))
    assert (found.state, found.seconds, found.acted) == (CellState.SEEN, 0.2, True)
    assert answer(tmp_path / "b", untainted(dated(-1.1)), plan(**CONDITION)).state is CellState.MISSED


def test_an_expected_signal_that_did_not_come_is_missed(tmp_path: Path) -> None:
    found = answer(tmp_path, untainted(), plan(**CONDITION))
    assert (found.state, found.signals) == (CellState.MISSED, ())
    assert "not seen on" in found.why


def test_silence_where_somebody_must_act_is_missed_also_if_the_profile_expects_nothing(tmp_path: Path) -> None:
    assert answer(tmp_path / "a", untainted(), plan(LOST, **QUIET)).state is CellState.MISSED
    assert answer(tmp_path / "b", untainted(), plan("no-case", **QUIET)).state is CellState.NOT_EXPECTED


def test_a_quarantine_for_a_fault_whose_node_must_stay_is_wrong_and_silence_about_it_is_not(tmp_path: Path) -> None:
    found = answer(tmp_path / "a", passing(), XID_13)
    assert found.state is CellState.WRONG
    assert "trainy.konduktor.ai/faulty" in found.why
    assert answer(tmp_path / "b", untainted(), XID_13).state is CellState.NOT_EXPECTED


def test_a_write_to_another_node_is_wrong_whatever_else_was_noticed(tmp_path: Path) -> None:
    other = BystanderChanged(node="gpu-node-09", what="taint", value="a=b:NoSchedule", at=at(FAULT_AT + 1))
    found = answer(tmp_path, [*passing(), seen(1, other)], plan(**QUIET))
    assert found.state is CellState.WRONG
    assert "gpu-node-09: taint a=b:NoSchedule" in found.why


@pytest.mark.parametrize("expect", [CONDITION, QUIET])
def test_a_guest_that_died_leaves_it_unknown(tmp_path: Path, expect: dict[str, object]) -> None:
    died = seen(1, GuestState(node=NODE, change="ended by itself", at=at(FAULT_AT + 1), detail="signal 9"))
    found = answer(tmp_path, untainted(died), plan(**expect))
    assert found.state is CellState.UNKNOWN
    assert "signal 9" in found.why


def test_a_refused_run_is_unknown_with_its_reason(tmp_path: Path) -> None:
    refused = [Timed(0.3, Refused(why="the guest npd does not run")), Timed(0.5, RunEnded(cleanliness="clean"))]
    found = answer(tmp_path, [*[one for one in passing() if one.seconds < 0.3], *refused], plan(**QUIET))
    assert found.state is CellState.UNKNOWN
    assert "does not run" in found.why


def test_what_the_kubelet_says_by_itself_is_no_signal_of_the_detector(tmp_path: Path) -> None:
    fewer = seen(1, AllocatableSeen(node=NODE, gpus=7, before=8, at=at(FAULT_AT + 1)))
    found = answer(tmp_path, untainted(condition(1, "DiskPressure"), fewer), plan(**QUIET))
    assert found.state is CellState.NOT_EXPECTED


def test_a_node_that_was_left_dirty_is_said_whatever_was_noticed(tmp_path: Path) -> None:
    dirty = replacing(passing(), lambda event: isinstance(event, RunEnded), cleanliness=Cleanliness.DIRTY)
    found = answer(tmp_path, dirty, plan())
    assert found.state is CellState.SEEN
    assert found.left


@pytest.fixture
def compared(tmp_path: Path) -> DetectorMatrix:
    """Ours and npd before the same faults; npd in two seasons, of which the first aborted one run."""
    aborted = [*passing(), seen(5, Aborted(by="operator", why="SIGINT received"))]
    slow = (LeftOut(plan="slow", title="Slow", why=HOSTILE),)
    a, b = plan(LOST), plan("xid-48-double-bit-ecc", **CONDITION)
    ours = season(tmp_path, "o", (a, passing()), (plan("slow"), passing()), (XID_13, passing()))
    first = season(tmp_path / "npd", "s", (a, aborted), (b, untainted()), guest=HOSTILE, left_out=slow)
    second = season(tmp_path / "npd", "t", (a, passing()), guest=HOSTILE, left_out=slow, began=100)
    return compare_detectors([("", ours), ("", second), ("", first)], tmp_path, START).content


def test_seasons_of_one_detector_are_one_column_with_every_run(compared: DetectorMatrix) -> None:
    assert [one.name for one in compared.columns] == ["ours", f"{HOSTILE} v1"]
    cells = {row.plan: [[(one.state, one.run) for one in cell.plays] for cell in row.cells] for row in compared.rows}
    twice = [(CellState.UNKNOWN, f"npd/s-{LOST}"), (CellState.SEEN, f"npd/t-{LOST}")]
    assert cells[LOST] == [[(CellState.SEEN, f"o-{LOST}")], twice]
    missed = [(CellState.MISSED, "npd/s-xid-48-double-bit-ecc")]
    assert cells["xid-48-double-bit-ecc"] == [[(CellState.NOT_PLAYED, "")], missed]
    assert cells["slow"][1] == [(CellState.NOT_PLAYED, "")]


def test_each_column_is_summed(compared: DetectorMatrix) -> None:
    ours, npd = compared.columns
    assert (ours.noticed, ours.played, ours.neither, ours.wrong) == (3, 3, 0, 1)
    assert (npd.noticed, npd.played, npd.neither, npd.wrong) == (1, 2, 1, 0)
    assert npd.seasons == ("npd/t", "npd/s")


def test_only_plays_of_a_case_that_could_be_judged_are_scored(compared: DetectorMatrix) -> None:
    ours, npd = (one.score for one in compared.columns)
    # Of ours the plan `slow` has no case; of npd one play was aborted.
    assert (ours.recall.value, ours.recall.of, ours.wrong.value, ours.points.value) == (1, 1, 1, 0)
    assert (npd.recall.value, npd.recall.of, npd.wrong.value, npd.points.value) == (0.5, 2, None, None)
    assert npd.p50.value == pytest.approx(2.4, abs=2)
    rows = {row.plan: row for row in compared.rows}
    assert (rows["slow"].answer, rows[LOST].answer, rows[XID_13.name].answer) == ("", "act", "leave")
    assert rows["slow"].cells[0].score is None
    why = {one.plan: one.why for one in compared.not_played}
    assert LOST not in why and why["xid-46"] == "no season named here has its plan"
    assert "NVML" in why["nvml-xid-79"]


def test_a_wrong_action_costs_what_the_reader_says(tmp_path: Path) -> None:
    folder = season(tmp_path, "o", (plan(LOST), passing()), (XID_13, passing()))
    content = compare_detectors([("", folder)], tmp_path, START, 0.25).content
    assert content.columns[0].score.points.value == 0.75
    assert "recall − 0.25 × wrong actions" in Page((tmp_path / "detectors.html").read_text("utf-8")).text("scores")


def test_plays_of_one_fault_are_one_cell_that_shows_the_worst(tmp_path: Path) -> None:
    runs = [season(tmp_path, id, (XID_13, events)) for id, events in (("o", untainted()), ("p", passing()))]
    content = compare_detectors([("ours", folder) for folder in runs], tmp_path, START).content
    (cell,) = content.rows[0].cells
    assert cell.counts == "1 missed, 1 wrongly acted"
    assert cell.worst.state is CellState.WRONG
    assert cell.score and cell.score.wrong.value == 0.5


def test_a_condition_that_outlives_the_repair_was_not_cleared(tmp_path: Path) -> None:
    healed = ConditionSeen(node=NODE, condition="Gpu", status="False", at=at(FAULT_AT + 20))
    for id, later, cleared in (("a", [], False), ("b", [seen(20, healed)], True)):
        folder = season(tmp_path / id, id, (plan(LOST), [*passing(), condition(0.6), *later]))
        (row,) = compare_detectors([("", folder)], tmp_path / id, START).content.rows
        assert row.cells[0].plays[0].stands == ("" if cleared else "Gpu=True")
        assert row.cells[0].score and row.cells[0].score.cleared.value == cleared


@pytest.mark.usefixtures("compared")
def test_the_page_links_runs_and_seasons_and_keeps_hostile_text_text(tmp_path: Path) -> None:
    page = Page((tmp_path / "detectors.html").read_text(encoding="utf-8"))
    links = {attributes.get("href") or "" for tag, attributes in page.tags if tag == "a"}
    assert {f"o-{LOST}/report.html", f"npd/t-{LOST}/report.html", "npd/s/coverage.html"} <= links
    assert HOSTILE not in page.html and HOSTILE in page.text("matrix") + page.text("reasons")
    assert "slow: not played. " in page.text("reasons")
    assert not page.unbalanced


@pytest.mark.usefixtures("compared")
def test_the_command_names_columns_and_refuses_what_is_no_season(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["coverage", "--reports", str(tmp_path), "--compare", f"kept={tmp_path / 'o'}", "--compare"]
    assert command([*given, str(tmp_path / "npd" / "t")]) == 0
    assert "kept: noticed 3 of 3, wrongly acted 1" in capsys.readouterr().out
    assert command([*given, str(tmp_path / "nowhere")]) == 64
    assert "`gameday coverage --again FOLDER` draws" in capsys.readouterr().err
    (tmp_path / "o" / "coverage.json").write_text("{")
    assert command([*given, str(tmp_path / "o")]) == 64
    assert "coverage.json is damaged" in capsys.readouterr().err
