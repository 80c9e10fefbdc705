"""A fleet run's folder and its page."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from ruamel.yaml import YAML

from gameday import cli
from gameday.exit_codes import ExitCode
from gameday.plan.qa import Qa
from gameday.runs.catalog import read_catalog
from gameday.runs.index import render_index
from gameday.runs.retention import decide_retention
from gameday_fleet.page import FRAME, render_fleet
from gameday_fleet.record import FleetRecord, Labelled, NodeLeftOut, add_probes, last_run_before, load_probes
from tests.fleet.builders import BEGAN, gpu, healthy, record, write
from tests.report.test_report_survives import HOSTILE


def test_the_page_names_the_straggler_its_cost_and_what_was_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "fleet-1", [*healthy(63), gpu(63, gemm_tflops=500.0, slowed_by=("power cap",))])
    add_probes(folder, [NodeLeftOut(node="n9", gpus=6, why="busy: 2 pods have them")])
    rendered = render_fleet(folder, BEGAN)
    page = rendered.html.read_text()
    assert "n7 GPU 7" in page
    assert "power cap" in page
    assert "Busy: 2 pods have them" in page
    assert rendered.fleet.exit_code == ExitCode.FAILED
    assert "n7 GPU 7" in rendered.markdown


def test_the_page_of_a_large_fleet_names_the_worst_and_counts_the_others(tmp_path: Path) -> None:
    slow = [gpu(number, gemm_tflops=500.0 + number % 8) for number in range(120)]
    folder = write(tmp_path / "fleet-1", [*slow, *(gpu(number) for number in range(120, 800))])
    add_probes(folder, [NodeLeftOut(node=f"busy-{number:02d}", gpus=8, why="busy") for number in range(60)])
    rendered = render_fleet(folder, BEGAN)
    page = rendered.html.read_text()
    assert page.count(" GPU 0<span") == 15  # the slowest of each node come first
    assert page.count(" GPU 7<span") == 0
    assert "And 20 more: <code>fleet-report.json" in page
    assert "busy-39 (8 GPUs)" in page
    assert "busy-40" not in page
    assert "and 20 more" in page
    assert rendered.markdown.count("FP16 GEMM") == 20
    assert "| and 100 more |" in rendered.markdown
    assert "- and 40 more" in rendered.markdown
    assert len(rendered.fleet.slow_gpus) == 120


def test_the_report_does_not_grow_with_a_fleet_of_ordinary_gpus(tmp_path: Path) -> None:
    few, many = (
        render_fleet(
            write(tmp_path / f"fleet-{nodes}", [gpu(n, node=f"n{n % nodes}") for n in range(nodes * 8)]), BEGAN
        )
        for nodes in (10, 100)
    )
    without_classes = [len(one.fleet.model_copy(update={"classes": ()}).model_dump_json()) for one in (few, many)]
    assert without_classes[1] - without_classes[0] < 1000


def test_a_histogram_holds_each_value_once_and_marks_those_that_depart(tmp_path: Path) -> None:
    fleet = render_fleet(write(tmp_path / "fleet-1", [*healthy(63), gpu(63, gemm_tflops=500.0)]), BEGAN).fleet
    gemm = next(one for one in fleet.models[0].figures if one.key == "gemm_tflops")
    assert sum(gemm.counts) == gemm.spread.n == 64
    assert gemm.named[0] == sum(gemm.named) == 1


def test_the_frame_has_a_row_for_each_figure(tmp_path: Path) -> None:
    folder = write(tmp_path / "fleet-1", healthy(16))
    render_fleet(folder, BEGAN)
    frame = pd.read_parquet(folder / "frames" / "fleet.parquet")
    assert list(frame.columns) == list(FRAME)
    assert len(frame) == 16 * 7


def test_a_plan_takes_the_floors_as_they_are_written(tmp_path: Path) -> None:
    rendered = render_fleet(write(tmp_path / "fleet-1", healthy(32)), BEGAN)
    floors = YAML(typ="safe", pure=True).load(rendered.floors[0].read_text())["qa"]
    assert Qa.model_validate(floors).floors.gemm_tflops


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = "".join(HOSTILE)[:90]
    gpus = [*healthy(31), gpu(31, node=text, model="NVIDIA H100 80GB HBM3", gemm_tflops=100.0)]
    folder = write(tmp_path / "fleet-1", [*gpus, *(gpu(n, model=text) for n in range(100, 120))])
    add_probes(folder, [NodeLeftOut(node=text, gpus=0, why=text)])
    rendered = render_fleet(folder, BEGAN)
    scripts = re.findall(r"<script", rendered.html.read_text())
    assert len(scripts) == 1
    for path in rendered.floors:
        YAML(typ="safe", pure=True).load(path.read_text())


def test_the_drift_is_against_the_newest_earlier_run_of_the_same_cluster(tmp_path: Path) -> None:
    early = BEGAN.replace(month=1)
    write(tmp_path / "old", healthy(16), started=early)
    write(tmp_path / "newer", healthy(16), started=early.replace(day=9))
    write(tmp_path / "nothing", [], started=early.replace(day=20))
    write(tmp_path / "other", healthy(16), started=early.replace(day=25), cluster="another")
    assert last_run_before(tmp_path, record("now")) == tmp_path / "newer"
    now = [*healthy(15), gpu(15, gemm_tflops=500.0)]
    folder = write(tmp_path / "now", now, against=str(tmp_path / "newer"))
    page = render_fleet(folder, BEGAN).html.read_text()
    assert "Drift since the last fleet run" in page
    assert "newer" in page


def test_a_run_that_was_killed_has_a_page_of_what_it_measured(tmp_path: Path) -> None:
    folder = write(tmp_path / "fleet-1", healthy(16), ended=None, cleanliness="unknown")
    with (folder / "probes.jsonl").open("a") as file:
        file.write('{"kind": "gpu", "node": "n9", "gp')
    assert len(load_probes(folder).gpus) == 16
    assert cli.run(["fleet", "--again", str(folder)]) == ExitCode.UNKNOWN
    assert "gameday reap" in (folder / "fleet.html").read_text()


@pytest.mark.parametrize("count", [0, 3])
def test_a_fleet_of_none_or_few_has_a_page(tmp_path: Path, count: int) -> None:
    rendered = render_fleet(write(tmp_path / "fleet-1", healthy(count)), BEGAN)
    assert rendered.fleet.exit_code == ExitCode.UNKNOWN
    assert FleetRecord.load(rendered.html.parent).id == "fleet-1"


def test_the_index_lists_fleet_runs_and_old_ones_may_go_unless_they_are_evidence(tmp_path: Path) -> None:
    for name, changes in (("old", {}), ("dirty", {"cleanliness": "dirty"}), ("new", {"started": BEGAN.replace(day=9)})):
        render_fleet(write(tmp_path / name, healthy(16), **changes), BEGAN)
    catalog = read_catalog(tmp_path)
    assert [one.title for one in catalog.fleets] == ["Fleet of c"] * 3
    page = render_index(tmp_path, catalog, BEGAN).read_text()
    assert 'href="new/fleet.html"' in page
    decisions = decide_retention(catalog, 1, timedelta(days=1), BEGAN.replace(year=2030))
    assert {one.folder.name for one in decisions if one.deletable} == {"old"}
    (tmp_path / "old" / "fleet-report.json").write_text("{")
    assert "gameday fleet --again" in read_catalog(tmp_path).unreadable[0]


def test_the_page_and_the_command_say_the_classes_and_what_became_of_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "".join(HOSTILE)[:90]
    slow = [gpu(number, gemm_tflops=500.0 if number == 63 else 740.0) for number in range(64)]
    labels = Labelled(changed={"n7": "slow"}, unchanged=("n1", "n2"), left_alone={"n3": text})
    folder = write(tmp_path / "fleet-1", slow, labels=labels)
    page = " ".join(render_fleet(folder, BEGAN).html.read_text().split())
    assert "n7 (-32.4 %)" in page
    assert "gameday.dev/gpu-class</code>: 1 written, 2 as they were" in page
    assert len(re.findall(r"<script", page)) == 1
    assert cli.run(["fleet", "--again", str(folder)]) == ExitCode.FAILED
    said = " ".join(capsys.readouterr().out.split())
    assert "classes of nodes: 0 fast, 7 typical, 1 slow" in said
    assert "label left alone: n3 has gameday.dev/gpu-class=" in said
    assert "labels: 1 written, 2 as they were" in said


@pytest.mark.parametrize(
    ("labels", "said"),
    [(None, "Not written as labels"), (Labelled(stopped="403 Forbidden"), "None is written as a label: 403 Forbidden")],
)
def test_the_page_says_why_there_are_no_labels(tmp_path: Path, labels: Labelled | None, said: str) -> None:
    folder = write(tmp_path / "fleet-1", healthy(32), labels=labels)
    assert said in render_fleet(folder, BEGAN).html.read_text()
