"""A season's page: drawn from what is on disk, safe whatever is in it, and an answer in a sentence."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.history.events import AlertSeen, Refused, TaintSeen
from gameday.runs.matrix import joined, matrix_of
from gameday.runs.pages import RenderedPage
from gameday.runs.season_page import Coverage, headline, render_season
from gameday.runs.season_record import (
    Assignment,
    DrawnNotPlaced,
    DrawnTime,
    LeftOut,
    RandomSettings,
    SeasonRecord,
    WatchingGuest,
)
from tests.report.run_builder import NODE, START, Timed, at, passing, without, write
from tests.runs.row_builders import plan, stored
from tests.support.tmpfs import fill, tmpfs

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def season_record(folder: Path, *places: Assignment, stopped: str = "") -> SeasonRecord:
    return SeasonRecord(
        id=folder.name,
        cluster=HOSTILE,
        trigger="manual",
        command="gameday coverage",
        seed=7,
        at_once=4,
        started=START,
        ended=at(90),
        places=places,
        left_out=(LeftOut(plan="slow", title=HOSTILE, why="it may wait too long"),),
        stopped=stopped,
    )


def season(folder: Path, *places: Assignment, stopped: str = "") -> RenderedPage[Coverage]:
    season_record(folder, *places, stopped=stopped).save(folder)
    return render_season(folder, at(100))


def place_of(run_id: str) -> Assignment:
    return Assignment(run_id=run_id, plan="lost", asked_as="lost", targets=(NODE,))


@pytest.fixture
def rendered(tmp_path: Path) -> RenderedPage[Coverage]:
    write(tmp_path / "s-01", passing(), plan=plan())
    return season(tmp_path / "s", place_of("s-01"), place_of("s-02"), stopped="operator: SIGINT received")


def test_a_season_keeps_its_result_where_its_page_finds_no_room(tmp_path: Path) -> None:
    with tmpfs(tmp_path, "size=1m") as small:
        write(small / "s-01", passing(), plan=plan())
        season_record(small / "s", place_of("s-01"), stopped="").save(small / "s")
        fill(small, leave_bytes=8192)
        rendered = render_season(small / "s", at(100))
        assert not rendered.html.exists()
    assert rendered.content.result.why.startswith("1 game-day: 1 passed")
    assert rendered.unwritten.startswith(f"Not written: {rendered.html}: no space left on device; make room there")


def test_the_page_links_each_fault_to_its_runs_report(rendered: RenderedPage[Coverage]) -> None:
    (row,) = rendered.content.matrix.rows
    assert f'href="../{row.run_id}/report.html"' in rendered.html.read_text()


def test_the_guest_that_watched_is_named_everywhere(tmp_path: Path) -> None:
    write(tmp_path / "s-01", passing(), plan=plan())
    season(tmp_path / "s", place_of("s-01"))
    guest = WatchingGuest(name="npd", version="v1 (commit 6632ca6)")
    SeasonRecord.load(tmp_path / "s").model_copy(update={"guest": guest}).save(tmp_path / "s")
    rendered = render_season(tmp_path / "s", at(100))
    assert "watched by npd v1 (commit 6632ca6), a guest" in rendered.html.read_text()
    assert "npd v1" in rendered.content.markdown
    assert json.loads(rendered.json.read_bytes())["record"]["guest"]["version"] == "v1 (commit 6632ca6)"


def test_the_page_fetches_nothing(rendered: RenderedPage[Coverage]) -> None:
    page = rendered.html.read_text()
    assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"|url\(|@import', page) == []


def test_hostile_text_stays_text(rendered: RenderedPage[Coverage]) -> None:
    page = rendered.html.read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page


def test_the_artifact_says_the_gaps_in_words_and_links_the_page(tmp_path: Path) -> None:
    quiet = without(passing(), lambda event: isinstance(event, TaintSeen))
    write(tmp_path / "s-01", quiet, plan=plan())
    made = season(tmp_path / "s", place_of("s-01"))
    assert "file:" not in made.content.markdown, "no browser opens it from Prefect's page"
    assert "- **lost: taint missed.**" in made.content.markdown
    rows = [line for line in made.content.markdown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert [line.split(" |")[0] for line in rows[2:]] == ["| lost"]


def test_the_artifact_keeps_hostile_text_text(rendered: RenderedPage[Coverage]) -> None:
    left = (LeftOut(plan="<img src=x>|[a](b)", title="t", why="# no"),)
    made = rendered.content.model_copy(update={"left_out": left})
    assert "&lt;img src=x&gt;\\|\\[a\\]" in made.markdown


def test_what_was_not_run_is_named_with_its_reason(rendered: RenderedPage[Coverage]) -> None:
    assert [(one.plan, one.why) for one in rendered.content.left_out] == [
        ("slow", "it may wait too long"),
        ("lost", "operator: SIGINT received"),
    ]
    assert "It may wait too long." in rendered.html.read_text()


def test_a_stopped_seasons_page_shows_what_was_run(rendered: RenderedPage[Coverage]) -> None:
    assert len(rendered.content.matrix.rows) == 1
    assert rendered.content.result.exit_code == 3


def test_the_json_holds_the_same_as_the_page(rendered: RenderedPage[Coverage]) -> None:
    content = json.loads(rendered.json.read_bytes())
    (row,) = content["matrix"]["rows"]
    assert [cell["signal"] for cell in row["cells"]][:3] == ["log", "metric", "alert"]
    assert content["record"]["seed"] == 7


def test_every_gap_says_what_to_do(tmp_path: Path) -> None:
    quiet = without(passing(), lambda event: isinstance(event, TaintSeen))
    write(tmp_path / "s-01", quiet, plan=plan())
    page = season(tmp_path / "s", place_of("s-01")).html.read_text()
    assert "lost: taint missed." in page
    assert "New work still lands on the broken node" in page


def test_the_headline_counts_faults_and_not_signals() -> None:
    silent = without(passing(), lambda event: isinstance(event, TaintSeen | AlertSeen))
    runs = [stored(plan("seen"), run_id="a"), stored(plan("missed"), silent, run_id="b")]
    said = headline(joined(map(matrix_of, runs)).rows)
    assert said == "Of 2 faults that somebody should notice, 1 was noticed; 1 by none."


def test_a_damaged_season_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "season.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        render_season(tmp_path, at(0))


def random_season(folder: Path) -> RenderedPage[Coverage]:
    """A season that drew five game-days: one passed, one was refused, one came late, and two found no time or nodes."""
    write(folder.parent / "s-01", passing(), plan=plan())
    refused = [Timed(0.2, Refused(why="outside the maintenance window"))]
    write(folder.parent / "s-02", [*passing()[:1], *refused], plan=plan())
    places = [
        place_of(f"s-0{number}").model_copy(update={"drawn": DrawnTime(at_s=at_s, latest_s=3000, seed=number)})
        for number, at_s in ((1, 12.0), (2, 700.0), (3, 2990.0))
    ]
    record = season_record(folder, *places)
    not_placed = [
        DrawnNotPlaced(plan="slow", title="Slow", why="it would pass the end", at_s=3400.0),
        DrawnNotPlaced(plan="wide", title="Wide", why=HOSTILE, at_s=1500.0),
    ]
    random = RandomSettings(
        budget=timedelta(hours=1), mean_gap=timedelta(minutes=5), not_placed=tuple(not_placed), late=("s-03",)
    )
    record.model_copy(update={"random": random, "command": "gameday season --random --seed 7"}).save(folder)
    return render_season(folder, at(100))


def test_a_random_season_says_of_each_draw_what_became_of_it(tmp_path: Path) -> None:
    rendered = random_season(tmp_path / "s")
    drawn = [(one.at_s, one.plan, one.outcome, one.why) for one in rendered.content.drawn]
    assert [one[:3] for one in drawn] == [
        (12.0, "lost", "passed"),
        (700.0, "lost", "refused"),
        (1500.0, "wide", "not played"),
        (2990.0, "lost", "not played"),
        (3400.0, "slow", "not played"),
    ]
    assert "outside the maintenance window" in drawn[1][3]
    assert "by its turn its usual duration would have passed the end of the budget" in drawn[3][3]
    assert [one.plan for one in rendered.content.left_out] == ["slow"]


def test_a_random_season_names_its_seed_and_the_command_that_plays_it_again(tmp_path: Path) -> None:
    rendered = random_season(tmp_path / "s")
    said = "A random season (seed 7, budget 3600s, mean gap 300s): 5 drawn, 1 played, 4 not."
    page = rendered.html.read_text()
    for where in (page, rendered.content.markdown.replace("\\", "")):
        assert said in where
        assert "gameday season --random --seed 7" in where
    assert page.index(said) < page.index('id="drawn"') < page.index('id="matrix"')
    assert "- wide, drawn for 25 min 00 s:" in rendered.content.markdown
    assert "<script>alert(1)" not in page


def test_another_season_says_nothing_of_a_draw(rendered: RenderedPage[Coverage]) -> None:
    assert rendered.content.drawn == ()
    assert 'id="drawn"' not in rendered.html.read_text()
    assert "random" not in rendered.content.markdown
