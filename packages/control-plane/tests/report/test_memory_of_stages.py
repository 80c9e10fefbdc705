"""The stages of a load as figures and in the report: k, R², and what two LISTs of the talk's size would take."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gameday.history.frames import Frames
from gameday.report.figure import figures_of
from gameday_control_plane.checks.memory_slope import HEAP, STARTED
from tests.control_plane.stages import BASE, frame, grown, scraped, staged
from tests.report import run_builder as build
from tests.report.page import drawn

RUN = [*build.passing(), build.Timed(60, staged())]


def figures(rows: pd.DataFrame) -> dict[str, float]:
    return {
        one.name: one.value for one in figures_of(build.PLAN, build.history_of(RUN), Frames(api_server=rows)).figures
    }


def test_figures_tell_k_and_the_memory_of_one_list() -> None:
    found = figures(scraped(*grown(3.0)))
    assert found["k: memory by bytes of concurrent LISTs"] == pytest.approx(3)
    assert found["memory by concurrent LIST"] == pytest.approx(3 * found["one LIST as JSON"])
    assert found["R² of the line through the peaks"] == pytest.approx(1)


def test_the_heap_has_a_k_of_its_own() -> None:
    heap = scraped(*grown(2.0)).assign(metric=HEAP)
    found = figures(pd.concat([scraped(*grown(3.0)), heap]))
    assert found["k of the heap in use"] == pytest.approx(2)
    assert found["k: memory by bytes of concurrent LISTs"] == pytest.approx(3)


def test_servers_that_ended_are_counted_once_each_and_by_their_starts() -> None:
    fault = build.START.timestamp() + build.FAULT_AT
    starts = [frame([(at, fault + at) for at in (-20, 20, 40)], "a", STARTED), frame([(1, fault - 20)], "b", STARTED)]
    found = figures(pd.concat(starts))
    assert found["API servers that ended under load"] == 1
    assert found["times that API servers started again"] == 2
    assert "k: memory by bytes of concurrent LISTs" not in found


@pytest.mark.parametrize(
    ("peaks", "words"),
    [
        (grown(3.0), "would take about 6.0 GB"),
        ([BASE, BASE, BASE, BASE], "No line: too few peaks are above all before"),
    ],
)
def test_the_report_sets_the_stages_beside_the_talk(tmp_path: Path, peaks: list[float], words: str) -> None:
    page, data = drawn(build.write(tmp_path, RUN, Frames(api_server=scraped(*peaks))), "control-plane")
    section = data["control-plane"]
    assert "failure" not in section
    assert [stage["clients"] for stage in section["slopes"][0]["slope"]["stages"]] == [1, 2, 4, 8]
    assert words in " ".join(" ".join(page.words).split())
