from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from gameday import cli
from gameday.checks.outcome import RunOutcome
from gameday.history.events import Aborted, AlertSeen, Refused, RunEnded, RunStarted
from gameday.history.journal import Journal
from gameday.report.compare import trends
from gameday.report.durations import durations
from gameday.report.earlier_runs import MOST_RUNS, earlier_runs
from gameday.report.render import render
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import DurationKind
from gameday.runs.catalog import read_catalog
from gameday.runs.digest import Digest, digest_of, render_digest
from gameday.runs.matrix import CoverageMatrix
from gameday.runs.run_row import ROW_FILE, render_run
from gameday.values.pricing import OutageTerms
from gameday.values.results import Cleanliness
from tests.post_mortem.conftest import USUAL, incident, write_incident
from tests.report.run_builder import PLAN, START, VARIANTS, Timed, cut_off, passing, replacing, write

WEEK_END = START + timedelta(days=1)
HOSTILE = "<script>alert(1)</script>"


def at_(days: float, events: list[Timed]) -> list[Timed]:
    """The same events, shifted; what an event says of its own time is shifted with it."""
    shift = timedelta(days=days)
    moved = []
    for timed in events:
        times = {name: value + shift for name in ("at", "written_at") if (value := getattr(timed.event, name, None))}
        moved.append(Timed(timed.seconds + shift.total_seconds(), timed.event.model_copy(update=times)))
    return moved


def put(reports: Path, days: float, events: list[Timed], **update: object) -> Path:
    id = f"run{days:g}"
    timed = replacing(events, lambda e: isinstance(e, RunStarted), run_id=id, **update)
    return write(reports / id, at_(days, timed))


def digest(reports: Path, days: float = 7) -> Digest:
    return digest_of(read_catalog(reports), [PLAN], WEEK_END - timedelta(days=days), WEEK_END)


def test_only_runs_of_the_window_are_counted(tmp_path: Path) -> None:
    put(tmp_path, -30, passing())
    put(tmp_path, -1, VARIANTS["detector-off"]())
    put(tmp_path, 0, passing())
    made = digest(tmp_path)
    assert (made.outcomes[RunOutcome.PASSED], made.outcomes[RunOutcome.FAILED]) == (1, 1)
    assert made.headline == "1 of 2 game-days passed, 1 failed, durations not compared yet."


def test_a_plans_history_is_oldest_first_and_a_change_is_said(tmp_path: Path) -> None:
    put(tmp_path, -1, VARIANTS["detector-off"]())
    put(tmp_path, 0, passing())
    (row,) = digest(tmp_path).plans
    assert [mark.outcome for mark in row.history] == [RunOutcome.FAILED, RunOutcome.PASSED]
    assert row.changed


def slow_alert(seconds: float) -> list[Timed]:
    """The alert fires this much later than in the usual run."""
    late = timedelta(seconds=seconds)
    return [
        Timed(timed.seconds, timed.event.model_copy(update={"at": timed.event.at + late}))
        if isinstance(timed.event, AlertSeen) and timed.event.state == "firing" and not timed.event.at_baseline
        else timed
        for timed in passing()
    ]


def test_a_duration_above_every_earlier_one_is_a_regression(tmp_path: Path) -> None:
    for days in (-4, -3, -2):
        put(tmp_path, days, passing())
    put(tmp_path, 0, slow_alert(4))
    made = digest(tmp_path)
    trend = next(one for one in made.plans[0].trends if one.measure is DurationKind.ALERT)
    assert (trend.now_s, trend.median_s, trend.regressed) == (pytest.approx(9.4), pytest.approx(5.4), True)
    assert "1 duration regressed" in made.headline


def test_nothing_got_slower_is_said_only_where_something_was_compared(tmp_path: Path) -> None:
    for days in (-3, -2, -1):
        put(tmp_path, days, passing())
    assert digest(tmp_path).headline.endswith("durations not compared yet.")
    put(tmp_path, 0, passing())
    assert digest(tmp_path).headline.endswith("nothing got slower.")


@pytest.mark.slow
def test_the_digest_compares_with_the_runs_the_report_compares_with(tmp_path: Path) -> None:
    put(tmp_path, -90, slow_alert(8))
    for number in range(MOST_RUNS):
        put(tmp_path, number - MOST_RUNS, passing())
    newest = put(tmp_path, 0, slow_alert(4))
    trend = next(one for one in digest(tmp_path).plans[0].trends if one.measure is DurationKind.ALERT)
    assert (trend.slowest_s, trend.regressed, len(trend.earlier_s)) == (pytest.approx(5.4), True, MOST_RUNS)
    for run in tmp_path.iterdir():
        render(run, WEEK_END)
    run = load_run_folder(newest)
    now = summarise(run)
    assert now
    assert trend in trends(durations(run), earlier_runs(newest, now))


def test_two_clusters_are_not_compared_with_each_other(tmp_path: Path) -> None:
    put(tmp_path, -1, passing(), cluster_uid="a")
    put(tmp_path, 0, passing(), cluster_uid="b")
    assert len(digest(tmp_path).plans) == 2


def test_an_unclean_cluster_is_listed_at_any_age_and_colours_only_its_own_window(tmp_path: Path) -> None:
    dirty = replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=Cleanliness.DIRTY)
    put(tmp_path, -90, dirty)
    put(tmp_path, 0, passing())
    made = digest(tmp_path)
    assert ([mark.run_id for mark in made.unclean], [mark.run_id for mark in made.unclean_before]) == ([], ["run-90"])
    page = render_digest(tmp_path, made, WEEK_END).html.read_text()
    assert "is-passed" in page
    assert "1 older run never proved clean" in page
    put(tmp_path, -1, dirty)
    made = digest(tmp_path)
    assert [mark.run_id for mark in made.unclean] == ["run-1"]
    assert "is-failed" in render_digest(tmp_path, made, WEEK_END).html.read_text()


def test_a_plan_that_was_never_run_is_named(tmp_path: Path) -> None:
    assert digest(tmp_path).never_run == ((PLAN.name, PLAN.title),)


def test_nothing_in_the_window_is_not_a_good_week(tmp_path: Path) -> None:
    put(tmp_path, -30, passing())
    assert "nothing is known" in digest(tmp_path).headline


def test_open_actions_come_from_the_notes_overdue_first(tmp_path: Path) -> None:
    folder = write_incident(tmp_path / "incident-x", USUAL, incident())
    (folder / "notes.yaml").write_text(
        "actions:\n- {what: later}\n- {what: late, due: 2026-03-01}\n- {what: over, state: done}\n"
    )
    made = digest(tmp_path)
    assert [(one.action.what, one.overdue) for one in made.actions] == [("late", True), ("later", False)]
    assert made.incidents == 1


def test_two_clusters_of_one_name_are_distinguished(tmp_path: Path) -> None:
    put(tmp_path, -1, passing(), cluster_uid="11111111-a", cluster_name="prod")
    put(tmp_path, 0, passing(), cluster_uid="22222222-b", cluster_name="prod")
    assert {row.cluster for row in digest(tmp_path).plans} == {
        "prod (virtual GPUs) (11111111)",
        "prod (virtual GPUs) (22222222)",
    }


def test_a_cluster_made_anew_each_time_is_one_cluster(tmp_path: Path) -> None:
    for days, uid in ((-1, "a"), (0, "b")):
        put(tmp_path, days, passing(), cluster_uid=uid, cluster_id="gameday-rehearsal", cluster_name="rehearsal")
    (row,) = digest(tmp_path).plans
    assert (row.cluster, row.runs) == ("rehearsal (virtual GPUs)", 2)


def test_an_action_of_a_run_stays_open_until_a_later_run_of_the_plan_closes_it(tmp_path: Path) -> None:
    (put(tmp_path, -2, passing()) / "notes.yaml").write_text("actions: [{id: A1, what: page}, {id: A2, what: taint}]")
    (put(tmp_path, 0, passing()) / "notes.yaml").write_text("actions: [{id: A1, what: page, state: done}]")
    assert [(one.action.what, one.page) for one in digest(tmp_path).actions] == [("taint", "run-2/report.html")]


def test_the_matrix_has_the_newest_run_of_each_plan_on_each_cluster(tmp_path: Path) -> None:
    put(tmp_path, -2, passing(), cluster_uid="b", cluster_name="other")
    put(tmp_path, -1, VARIANTS["detector-off"](), cluster_name="prod")
    put(tmp_path, 0, passing(), cluster_name="prod")
    coverage = digest(tmp_path).coverage
    assert [(one.cluster, [row.run_id for row in one.matrix.rows]) for one in coverage] == [
        ("other (virtual GPUs)", ["run-2"]),
        ("prod (virtual GPUs)", ["run0"]),
    ]


def test_a_row_that_a_run_left_is_not_judged_again(tmp_path: Path) -> None:
    run = put(tmp_path, 0, passing())
    made = json.loads(row_left_by(run))
    made["rows"][0]["why"] = "as the run's own row has it"
    (run / ROW_FILE).write_text(json.dumps(made))
    assert digest(tmp_path).coverage[0].matrix.rows[0].why == "as the run's own row has it"


@pytest.mark.parametrize("torn", ["", "{", "[]", '{"rows": [{}], "gaps": []}'])
def test_a_row_that_cannot_be_read_is_judged_from_the_history(tmp_path: Path, torn: str) -> None:
    run = put(tmp_path, 0, passing())
    left = row_left_by(run)
    (run / ROW_FILE).write_text(torn)
    assert digest(tmp_path).coverage[0].matrix == CoverageMatrix.model_validate_json(left)


def row_left_by(run: Path) -> bytes:
    render_run(run, WEEK_END)
    return (run / ROW_FILE).read_bytes()


def test_a_run_that_was_killed_before_its_report_is_on_the_shelf(tmp_path: Path) -> None:
    killed = put(tmp_path, 0, cut_off(passing(), 12.5))
    assert not (killed / "report.json").exists()
    (run,) = read_catalog(tmp_path).runs
    assert run.summary == summarise(load_run_folder(killed))


def test_a_killed_run_that_a_reaper_adds_to_is_judged_anew(tmp_path: Path) -> None:
    killed = put(tmp_path, 0, cut_off(passing(), 12.5))
    assert read_catalog(tmp_path).runs[0].summary.outcome is RunOutcome.UNKNOWN
    journal = Journal(killed / "history.jsonl")
    journal.append(Aborted(by="operator", why="reaped"))
    journal.close()
    (run,) = read_catalog(tmp_path).runs
    assert run.summary == summarise(load_run_folder(killed))
    assert run.summary.outcome is RunOutcome.ABORTED


def test_a_row_that_cannot_be_judged_costs_the_run_neither_its_place_nor_the_others_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 0, cut_off(passing(), 12.5))

    def fails(runs: object) -> CoverageMatrix:
        raise RuntimeError("no row")

    monkeypatch.setattr("gameday.runs.run_row.matrix_of", fails)
    made = digest(tmp_path)
    assert [row.newest.run_id for row in made.plans] == ["run0"]
    assert made.problems == ("run0: its coverage could not be judged (RuntimeError: no row)",)


def test_a_folder_without_a_readable_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "history.jsonl").write_bytes(b'{"seq":')
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "incident.json").write_bytes(b"{")
    assert [one.split(":")[0] for one in read_catalog(tmp_path).unreadable] == ["bad", "torn"]


def test_the_pages_hold_every_run_and_escape_what_runs_say(tmp_path: Path) -> None:
    put(tmp_path, 0, passing(), plan_name=HOSTILE, cluster=HOSTILE)
    write_incident(tmp_path / "incident-x", USUAL)
    assert cli.run(["digest", str(tmp_path), "--days", "3660"]) in (0, 2)
    for page in ("digest.html", "index.html"):
        text = (tmp_path / page).read_text()
        assert HOSTILE not in text
        assert "run0" in text
        assert "gpu-node-03" in text
        assert "src=" not in text
    assert json.loads((tmp_path / "digest.json").read_bytes())["format"] == 1


BROKEN = VARIANTS["detector-off"]()
ABORTED = [*passing(), Timed(40, Aborted(by="operator", why="Ctrl-C"))]
REFUSED = [
    *cut_off(passing(), 7.95),
    Timed(7.96, Refused(why="held")),
    Timed(8, RunEnded(cleanliness=Cleanliness.CLEAN)),
]


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([passing()], 0),
        ([BROKEN], 1),
        ([passing(), ABORTED], 3),
        ([BROKEN, ABORTED], 3),
        ([passing(), REFUSED], 2),
        ([REFUSED], 5),
    ],
)
def test_the_exit_code_is_the_worst_of_the_window(tmp_path: Path, runs: list[list[Timed]], code: int) -> None:
    for days, events in enumerate(runs):
        put(tmp_path, days, events)
    assert cli.run(["digest", str(tmp_path), "--days", "3660"]) == code


def test_a_run_that_is_not_provably_clean_outweighs_a_broken_one(tmp_path: Path) -> None:
    put(tmp_path, -1, replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=Cleanliness.UNKNOWN))
    put(tmp_path, 0, BROKEN)
    assert cli.run(["digest", str(tmp_path), "--days", "3660"]) == 2


def test_an_empty_window_is_unknown(tmp_path: Path) -> None:
    assert cli.run(["digest", str(tmp_path)]) == 2


def test_a_folder_that_is_not_there_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["index", str(tmp_path / "no")]) == 64
    assert "give the folder" in capsys.readouterr().err


def test_the_cost_of_the_window_stands_beside_what_it_would_have_been_unnoticed(tmp_path: Path) -> None:
    terms = OutageTerms(price_per_gpu_hour=2.0, currency="<EUR>", hours_until_noticed=8)
    put(tmp_path, -30, passing(), trigger="manual", outage_terms=terms)
    put(tmp_path, -1, cut_off(passing(), 12.5), trigger="manual", outage_terms=terms)
    put(tmp_path, 0, passing(), trigger="manual", outage_terms=terms)
    made = digest(tmp_path)
    (total,) = made.outages
    assert (total.known, total.unknown) == (1, 1)
    assert total.unnoticed_gpu_hours == pytest.approx((total.gpu_hours or 0) + 64)
    page = render_digest(tmp_path, made, WEEK_END).html.read_text()
    assert "This is an assumption: a person notices after 8 hours" in page
    assert "of 1 run it is not known" in page
    assert "<EUR>" not in page
    assert "&lt;EUR&gt;" in page
