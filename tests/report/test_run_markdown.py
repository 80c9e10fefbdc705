"""A run in short for Prefect's page: what it says, and that nothing in it becomes markup."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from gameday.history.events import HopSeen
from gameday.report.run_folder import load_run_folder
from gameday.report.run_markdown import run_markdown
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import VARIANTS, Timed, ended, passing, replacing, write


def said(folder: Path, timed: Iterable[Timed], url: str | None = None) -> str:
    return run_markdown(load_run_folder(write(folder, timed)), Path("/runs/r/report.html"), url)


def test_outcome_durations_and_verdicts_are_there(tmp_path: Path) -> None:
    words = said(tmp_path, passing())
    assert words.startswith("**Passed**, cluster clean, virtual GPUs. All 14 expectations held")
    assert "| Time to taint | 0.97 s | ≤ 15 s |\n" in words
    assert "| held | 5.4 s | ≤ 30 s | Alert GpuXidCritical fires for gpu-node-03 |\n" in words
    assert "](" not in words
    assert words.endswith("The whole report is /runs/r/report.html on the machine of the worker.")


def test_the_chains_hops_are_there_with_their_times(tmp_path: Path) -> None:
    words = said(tmp_path, passing())
    assert (
        "\n| hop of the chain on gpu-node-03 | since the fault | seen by |\n|---|---|---|\n| Fault written | " in words
    )
    assert "\n| Node tainted | 0.97 s | gameday-health |\n" in words
    assert "breaks" not in words


def test_a_chain_that_broke_says_where(tmp_path: Path) -> None:
    words = said(tmp_path, VARIANTS["detector-off"]())
    hops = words.partition("| hop of the chain")[2].splitlines()
    assert "| In log store | 0.61 s | loki |" in hops
    broken = [line for line in hops if "the chain breaks here" in line]
    assert broken == [
        "| Detector decided | not seen | the chain breaks here; missed: Alert GpuXidCritical fires for gpu-node-03 |"
    ]
    assert "| Rule firing | not seen |  |" in hops


def test_a_hostile_source_of_a_hop_stays_text(tmp_path: Path) -> None:
    events = replacing(passing(), lambda e: isinstance(e, HopSeen), source="a|b <script>\n# d")
    assert "| 0.97 s | a\\|b &lt;script&gt; \\# d |\n" in said(tmp_path, events)


def test_a_run_that_did_not_pass_says_what_to_do(tmp_path: Path) -> None:
    words = said(tmp_path, VARIANTS["detector-off"]())
    assert words.startswith("**Failed**")
    assert "\nTo run it again: gameday rehearse" in words


def test_a_page_that_is_served_has_a_link(tmp_path: Path) -> None:
    words = said(tmp_path, passing(), "http://127.0.0.1:8000/20260303-090000-7f3a/report.html")
    assert "\n[Open the whole report](http://127.0.0.1:8000/20260303-090000-7f3a/report.html): the link works" in words


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_every_row_of_a_table_has_all_cells(tmp_path: Path, variant: str) -> None:
    rows = [line for line in said(tmp_path, VARIANTS[variant]()).splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {4, 5}


def test_a_hostile_reason_stays_text(tmp_path: Path) -> None:
    events = ended(passing(), Step.QA_NODE, StepOutcome.BROKEN, "a|b <script> [x](javascript:y) `c`\n# d")
    words = said(tmp_path, events)
    assert "a\\|b &lt;script&gt; \\[x\\](javascript:y) \\`c\\` \\# d" in words
