"""A comparison in the reports folder: one with its game-days, in the copies and in what is deleted."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import gameday.tasks.publish
from gameday import cli
from gameday.cluster.profile import ClusterProfile
from gameday.errors import PublishError
from gameday.history.events import RunEnded
from gameday.report.notes import NOTES_FILE
from gameday.runs.catalog import read_catalog
from gameday.runs.comparison_page import render_comparison
from gameday.runs.comparison_record import ComparisonRecord, comparisons
from gameday.runs.publish import publish, publish_pages
from gameday.runs.retention import decide_retention
from gameday.runs.season_page import render_season
from gameday.tasks.compare import publish_comparison
from gameday.values.results import Cleanliness
from tests.report.page import Page
from tests.report.run_builder import START, passing, replacing, without
from tests.runs.comparison_builders import arm, record, write_record
from tests.runs.row_builders import run_named
from tests.runs.test_arms_in_a_season import armed, season

NOWHERE: Any = {"url": "http://127.0.0.1:1"}


def compared(reports: Path, id: str = "arms-two", *, hours: float = 0, **changes: Any) -> Path:
    """Write a comparison of two arms that both ran, beginning so many hours after START."""
    update = {"id": id, "started": START + timedelta(hours=hours), **changes}
    folder = write_record(reports, record(arm("a"), arm("b")).model_copy(update=update))
    for run in ComparisonRecord.load(folder).runs:
        run_named(folder, run.run_id)
    render_comparison(folder, START)
    return folder


def links(page: Path) -> list[Path]:
    """Return the files that a page links to, without those of the web and of the page itself."""
    tags = Page(page.read_text(encoding="utf-8")).tags
    found = [attributes.get("href") or "" for tag, attributes in tags if tag == "a"]
    return [page.parent / href for href in found if href and not href.startswith(("#", "http"))]


def deletable(reports: Path, keep: int = 1, days: int = 30) -> dict[str, bool]:
    decisions = decide_retention(read_catalog(reports), keep, timedelta(days=days), START + timedelta(days=365))
    return {one.folder.name: one.deletable for one in decisions}


def test_a_published_comparisons_links_lead_to_its_published_game_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked: dict[str, str] = {}
    monkeypatch.setattr(gameday.tasks.publish, "show_page", lambda key, words, url, why: linked.update({key: url}))
    folder, url = compared(tmp_path / "reports"), f"file://{tmp_path}/out"
    for run in folder.glob("arms-1-*"):
        (run / "report.html").touch()
        assert publish(run, url).endswith(f"/out/arms-two/{run.name}")
    before = sorted((tmp_path / "out" / "arms-two").iterdir())
    profile = ClusterProfile(prometheus=NOWHERE, alertmanager=NOWHERE, loki=NOWHERE, publish_to=url)
    _, link = publish_comparison(profile, folder)
    assert link == linked["published-report"] == f"{url}/arms-two/comparison.html"
    page = tmp_path / "out" / "arms-two" / "comparison.html"
    assert len(links(page)) == 2
    assert all(link.is_file() for link in links(page))
    assert page.with_suffix(".json").is_file()
    assert cli.run(["index", str(folder.parent)]) == 0
    publish_pages(folder.parent, ["index.html"], url)
    assert links(tmp_path / "out" / "index.html") == [page]
    assert set(before) < set(page.parent.iterdir())


def test_a_copy_is_renewed_but_never_replaces_another_comparison(tmp_path: Path) -> None:
    folder, url = compared(tmp_path / "ours"), "memory://bucket/comparisons"
    publish(folder, url)
    ended = ComparisonRecord.load(folder).model_copy(update={"ended": START + timedelta(hours=9)})
    ended.save(folder)
    publish(folder, url)
    with pytest.raises(PublishError, match="another comparison"):
        publish(compared(tmp_path / "theirs", cluster="other"), url)


def test_gameday_export_publishes_a_comparison_and_nothing_else_of_it(tmp_path: Path) -> None:
    folder, out = compared(tmp_path / "reports"), tmp_path / "out"
    assert cli.run(["export", str(folder), "--publish-to", f"file://{out}"]) == 0
    assert (out / "arms-two" / "arms-1-a" / "history.jsonl").is_file()
    assert cli.run(["export", str(folder), "--junit", str(out / "j.xml")]) == 64


def test_the_newest_comparisons_of_a_plan_stay_and_older_ones_go_whole(tmp_path: Path) -> None:
    for number in range(3):
        compared(tmp_path, f"arms-{number}", hours=number)
    run_named(tmp_path, "alone")
    assert deletable(tmp_path, keep=2) == {"alone": False, "arms-0": True, "arms-1": False, "arms-2": False}
    assert not any(deletable(tmp_path, days=400).values())
    assert cli.run(["prune", str(tmp_path), "--keep", "2", "--days", "30", "--delete"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "arms-1", "arms-2"]


@pytest.mark.parametrize("of", ["notes", "dirty", "unclosed", "not ended", "renamed", "no page"])
def test_a_comparison_stays_while_one_of_its_game_days_must(tmp_path: Path, of: str) -> None:
    compared(tmp_path, "arms-new", hours=1)
    folder = compared(tmp_path, "arms-old", **({"ended": None} if of == "not ended" else {}))
    assert deletable(tmp_path)["arms-old"] is (of != "not ended")
    if of == "notes":
        (folder / "arms-1-b" / NOTES_FILE).write_text("summary: the rack was hot\n")
    elif of == "dirty":
        run_named(
            folder, "arms-1-b", replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=Cleanliness.DIRTY)
        )
    elif of == "unclosed":
        run_named(folder, "arms-1-b", without(passing(), lambda e: isinstance(e, RunEnded)))
    elif of == "renamed":
        folder = folder.rename(tmp_path / "for-the-talk")
    elif of == "no page":
        (folder / "comparison.json").unlink()
    assert not deletable(tmp_path).get(folder.name)


def test_pages_that_stay_have_no_link_to_what_is_gone(tmp_path: Path) -> None:
    plan = armed(repetitions=1)
    played = season(plan)
    played.save(tmp_path / "season-1")
    (made,) = comparisons(played, [plan])
    made.model_copy(update={"ended": START}).save(tmp_path / made.id)
    for run in played.places:
        run_named(tmp_path / made.id, run.run_id)
        (tmp_path / made.id / run.run_id / "report.html").touch()
    render_comparison(tmp_path / made.id, START)
    render_season(tmp_path / "season-1", START)
    assert cli.run(["index", str(tmp_path)]) == 0
    pages = [tmp_path / "index.html", tmp_path / "season-1" / "coverage.html"]
    assert [len(links(page)) for page in pages] == [1, 3]
    assert all(link.is_file() for page in pages for link in links(page))
    shutil.copytree(tmp_path / made.id, tmp_path / "newer")
    newer = made.model_copy(update={"id": "newer", "started": datetime.now(UTC), "ended": datetime.now(UTC)})
    newer.save(tmp_path / "newer")
    render_comparison(tmp_path / "newer", START)
    assert cli.run(["prune", str(tmp_path), "--keep", "1", "--days", "1", "--delete"]) == 0
    assert not (tmp_path / made.id).exists()
    assert [link.name for page in pages for link in links(page)] == ["comparison.html"]
    assert all(link.is_file() for page in pages for link in links(page))
