"""Two runs of one plan on one page: differences, which is slower, versions, and readable refusals."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gameday import cli
from gameday.history.events import HopSeen, RunStarted
from gameday.report.run_folder import load_run_folder
from gameday.report.side_by_side import SideBySide, Times, side_by_side
from gameday.values.results import Hop
from tests.report.page import Page
from tests.report.run_builder import VARIANTS, Timed, passing, replacing, write
from tests.runs.test_digest import HOSTILE, slow_alert


def put(reports: Path, id: str, timed: list[Timed], **update: object) -> Path:
    return write(reports / id, replacing(timed, lambda e: isinstance(e, RunStarted), run_id=id, **update))


def compared(first: Path, second: Path) -> SideBySide:
    return side_by_side(load_run_folder(first), load_run_folder(second))


@pytest.mark.parametrize(
    ("first", "second", "slower"),
    [
        (5.0, 9.0, "B"),
        (9.0, 5.0, "A"),
        (5.0, 5.5, ""),
        (100.0, 105.0, ""),
        (100.0, 105.1, "B"),
        (None, 5.0, ""),
    ],
)
def test_a_run_is_slower_beyond_five_percent_and_half_a_second(
    first: float | None, second: float | None, slower: str
) -> None:
    assert Times(what="x", first_s=first, second_s=second).slower == slower


def test_times_of_durations_expectations_and_hops_are_set_against_each_other(tmp_path: Path) -> None:
    late = timedelta(seconds=3)
    slow = [
        Timed(one.seconds, one.event.model_copy(update={"at": one.event.at + late}))
        if isinstance(one.event, HopSeen) and one.event.hop is Hop.TAINTED
        else one
        for one in slow_alert(4)
    ]
    found = compared(put(tmp_path, "a", passing()), put(tmp_path, "b", slow))
    alert = found.durations[0]
    assert (alert.what, alert.slower, alert.difference_s) == ("time to alert", "B", pytest.approx(4.0))
    fires = next(one for one in found.expectations if one.first and one.first.check == "alert-fires")
    assert fires.second
    assert (fires.first.bound, fires.times.slower) == (fires.second.bound, "B")
    tainted = next(one for one in found.hops if one.what == Hop.TAINTED)
    assert (tainted.slower, tainted.difference_s) == ("B", pytest.approx(3.0))


def test_the_same_expectations_of_different_nodes_meet_in_one_row(tmp_path: Path) -> None:
    first = put(tmp_path, "a", passing())
    second = put(tmp_path, "b", passing())
    history = second / "history.jsonl"
    history.write_text(history.read_text().replace("gpu-node-03", "gpu-node-11"))
    found = compared(first, second)
    assert all(one.first and one.second for one in found.expectations)
    assert not any("gpu-node" in one.expectation for one in found.expectations)


def test_versions_are_recorded_or_unknown(tmp_path: Path) -> None:
    newer = put(tmp_path, "b", passing(), server_version="v1.34.0")
    versions = {one.what: (one.first, one.second) for one in compared(put(tmp_path, "a", passing()), newer).versions}
    assert versions["Kubernetes"] == ("v1.33.1", "v1.34.0")
    assert versions["NVIDIA driver"] == ("", "")


def test_the_page_shows_both_runs_and_escapes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = put(tmp_path, "a", passing(), cluster_name=HOSTILE)
    second = put(tmp_path, "b", VARIANTS["detector-off"](), server_version=HOSTILE)
    assert cli.run(["report", "--compare", str(first), str(second)]) == 0
    path = tmp_path / "compare-a-b.html"
    assert capsys.readouterr().out.strip() == str(path)
    page = Page(path.read_text())
    assert HOSTILE not in page.html
    assert "src=" not in page.html
    assert {"a/report.html", "b/report.html"} <= {attrs.get("href") for tag, attrs in page.tags if tag == "a"}
    assert "Changed" in page.text("versions")
    assert "not recorded" in page.text("versions")
    assert "Broken" in page.text("expectations")
    assert "the same as in A" in page.text("durations")


def test_what_cannot_be_compared_is_refused_readably(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = put(tmp_path, "a", passing())
    other = put(tmp_path, "b", passing(), plan_name="another")
    headless = write(tmp_path / "c", [one for one in passing() if not isinstance(one.event, RunStarted)])
    for pair, why in (
        ((first, first), "both folders hold the run a"),
        ((first, other), "a played gpu-fell-off-the-bus, b played another"),
        ((first, headless), "lacks its start"),
        ((first, tmp_path / "none"), "holds no history.jsonl"),
    ):
        assert cli.run(["report", "--compare", *map(str, pair)]) == 64
        assert why in capsys.readouterr().err
    assert not list(tmp_path.glob("compare-*"))


def test_compare_takes_two_folders_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    assert cli.run(["report", folder, "--compare", folder, folder]) == 64
    assert "--compare takes the two folders alone" in capsys.readouterr().err
    assert cli.run(["report"]) == 64
    assert "give a run's folder" in capsys.readouterr().err
