"""The report in a real browser with the network cut: nothing asked for, nothing run, nothing wider than its screen."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gameday.report.render import render
from gameday.runs.by_detector import compare_detectors
from gameday_rehearsal.programs import search
from tests.report import around
from tests.report import run_builder as build
from tests.report.test_report_survives import HOSTILE, hostile_run, metrics
from tests.runs.row_builders import plan
from tests.runs.test_by_detector import season

pytestmark = pytest.mark.browser
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = search("chromium")
    if program is None:
        pytest.skip("no Chromium on PATH or in .tools; install the package chromium")
    with playwright.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=str(program), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=["light"])
def scheme(request):
    return request.param


@pytest.fixture(params=[1280, 390])
def opened(browser, request, scheme):
    viewport = {"width": request.param, "height": 900}
    context = browser.new_context(viewport=viewport, color_scheme=scheme, offline=True)
    tab = context.new_page()
    tab.said, tab.asked, tab.popped = [], [], []
    tab.on("console", lambda message: tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.on("request", lambda asked: tab.asked.append(asked.url))
    tab.on("dialog", lambda dialog: (tab.popped.append(dialog.message), dialog.dismiss()))
    yield tab
    context.close()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Renders a run once, however many screens look at it."""

    @functools.cache
    def draw(name: str) -> Path:
        folder = tmp_path_factory.mktemp("run")
        if name in build.VARIANTS:
            build.write(folder, [*build.VARIANTS[name](), *around.events()], around.frames())
            (folder / "notes.yaml").write_text(around.NOTES)
        else:
            text = HOSTILE[int(name)]
            rows = [(t, gpu, text, t % 5 + 1.0) for t in range(5, 40) for gpu in ("5", text)]
            plan = build.PLAN.model_copy(update={"title": text[:200], "hypothesis": text[:4000]})
            build.write(folder, hostile_run(text), metrics(*rows), plan)
            (folder / "plan.yaml").write_text(text)
        return render(folder, NOW).html

    return draw


@dataclass
class Printed:
    """Return what Chromium prints on A4: the objects of its pages, and the headings in their order."""

    pages: list[bytes]
    headings: list[str]


def printed(tab) -> Printed:
    """Print a page as a person does; the outline of a PDF has the headings of its pages, the page's own last."""
    pdf = tab.pdf(format="A4", outline=True, tagged=True)
    titles = re.findall(rb"/Title \(([^)]*)\)", pdf)
    return Printed(re.findall(rb"/Type /Page\b", pdf), [title.decode() for title in titles])


def look(tab, html: Path) -> None:
    tab.goto(html.as_uri())
    assert tab.said == []
    assert tab.asked == [html.as_uri()]
    assert tab.popped == []
    assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"


@pytest.mark.parametrize(
    ("variant", "word"), [("passing", "Passed"), ("detector-off", "Failed"), ("killed", "Unknown")]
)
def test_the_verdict_is_seen_and_nothing_is_asked_for(opened, drawn, variant, word):
    look(opened, drawn(variant))
    assert opened.get_by_role("status").inner_text() == word
    assert opened.locator("#gpus svg.chart-svg[role=img]").count() == 6
    assert opened.get_by_role("navigation").is_visible()


@pytest.mark.parametrize("opened", [1440], indirect=True)
def test_one_sheet_holds_the_summary_and_with_a_section_unfolded_all_of_it(opened, drawn):
    look(opened, drawn("passing"))
    sheet = printed(opened)
    assert len(sheet.pages) == 1
    # The verdict's own heading is for screen readers.
    assert set(sheet.headings[:-1]) == {"Expectations", "Detection chain", "Actions"}
    opened.emulate_media(media="print")
    assert opened.get_by_role("status").is_visible()
    assert opened.locator("#verdict .lanes tbody tr").first.is_visible()
    assert not opened.get_by_text("Seen by").first.is_visible()
    opened.locator("#timeline summary").evaluate("one => one.parentElement.open = true")
    assert opened.get_by_text("Seen by").first.is_visible()
    assert "Timeline" in printed(opened).headings


@pytest.mark.parametrize("variant", ["passing", "killed"])
@pytest.mark.parametrize("opened", [1280], indirect=True)
def test_no_bar_leaves_its_track(opened, drawn, variant):
    """In the killed run a pod leaves after the last link of the chain, where the chain's axis has ended."""
    look(opened, drawn(variant))
    past = """() => {
      document.querySelectorAll('details').forEach(one => one.open = true);
      const right = one => one.getBoundingClientRect().right;
      return [...document.querySelectorAll('.track .bar')].map(bar => right(bar) - right(bar.parentElement));
    }"""
    beyond = opened.evaluate(past)
    assert len(beyond) > 10
    assert max(beyond) <= 3  # the least width of a bar, in pixels


@pytest.mark.parametrize("number", range(len(HOSTILE)))
@pytest.mark.parametrize("opened", [390], indirect=True)
def test_hostile_text_runs_nothing(opened, drawn, number):
    look(opened, drawn(str(number)))
    assert opened.get_by_role("status").is_visible()
    assert opened.title() != "owned"


def test_the_matrix_of_detectors_fits_its_screen(opened, tmp_path):
    hostile = plan(stays_schedulable_for="5s").model_copy(update={"title": "".join(HOSTILE)[:120]})
    folder = season(tmp_path, "s", (hostile, build.passing()))
    compare_detectors([(f"a-detector-with-a-long-name-{n}", folder) for n in range(6)], tmp_path, NOW)
    page = (tmp_path / "detectors.html").as_uri()
    opened.goto(page)
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert (opened.said, opened.popped, opened.asked) == ([], [], [page])
