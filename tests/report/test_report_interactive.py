"""What the page's own script adds, in a real browser with the network cut; and that nothing is missing without it."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from gameday.report.render import render
from tests.report import around
from tests.report import run_builder as build
from tests.report.test_report_browser import browser  # noqa: F401

pytestmark = pytest.mark.browser
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    folder = build.write(tmp_path_factory.mktemp("run"), [*build.passing(), *around.events()], around.frames())
    (folder / "notes.yaml").write_text(around.NOTES)
    return render(folder, NOW).html


@pytest.fixture
def tab(browser, html, request):  # noqa: F811
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, offline=True, **getattr(request, "param", {})
    )
    tab = context.new_page()
    tab.goto(html.as_uri())
    open_all(tab)
    yield tab
    context.close()


def open_all(tab) -> None:
    """Open every section, as a person does who clicks on each title."""
    for title in tab.locator("details.depth > summary").all():
        title.click()


def chart(tab, metric: str):
    return tab.locator("figure", has_text=metric)


def point(tab, metric: str, share: float) -> None:
    """Point at this share of the chart's plot."""
    plot = chart(tab, metric).locator("svg.plot").bounding_box()
    tab.mouse.move(plot["x"] + plot["width"] * share, plot["y"] + plot["height"] / 2)


def readout(tab, metric: str) -> str:
    return chart(tab, metric).locator(".readout").inner_text()


def power(gpu: int, t: float) -> float:
    """The sample nearest to t seconds after the fault, as the frames have it."""
    frame = build.frames().metrics
    rows = frame[(frame["metric"] == "DCGM_FI_DEV_POWER_USAGE") & (frame["gpu"] == str(gpu))]
    away = ((rows["time"] - build.at(build.FAULT_AT)).dt.total_seconds() - t).abs()
    return rows.loc[away.idxmin(), "value"]


def test_pointing_at_a_chart_shows_the_samples_there(tab):
    chart(tab, "DCGM_FI_DEV_POWER_USAGE").scroll_into_view_if_needed()
    point(tab, "DCGM_FI_DEV_POWER_USAGE", 0.25)
    said = readout(tab, "DCGM_FI_DEV_POWER_USAGE")
    t = float(re.match(r"T−([\d.]+) s", said)[1])
    shown = float(re.search(r"GPU 5 ([\d.]+)", said)[1])
    assert shown == pytest.approx(power(5, -t), rel=1e-5)
    assert said.endswith(" W")
    assert readout(tab, "DCGM_FI_DEV_GPU_TEMP").startswith(said[: said.index(":")])  # one cursor over all charts


def test_where_no_sample_was_nothing_is_made_up(tab):
    chart(tab, "DCGM_FI_DEV_POWER_USAGE").scroll_into_view_if_needed()
    start, end = -69.4, 36.6  # of the samples; the node reboots from T+13.1 s to T+21.6 s
    point(tab, "DCGM_FI_DEV_POWER_USAGE", (17.4 - start) / (end - start))
    assert "no sample here" in readout(tab, "DCGM_FI_DEV_POWER_USAGE")


def test_dragging_zooms_every_chart_and_a_button_goes_back(tab):
    chart(tab, "DCGM_FI_DEV_POWER_USAGE").scroll_into_view_if_needed()
    plots = tab.locator("#gpus svg.plot")
    views = "all => all.map(one => one.getAttribute('viewBox').split(' ').map(Number))"
    before = plots.evaluate_all(views)
    point(tab, "DCGM_FI_DEV_POWER_USAGE", 0.5)
    tab.mouse.down()
    point(tab, "DCGM_FI_DEV_POWER_USAGE", 0.75)
    tab.mouse.up()
    widths = [width for _, _, width, _ in plots.evaluate_all(views)]
    assert len(widths) == 6 and len(set(widths)) == 1
    assert widths[0] == pytest.approx(before[0][2] / 4, rel=0.05)
    tab.get_by_role("button", name="Whole run").click()
    assert plots.evaluate_all(views) == before


def test_charts_work_with_the_keyboard_alone(tab):
    svg = chart(tab, "DCGM_FI_DEV_POWER_USAGE").locator("svg.chart-svg")
    svg.focus()
    tab.keyboard.press("Home")
    first = readout(tab, "DCGM_FI_DEV_POWER_USAGE")
    tab.keyboard.press("ArrowRight")
    assert first.startswith("T−69.4 s") and readout(tab, "DCGM_FI_DEV_POWER_USAGE") != first
    tab.keyboard.press("+")
    assert tab.get_by_role("button", name="Whole run").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.get_by_role("button", name="Whole run").is_visible()


@pytest.mark.parametrize("tab", [{"timezone_id": "Asia/Kolkata", "locale": "en-GB"}], indirect=True)
def test_times_in_the_readers_own_zone(tab):
    assert "09:00:00 UTC (3 Mar, 14:30:00 GMT+5:30)" in tab.locator(".byline").inner_text()
    clocks = tab.locator("#timeline time.clock")
    assert clocks.first.inner_text() == "08:55:00.0"
    tab.get_by_role("button", name="Clock times in UTC; show").click()
    assert clocks.first.inner_text() == "14:25:00.0"


def test_the_events_can_be_filtered(tab):
    rows = tab.locator("#timeline .events tbody tr")
    tab.get_by_role("searchbox").fill("taint gpu-node-03 gone")
    shown = rows.evaluate_all("all => all.filter(row => !row.hidden).map(row => row.textContent)")
    assert len(shown) == 1 and "gone from gpu-node-03" in shown[0]


@pytest.mark.parametrize("tab", [{"java_script_enabled": False}], indirect=True)
def test_without_scripts_everything_is_there_to_read(tab):
    assert tab.get_by_role("button").count() == 0 and tab.get_by_role("searchbox").count() == 0
    assert tab.locator("#gpus svg.chart-svg").count() == 6
    assert tab.locator("#node-pods svg.chart-svg").count() == 3
    assert tab.locator("path.curve.target").first.is_visible()
    assert "83 passed" in tab.locator("#qa").inner_text()


@pytest.mark.timeout(300)
def test_nobody_is_shut_out(browser, tmp_path):  # noqa: F811
    """axe-core's rules, WCAG 2 A and AA among them, in light on a laptop and in dark on a phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    build.write(tmp_path, [*build.detector_off(), *around.events()], around.frames())
    (tmp_path / "notes.yaml").write_text(around.NOTES)
    html = render(tmp_path, NOW).html
    for width, scheme in ((1280, "light"), (390, "dark")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(html.as_uri())
        found = axe.run(page).response["violations"]
        assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []
        context.close()


def test_pointing_at_counts_shows_what_holds_there_and_each_can_be_switched_off(tab):
    figure = tab.locator("#node-pods figure", has_text="Pods on the node")
    figure.scroll_into_view_if_needed()
    plot = figure.locator("svg.plot").bounding_box()
    tab.mouse.move(plot["x"] + plot["width"] * 0.9, plot["y"] + plot["height"] / 2)
    assert "Running 2, Pending 0 pods" in figure.locator(".readout").inner_text()
    tab.locator("#node-pods").get_by_role("button", name="Running", exact=True).click()
    tab.mouse.move(plot["x"] + plot["width"] * 0.91, plot["y"] + plot["height"] / 2)
    assert "Running" not in figure.locator(".readout").inner_text()


@pytest.fixture
def folded(browser, html):  # noqa: F811
    """The page as it opens."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    yield context.new_page()
    context.close()


OPENED = "all => all.filter(one => one.open).map(one => one.parentElement.id)"


def test_a_link_into_a_folded_section_opens_it(folded, html):
    folded.goto(f"{html.as_uri()}#gpus")
    depths = folded.locator("details.depth")
    assert depths.evaluate_all(OPENED) == ["gpus"]
    folded.locator("#expectations a[href^='#r']").first.click()
    assert depths.evaluate_all(OPENED) == ["timeline", "gpus"]


def test_one_button_opens_and_folds_all_the_evidence(folded, html):
    folded.goto(html.as_uri())
    depths = folded.locator("details.depth")
    assert depths.evaluate_all(OPENED) == []
    folded.get_by_role("button", name="Open all sections").click()
    assert len(depths.evaluate_all(OPENED)) == depths.count() > 10
    folded.get_by_role("button", name="Fold the evidence").click()
    assert depths.evaluate_all(OPENED) == []
