"""A comparison that leaves the house: no name of the site on its page, nor behind its links, and the same verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run
from gameday.history.events import GuardChecked, RunStarted
from gameday.runs.comparison_page import render_comparison
from gameday.runs.comparison_record import ComparisonRecord
from tests.report.page import Page
from tests.report.run_builder import NODE, Timed, at, passing, replacing, write
from tests.runs.comparison_builders import arm, record, write_record

BEFORE = "a-node-that-sorts-first"
NAMES = (NODE, BEFORE, "prod-eu", ">ada<", "profiles/eu7")
COMMAND = "gameday run two --profile profiles/eu7.yaml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two arms on a real cluster, of which the second's guardrail names one more node, and one that was not played."""
    control = arm("b", must_break=("no-such-check",))
    content = record(arm("a", title=f"A on {NODE}"), control, arm("c"), stopped=f"10.1.2.3 was away for {NODE}")
    made = write_record(tmp_path, content.model_copy(update={"cluster": "prod-eu", "command": COMMAND}))
    for name, also in (("a", ()), ("b", (_guard(),))):
        events = replacing(
            passing(),
            lambda event: isinstance(event, RunStarted),
            run_id=f"arms-1-{name}",
            cluster="prod-eu (https://api.prod-eu.example:6443)",
            cluster_name="prod-eu",
            trigger="manual",
            command=COMMAND,
        )
        write(made / f"arms-1-{name}", [*events, *also])
    return made


def _guard() -> Timed:
    names = (BEFORE,)
    seen = GuardChecked(
        guardrail="other", phase="during", limit="1", measured="1", ok=False, why=f"{BEFORE} is ill", nodes=names
    )
    return Timed(46.3, seen)


def test_no_name_of_the_site_is_on_the_page_nor_in_the_reports_that_it_links(folder: Path) -> None:
    assert run(["report", str(folder), "--redact"]) == render_comparison(folder, at(100)).content.result.exit_code
    page = folder / "comparison-redacted.html"
    tags = Page(page.read_text(encoding="utf-8")).tags
    links = [folder / (found.get("href") or "") for tag, found in tags if tag == "a"]
    reports = [link for link in links if link.name.startswith("report")]
    assert [link.name for link in reports] == ["report-redacted.html"] * 2
    for file in (page, page.with_suffix(".json"), *reports, *(one.with_suffix(".json") for one in reports)):
        text = file.read_text(encoding="utf-8")
        assert not [name for name in (*NAMES, "10.1.2.3") if name in text], file
    said = Page(page.read_text(encoding="utf-8")).text()
    assert "A on node-2" in said and "x.x.x.x was away for node-2" in said and "the cluster" in said
    assert NODE in (folder / "comparison.html").read_text(encoding="utf-8")


def test_a_node_has_one_number_in_all_reports_of_a_comparison(folder: Path) -> None:
    assert run(["report", str(folder / "arms-1-a"), "--redact"]) == 0
    said = (folder / "arms-1-a" / "report-redacted.html").read_text(encoding="utf-8")
    assert "node-2" in said
    assert "node-1" not in said


def test_a_run_s_redacted_report_links_no_page_that_is_not(folder: Path) -> None:
    render_comparison(folder, at(100), redact=True)
    tags = Page((folder / "arms-1-a" / "report-redacted.html").read_text(encoding="utf-8")).tags
    links = [found.get("href") or "" for tag, found in tags if tag == "a"]
    assert links
    assert all(link.startswith(("#", "http")) for link in links)


@pytest.mark.slow
def test_verdicts_and_figures_stay_whatever_a_node_is_called(folder: Path) -> None:
    for name in ("break", "a", "alert-fires"):
        own = ComparisonRecord.load(folder)
        runs = tuple(place.model_copy(update={"targets": (name,)}) for place in own.runs)
        own.model_copy(update={"runs": runs}).save(folder)
        plain, hidden = (render_comparison(folder, at(100), redact=redact).content for redact in (False, True))
        assert hidden.result.exit_code == plain.result.exit_code
        assert [row.cells for row in hidden.expectations] == [row.cells for row in plain.expectations]
        assert [row.cells for row in hidden.figures] == [row.cells for row in plain.figures]
        assert [run.run_id for arm in hidden.arms for run in arm.runs] == [
            run.run_id for arm in plain.arms for run in arm.runs
        ]


def test_a_rehearsals_cluster_keeps_its_name(folder: Path) -> None:
    for name in ("a", "b"):
        write(folder / f"arms-1-{name}", passing())
    ComparisonRecord.load(folder).model_copy(update={"cluster": "the rehearsal"}).save(folder)
    assert render_comparison(folder, at(100), redact=True).content.record.cluster == "the rehearsal"
