"""Digest, index and post-mortem in a real browser with the network cut, on a wide screen and a phone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gameday import cli
from gameday.exit_codes import ExitCode
from gameday.post_mortem.page import render_post_mortem
from gameday.runs.clusters import render_cluster_seasons
from gameday.runs.comparison_page import render_comparison
from gameday_fleet.page import render_fleet
from tests.fleet.builders import gpu, healthy
from tests.fleet.builders import write as write_fleet
from tests.post_mortem.conftest import USUAL, alert, write_incident, xid
from tests.report.run_builder import VARIANTS, passing, write
from tests.report.test_report_browser import browser, look, opened, scheme  # noqa: F401 - fixtures
from tests.report.test_report_survives import HOSTILE
from tests.runs.comparison_builders import arm, record
from tests.runs.test_clusters import seasons
from tests.runs.test_digest import put
from tests.runs.test_season_page import place_of, season

pytestmark = pytest.mark.browser
PAGES = [
    "index.html",
    "digest.html",
    "s/coverage.html",
    "arms-two/comparison.html",
    "compare-run0-run-1.html",
    "s/clusters.html",
    "incident-x/post-mortem.html",
    "incident-y/post-mortem.html",
    "fleet-1/fleet.html",
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A passing and a failing run, and a run and an incident of hostile text, with all three pages."""
    folder = tmp_path_factory.mktemp("shelf")
    put(folder, 0, passing())
    put(folder, -1, VARIANTS["detector-off"]())
    put(folder, -2, passing(), plan_name="<img src=x onerror=alert(1)>" + "a" * 300, cluster="b" * 300)
    text = "".join(HOSTILE)[:3000]
    write_incident(folder / "incident-x", USUAL)
    write_incident(folder / "incident-y", [xid(line=text), alert(annotations={"summary": text})])
    for name in ("incident-x", "incident-y"):
        render_post_mortem(folder / name, [], [], datetime.now(UTC))
    compared = record(arm("a", title=text[:80]), arm("b" * 30), arm("c", may_break=["qa"]), title=text[:200])
    compared.save(folder / compared.id)
    for place in compared.runs[:2]:
        write(folder / compared.id / place.run_id, passing())
    render_comparison(folder / compared.id, datetime.now(UTC))
    season(folder / "s", place_of("run0"), place_of("run-1"), place_of("none"))
    every = seasons(*(code for code in ExitCode if code < ExitCode.USAGE), why=text[:600], stopped=text[:99])
    render_cluster_seasons(folder / "s", every, datetime.now(UTC))
    assert cli.run(["report", "--compare", str(folder / "run0"), str(folder / "run-1")]) == 0
    text_of_model = gpu(40, model=text[:90], node=text[:200])
    write_fleet(folder / "fleet-1", [*healthy(31), gpu(31, gemm_tflops=500.0, temperature_c=90.0), text_of_model])
    render_fleet(folder / "fleet-1", datetime.now(UTC))
    assert cli.run(["digest", str(folder), "--days", "3660"]) == 1
    return folder


@pytest.mark.parametrize(
    ("page", "width", "scheme"), [*((page, 1280, "light") for page in PAGES), ("index.html", 390, "dark")]
)
def test_nobody_is_shut_out(browser, shelf, page, width, scheme):  # noqa: F811
    """axe-core's rules, WCAG 2 A and AA among them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    tab = context.new_page()
    tab.goto((shelf / page).as_uri())
    found = axe.run(tab).response["violations"]
    context.close()
    assert [(v["id"], v["impact"], v["nodes"][0]["html"]) for v in found] == []


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("opened", [390], indirect=True)
def test_a_page_asks_for_nothing_runs_nothing_foreign_and_fits_its_screen(opened, shelf, page):  # noqa: F811
    look(opened, shelf / page)


def shown(tab) -> list[str]:
    return tab.eval_on_selector_all("#runs tbody tr:not([hidden])", "rows => rows.map(row => row.dataset.outcome)")


def test_search_and_filter_narrow_the_table(opened, shelf):  # noqa: F811
    opened.goto((shelf / "index.html").as_uri())
    assert len(shown(opened)) == 3
    opened.select_option("select[name=outcome]", "failed")
    assert shown(opened) == ["failed"]
    opened.select_option("select[name=outcome]", "")
    opened.fill("input[name=search]", "run0 gpu-node-03")
    assert shown(opened) == ["passed"]
    assert opened.text_content("#shown") == "1 of 3 runs shown"


def test_without_a_script_the_table_is_complete_and_no_dead_form_is_shown(browser, shelf):  # noqa: F811
    context = browser.new_context(java_script_enabled=False, offline=True)
    tab = context.new_page()
    tab.goto((shelf / "index.html").as_uri())
    assert tab.locator("#runs tbody tr").count() == 3
    assert not tab.locator("#filter").is_visible()
    context.close()
