"""A league in the reports folder: listed, published and deleted whole, with its seasons and game-days."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from gameday import cli
from gameday.archive.catalog import read_catalog
from gameday.archive.publish import publish, publish_pages
from gameday.archive.retention import decide_retention
from gameday.coverage.page import render_season
from gameday.digest.digest import digest_of
from gameday.errors import PublishError
from gameday.history.events import RunEnded
from gameday.league.page import write_league
from gameday.league.record import LeagueRecord
from gameday.report.notes import NOTES_FILE
from gameday.values.results import Cleanliness
from tests.archive.test_comparisons import deletable, links
from tests.league.builders import NPD, OURS, fault, record, run, season, untainted
from tests.report.run_builder import START, Timed, at, passing, replacing, without

HOSTILE = "<script>alert(1)</script>"
DIRTY = replacing(passing(), lambda event: isinstance(event, RunEnded), cleanliness=Cleanliness.DIRTY)
UNCLOSED = without(passing(), lambda event: isinstance(event, RunEnded))


def league(reports: Path, *, hours: float = 0, events: list[Timed] | None = None, **changes: object) -> Path:
    """Write a league that was played to its end, beginning so many hours after START."""
    started = START + timedelta(hours=hours)
    id = f"league-two-{started:%Y%m%d-%H%M%S}"
    folder = reports / id
    for entry, timed in ((OURS, events or passing()), (NPD, untainted())):
        season(folder, entry, "s", run(folder, entry, "s", "lost", timed))
        render_season(folder / entry.name / "s", START)
    update = {"id": id, "started": started, "ended": started + timedelta(hours=1), **changes}
    played: LeagueRecord = record(fault("lost")).model_copy(update=update)
    write_league(folder, played, at(100))
    return folder


@pytest.mark.slow
def test_the_index_lists_it_with_its_detectors_its_result_and_a_link(tmp_path: Path) -> None:
    folder = league(tmp_path, title=HOSTILE)
    assert cli.run(["index", str(tmp_path)]) == 0
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    (section,) = re.findall(r'<section id="leagues".*?</section>', text, re.DOTALL)
    assert "ours, npd" in section
    assert "ours noticed 1 of 1; npd noticed 0 of 1." in section
    assert "2026-03-03" in section
    assert "&lt;script&gt;" in section
    assert HOSTILE not in text
    assert links(tmp_path / "index.html") == [folder / "league.html"]
    catalog = read_catalog(tmp_path)
    assert (len(catalog.runs), len(catalog.leagues), len(catalog.comparisons)) == (0, 1, 0)


def test_a_damaged_record_is_unreadable_and_no_error(tmp_path: Path) -> None:
    folder = league(tmp_path)
    (folder / "league.json").write_text("{", encoding="utf-8")
    catalog = read_catalog(tmp_path)
    assert catalog.unreadable == (f"{folder.name}: its league.json cannot be read",)
    assert cli.run(["index", str(tmp_path)]) == 0
    assert folder.name in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert cli.run(["prune", str(tmp_path), "--keep", "1", "--days", "0", "--delete"]) == 0
    assert folder.is_dir()


def test_the_newest_leagues_of_a_name_stay_and_older_ones_go_whole(tmp_path: Path) -> None:
    folders = [league(tmp_path, hours=hours) for hours in range(3)]
    other = league(tmp_path / "other", hours=-1)
    other.rename(tmp_path / other.name.replace("-two-", "-three-"))
    assert list(deletable(tmp_path, keep=2).values()).count(True) == 1
    assert cli.run(["index", str(tmp_path)]) == 0
    assert cli.run(["prune", str(tmp_path), "--keep", "1", "--days", "30", "--delete"]) == 0
    assert [folder.exists() for folder in folders] == [False, False, True]
    assert folders[2] / "league.html" in links(tmp_path / "index.html")
    assert all(link.is_file() for link in links(tmp_path / "index.html"))


@pytest.mark.parametrize("of", ["notes", "dirty", "unclosed", "not ended", "renamed"])
def test_a_league_stays_while_one_of_its_game_days_must(tmp_path: Path, of: str) -> None:
    league(tmp_path, hours=1)
    events = {"dirty": DIRTY, "unclosed": UNCLOSED}.get(of)
    folder = league(tmp_path, events=events, **({"ended": None} if of == "not ended" else {}))
    if of == "notes":
        assert deletable(tmp_path)[folder.name]
        (folder / "ours" / "s-lost" / NOTES_FILE).write_text("summary: the rack was hot\n", encoding="utf-8")
    elif of == "renamed":
        folder = folder.rename(tmp_path / "for-the-talk")
    decision = next(
        one
        for one in decide_retention(read_catalog(tmp_path), 1, timedelta(days=30), START + timedelta(days=365))
        if one.folder == folder
    )
    assert not decision.deletable
    assert of in ("not ended", "renamed") or "its game-day s-lost: " in decision.why


@pytest.mark.slow
def test_a_published_leagues_links_lead_to_its_published_seasons_and_game_days(tmp_path: Path) -> None:
    folder, url = league(tmp_path / "reports"), f"file://{tmp_path}/out"
    assert cli.run(["export", str(folder), "--publish-to", url]) == 0
    page = tmp_path / "out" / folder.name / "league.html"
    found = links(page)
    assert {link.name for link in found} == {"coverage.html", "report.html"}
    assert len(found) == 4
    assert all(link.is_file() for link in found)
    assert publish(folder / "ours" / "s-lost", url).endswith(f"/out/{folder.name}/ours/s-lost")
    assert cli.run(["index", str(folder.parent)]) == 0
    publish_pages(folder.parent, ["index.html"], url)
    assert links(tmp_path / "out" / "index.html") == [page]
    assert cli.run(["export", str(folder), "--junit", str(tmp_path / "j.xml")]) == 64


@pytest.mark.slow
def test_a_copy_is_renewed_but_never_replaces_another_league(tmp_path: Path) -> None:
    folder, url = league(tmp_path / "ours"), "memory://bucket/leagues"
    publish(folder, url)
    publish(folder, url)
    with pytest.raises(PublishError, match="another league"):
        publish(league(tmp_path / "theirs", source="kind: League  # of somebody else"), url)


def test_the_digest_counts_its_plans_as_played_and_names_what_was_left_dirty(tmp_path: Path) -> None:
    folder = league(tmp_path, events=DIRTY)
    digest = digest_of(read_catalog(tmp_path), [], START, START + timedelta(days=1))
    assert digest.problems == (f"League {folder.name}: 1 game-day left a node dirty",)
    assert read_catalog(tmp_path).leagues[0].plans == {"lost"}


@pytest.mark.slow
def test_gameday_report_says_what_draws_a_leagues_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = league(tmp_path)
    assert cli.run(["report", str(folder)]) == 64
    assert f"`gameday league --again {folder}` draws its page" in capsys.readouterr().err
