"""The league's page and its Markdown: escaped, linked to the runs, and drawn again from what is on disk."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from markupsafe import escape

from gameday.documents.source import parse
from gameday.errors import DocumentError
from gameday.league.document import parse_league
from gameday.league.page import RenderedLeague, render_league, write_league
from gameday.league.record import load_record
from tests.coverage.builders import plan
from tests.league.builders import NPD, OURS, consulted, fault, record, run, season, untainted
from tests.report.run_builder import at, passing

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def rendered(tmp_path: Path) -> RenderedLeague:
    season(tmp_path, OURS, "s", run(tmp_path, OURS, "s", "lost", passing()))
    missed = plan("lost", conditions=[{"type": "Gpu", "status": "True", "within": "10s"}])
    season(tmp_path, NPD, "s", run(tmp_path, NPD, "s", "lost", untainted(consulted(True)), missed))
    npd = NPD.model_copy(update={"version": HOSTILE})
    mine = record(fault("lost", title=HOSTILE), entries=(OURS, npd), source=f"kind: League  # {HOSTILE}")
    return write_league(tmp_path, mine, at(100))


def test_each_cell_links_its_runs_report(rendered: RenderedLeague) -> None:
    page = rendered.html.read_text()
    for link in ("ours/s-lost/report.html", "npd/s-lost/report.html", "npd/s/coverage.html"):
        assert f'href="{link}"' in page
        assert link.endswith("coverage.html") or (rendered.html.parent / link).is_file()


def test_hostile_text_stays_text_and_nothing_is_fetched(rendered: RenderedLeague) -> None:
    page = rendered.html.read_text()
    assert "<script>alert(1)" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 3
    assert re.findall(r'(?:src|href)="(?:https?:)?//[^"]*"|url\(|@import', page) == []


def test_what_was_missed_is_said_in_words(rendered: RenderedLeague) -> None:
    assert "npd, lost: missed." in rendered.html.read_text()


def test_why_a_cell_is_as_it_is_can_be_read_without_a_mouse(rendered: RenderedLeague) -> None:
    page = rendered.html.read_text()
    reasons = page.partition('<section id="reasons"')[2].partition("</section>")[0]
    told = [cell for row in rendered.content.table.rows for cell in row.cells if cell.reason]
    assert len(told) >= 2
    assert reasons.count("<li>") == len(told)
    for cell in told:
        assert f"{cell.plan}: {cell.state}." in reasons
        assert str(escape(cell.reason[1:])) in reasons
    assert "title=" not in page.partition("<main")[2]


def test_the_page_is_drawn_again_from_disk(rendered: RenderedLeague) -> None:
    again = render_league(rendered.html.parent, at(100))
    assert again.content == rendered.content
    assert json.loads(again.json.read_bytes())["table"]["rows"][0]["cells"][0]["state"] == "noticed"
    assert load_record(rendered.html.parent) == rendered.content.record


def test_the_markdown_is_dated_and_its_tables_are_whole(rendered: RenderedLeague) -> None:
    text = rendered.markdown
    assert "2026-03-03" in text
    assert "<script>" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.count("|") for line in tables] == [8] * 4 + [5] * 3
    assert any(line.startswith("| lost | kernel log |") for line in tables)


def test_a_damaged_record_is_a_value_error(tmp_path: Path) -> None:
    (tmp_path / "league.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        render_league(tmp_path, at(0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("guests: [ours, ours]", "named twice"),
        ("guests: []", "guests"),
        ("guests: [konduktor]", "guests"),
        ("guests: [ours]\nnode: 3", "nodes"),
    ],
)
def test_a_wrong_document_names_file_and_line(text: str, said: str) -> None:
    head = "apiVersion: gameday/v1\nkind: League\nname: one\n"
    with pytest.raises(DocumentError, match=said) as error:
        parse_league(parse(head + text, "league.yaml"), Path("league.yaml"))
    assert str(error.value).startswith("league.yaml:")
