"""A season's page: drawn from what is on disk, safe whatever is in it, and an answer in a sentence."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from gameday.coverage.matrix import matrix_of
from gameday.coverage.page import RenderedSeason, headline, render_season
from gameday.history.events import AlertSeen, TaintSeen
from gameday.season.record import Assignment, LeftOut, SeasonRecord, WatchingGuest
from tests.coverage.builders import plan, stored
from tests.report.run_builder import NODE, START, at, passing, without, write

HOSTILE = "<script>alert(1)</script>\x1b[31m"


def season(folder: Path, *places: Assignment, stopped: str = "") -> RenderedSeason:
    record = SeasonRecord(
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
    record.save(folder)
    return render_season(folder, at(100))


def place_of(run_id: str) -> Assignment:
    return Assignment(run_id=run_id, plan="lost", asked_as="lost", targets=(NODE,))


@pytest.fixture
def rendered(tmp_path: Path) -> RenderedSeason:
    write(tmp_path / "s-01", passing(), plan=plan())
    return season(tmp_path / "s", place_of("s-01"), place_of("s-02"), stopped="operator: SIGINT received")


def test_the_page_links_each_fault_to_its_runs_report(rendered: RenderedSeason) -> None:
    (row,) = rendered.coverage.matrix.rows
    assert f'href="../{row.run_id}/report.html"' in rendered.html.read_text()


def test_the_guest_that_watched_is_named_everywhere(tmp_path: Path) -> None:
    write(tmp_path / "s-01", passing(), plan=plan())
    season(tmp_path / "s", place_of("s-01"))
    guest = WatchingGuest(name="npd", version="v1 (commit 6632ca6)")
    SeasonRecord.load(tmp_path / "s").model_copy(update={"guest": guest}).save(tmp_path / "s")
    rendered = render_season(tmp_path / "s", at(100))
    assert "watched by npd v1 (commit 6632ca6), a guest" in rendered.html.read_text()
    assert "npd v1" in rendered.markdown
    assert json.loads(rendered.json.read_bytes())["record"]["guest"]["version"] == "v1 (commit 6632ca6)"


def test_the_page_fetches_nothing(rendered: RenderedSeason) -> None:
    page = rendered.html.read_text()
    assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"|url\(|@import', page) == []


def test_hostile_text_stays_text(rendered: RenderedSeason) -> None:
    page = rendered.html.read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page


def test_the_artifact_says_the_gaps_in_words_and_links_the_page(tmp_path: Path) -> None:
    quiet = without(passing(), lambda event: isinstance(event, TaintSeen))
    write(tmp_path / "s-01", quiet, plan=plan())
    made = season(tmp_path / "s", place_of("s-01"))
    assert f"]({made.html.as_uri()})" in made.markdown
    assert "- **lost: taint missed.**" in made.markdown
    rows = [line for line in made.markdown.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    assert [line.split(" |")[0] for line in rows[2:]] == ["| lost"]


def test_the_artifact_keeps_hostile_text_text(rendered: RenderedSeason) -> None:
    left = (LeftOut(plan="<img src=x>|[a](b)", title="t", why="# no"),)
    made = dataclasses.replace(rendered, coverage=rendered.coverage.model_copy(update={"left_out": left}))
    assert "&lt;img src=x&gt;\\|\\[a\\]" in made.markdown


def test_what_was_not_run_is_named_with_its_reason(rendered: RenderedSeason) -> None:
    assert [(one.plan, one.why) for one in rendered.coverage.left_out] == [
        ("slow", "it may wait too long"),
        ("lost", "operator: SIGINT received"),
    ]
    assert "It may wait too long." in rendered.html.read_text()


def test_a_stopped_seasons_page_shows_what_was_run(rendered: RenderedSeason) -> None:
    assert len(rendered.coverage.matrix.rows) == 1
    assert rendered.result.exit_code == 3


def test_the_json_holds_the_same_as_the_page(rendered: RenderedSeason) -> None:
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
    said = headline(matrix_of(runs).rows)
    assert said == "Of 2 faults that somebody should notice, 1 was noticed; 1 by none."


def test_a_damaged_season_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "season.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        render_season(tmp_path, at(0))
