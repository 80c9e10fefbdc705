"""A comparison's page: drawn from what is on disk, whole without scripts, safe whatever is in it."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gameday.cli import run
from gameday.cli.season_view import SeasonView
from gameday.history.events import AlertSeen
from gameday.plan.arms import PublishedFigure
from gameday.report.render import render
from gameday.runs.catalog import read_catalog
from gameday.runs.comparison import Comparison
from gameday.runs.comparison_page import render_comparison, result_of_member
from gameday.runs.index import render_index
from gameday.runs.pages import RenderedPage
from tests.report.page import Page
from tests.report.run_builder import at, passing, without, write
from tests.runs.comparison_builders import arm, record, write_record

HOSTILE = "<script>alert(1)</script>\x1b[31m"
NO_ALERT = without(passing(), lambda event: isinstance(event, AlertSeen))
FREE = ("alert-fires", "alert-resolves")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two arms of which the second saw no alert, as it may, and a third that was not played."""
    content = record(arm("a", title=HOSTILE), arm("b", may_break=FREE), arm("c"), title=HOSTILE, stopped=HOSTILE)
    published = (
        PublishedFigure(figure="time to taint", value="within a minute", source=HOSTILE),
        PublishedFigure(figure="never measured", value="42", source="a talk"),
    )
    content = content.model_copy(update={"published": published})
    made = write_record(tmp_path, content)
    write(made / "arms-1-a", passing())
    write(made / "arms-1-b", NO_ALERT)
    return made


@pytest.fixture
def rendered(folder: Path) -> RenderedPage[Comparison]:
    return render_comparison(folder, at(100))


def test_each_arm_has_its_column_and_links_to_its_reports(rendered: RenderedPage[Comparison]) -> None:
    page = Page(rendered.html.read_text(encoding="utf-8"))
    links = [attributes.get("href") for tag, attributes in page.tags if tag == "a"]
    assert "arms-1-a/report.html" in links
    assert "arms-1-b/report.html" in links
    assert "arms-1-c/report.html" not in links
    assert "Not played" in page.text()
    assert not page.unbalanced


def test_durations_and_figures_are_rows(rendered: RenderedPage[Comparison]) -> None:
    figures = {row.name: row for row in rendered.content.figures}
    assert figures["time to taint"].cells[0].median is not None
    assert figures["time to alert"].cells[1].median is None
    assert figures["QA: GEMM BF16"].unit == "TFLOP/s"


def test_what_others_published_is_beside_the_figure_or_is_unmeasured(
    rendered: RenderedPage[Comparison],
) -> None:
    text = Page(rendered.html.read_text(encoding="utf-8")).text()
    assert "published: within a minute" in text
    assert "Published, and not measured here: never measured: 42 (a talk)" in text


def test_nothing_of_the_record_becomes_markup(rendered: RenderedPage[Comparison]) -> None:
    text = rendered.html.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "\x1b" not in text


def test_an_arms_excuse_counts_in_the_result_and_not_in_the_runs_own(rendered: RenderedPage[Comparison]) -> None:
    row = rendered.content.arms[1].runs[0]
    assert (row.outcome, row.own_outcome) == ("passed", "failed")
    assert result_of_member(rendered.html.parent, row.run_id).outcome == "passed"


def test_the_live_line_has_the_outcome_of_the_arm(rendered: RenderedPage[Comparison]) -> None:
    folder, written = rendered.html.parent, StringIO()
    render(folder / "arms-1-b", at(100))
    view = SeasonView(folder.parent, "arms", Console(file=written, width=200), folder)
    view.stopped.set()
    view.follow()
    assert " passed  " in written.getvalue()
    assert "failed" not in written.getvalue()


def test_the_json_says_what_the_page_says(rendered: RenderedPage[Comparison]) -> None:
    content = json.loads(rendered.json.read_bytes())
    assert [column["arm"]["name"] for column in content["arms"]] == ["a", "b", "c"]
    assert content["result"]["exit_code"] == 3


def test_gameday_report_draws_it_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(folder)]) == 3
    assert (folder / "comparison.html").is_file()
    said = " ".join(capsys.readouterr().out.split())
    assert "not played" in said
    assert "ABORTED" in said


def test_a_damaged_record_is_an_error_a_person_can_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "arms.json").write_text("{}", encoding="utf-8")
    assert run(["report", str(folder)]) == 64
    assert "arms.json is damaged" in capsys.readouterr().err


def test_the_index_lists_a_comparison_and_the_digest_counts_none_of_its_game_days(
    rendered: RenderedPage[Comparison],
) -> None:
    reports = rendered.html.parent.parent
    catalog = read_catalog(reports)
    assert (len(catalog.runs), len(catalog.comparisons), catalog.unreadable) == (0, 1, ())
    index = render_index(reports, catalog, at(100)).read_text(encoding="utf-8")
    assert 'href="arms-two/comparison.html"' in index
    assert "<script>alert" not in index
    rendered.json.write_text("[]", encoding="utf-8")
    assert "gameday report" in read_catalog(reports).unreadable[0]
