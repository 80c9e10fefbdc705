"""The sections that set things side by side: lanes, blast radius, heat map, statistics, canary, appendix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gameday.history.events import (
    RECORD,
    AlertSeen,
    AllocatableSeen,
    CanaryMeasured,
    ConditionSeen,
    FrameRead,
    KubernetesEventSeen,
    QaChecked,
    TaintSeen,
)
from gameday.history.frames import Frames, conform
from gameday.report.lanes import Lanes, signal_lanes, story_lanes
from gameday.report.run_folder import load_run_folder
from gameday.report.samples import robust_z, statistics
from gameday.report.sections import alerts, gpus
from gameday.report.ticks import nice_step, time_ticks
from tests.report import run_builder as build
from tests.report.page import Page, drawn


def section_of(folder: Path, section: str) -> tuple[Page, dict[str, Any]]:
    page, data = drawn(folder, section)
    assert "failure" not in data[section], data
    return page, data[section]


def lanes_of(chart: Lanes) -> dict[str, list[tuple[float, float, str, bool]]]:
    return {
        lane.label: [(round(bar.start_s, 2), round(bar.end_s, 2), bar.tone, bar.open) for bar in lane.bars]
        for lane in chart.lanes
    }


def test_the_first_screen_shows_the_run_in_five_lanes(tmp_path):
    lanes = lanes_of(story_lanes(load_run_folder(build.write(tmp_path, build.passing()))))
    assert list(lanes) == ["Fault xid in", "Alert GpuXidCritical", "Taint faulty", "Repair: reboot", "QA and return"]
    assert lanes["Fault xid in"] == [(0.0, 12.9, "fault", False)]
    assert lanes["Alert GpuXidCritical"] == [(2.4, 5.4, "pending", False), (5.4, 24.6, "alert", False)]
    assert lanes["Taint faulty"] == [(0.97, 34.65, "taint", False)]


def test_an_alert_of_two_gpus_is_listed_by_its_label_sets(tmp_path):
    timed = build.passing()
    for one in [t for t in timed if isinstance(t.event, AlertSeen) and t.event.expected]:
        more = one.event.model_copy(update={"labels": one.event.labels | {"pci_bus_id": "0000:18:00"}})
        timed += [build.Timed(one.seconds, more)] if one.event.state != "resolved" else []
    run = load_run_folder(build.write(tmp_path, timed))
    (resolved, still) = [lane for lane in story_lanes(run).lanes if lane.label == "Alert GpuXidCritical"]
    assert (resolved.detail, resolved.bars[-1].open) == (build.NODE, False)
    assert (still.detail, still.bars[-1].open) == (f"{build.NODE}, pci_bus_id=0000:18:00", True)
    expected = alerts.build(run).expected[0]
    assert (expected.resolved_at, expected.firing_for_s) == (None, None)


def test_an_alert_that_another_one_mutes_was_not_sent(tmp_path):
    def expected(event: object) -> bool:
        return isinstance(event, AlertSeen) and event.expected and event.state == "firing"

    page, data = section_of(build.write(tmp_path, build.replacing(build.passing(), expected, inhibited=True)), "alerts")
    (row,) = data["expected"]
    assert (row["inhibited"], row["receivers"]) == (True, [])
    assert "inhibited, not sent" in page.text("alerts")


def test_other_alerts_have_a_row_for_each_label_set(tmp_path):
    seen = [
        AlertSeen(alert="Slow", state=state, labels={"gpu": gpu}, node=build.NODE, expected=False, at=build.at(s))
        for gpu, state, s in (("1", "firing", 11), ("2", "firing", 12), ("2", "resolved", 13))
    ]
    timed = [*build.passing(), *(build.Timed(20 + i, one) for i, one in enumerate(seen))]
    matrix = alerts.build(load_run_folder(build.write(tmp_path, timed)))
    assert [(r.which, r.state) for r in matrix.unexpected] == [("gpu=1", "firing"), ("gpu=2", "resolved")]


def test_a_lane_of_a_killed_run_is_open(tmp_path):
    lanes = lanes_of(story_lanes(load_run_folder(build.write(tmp_path, build.cut_off(build.passing(), 20.0)))))
    assert lanes["Fault xid in"][0][3] and lanes["Taint faulty"][0][3]
    assert "end not seen" in drawn(tmp_path, "verdict")[0].text("verdict")


def test_conditions_and_missing_gpus_have_lanes(tmp_path):
    def condition(status: str | None, s: float) -> build.Timed:
        return build.Timed(s, ConditionSeen(node=build.NODE, condition="GpuFault", status=status, at=build.at(s)))

    def offered(before: int, gpus: int, s: float) -> build.Timed:
        return build.Timed(s, AllocatableSeen(node=build.NODE, gpus=gpus, before=before, at=build.at(s)))

    more = [condition("True", 10.4), condition("False", 19.4), offered(8, 7, 11.4), offered(7, 8, 15.4)]
    lanes = lanes_of(signal_lanes(load_run_folder(build.write(tmp_path, [*build.passing(), *more]))))
    assert lanes["Condition GpuFault"] == [(1.0, 10.0, "condition", False)]
    assert lanes["Fewer than 8 GPUs offered"] == [(2.0, 6.0, "condition", False)]


def test_the_blast_radius_is_set_against_the_plan(tmp_path):
    page, data = section_of(build.write(tmp_path, build.passing()), "blast-radius")
    rows = {row["what"]: row for row in data["rows"]}
    assert (rows["Nodes with a fault"]["planned"], rows["Nodes with a fault"]["actual"]) == ("1", "1")
    assert rows["GPUs taken out of work"]["actual"] == "8"
    assert "nothing new seen on a node that was no target" in page.text("blast-radius")
    assert "Pod/gameday/inject-7f3a" in data["made"]


def test_a_run_that_was_cut_off_knows_only_the_least(tmp_path):
    _, data = section_of(build.write(tmp_path, build.cut_off(build.passing(), 20.0)), "blast-radius")
    rows = {row["what"]: row for row in data["rows"]}
    assert rows["GPUs taken out of work"]["actual"] == "at least 8"


def test_another_node_that_changed_is_named(tmp_path):
    other = TaintSeen(node="gpu-node-06", taint=build.TAINT, present=True, manager="x", at=build.at(12))
    page, data = section_of(build.write(tmp_path, [*build.passing(), build.Timed(12, other)]), "blast-radius")
    assert [c["node"] for c in data["collateral"]] == ["gpu-node-06"]
    assert "gpu-node-06" in page.text("blast-radius")


def test_the_heat_map_is_hot_where_the_gpu_left_its_baseline(tmp_path):
    page, data = section_of(build.write(tmp_path, build.passing(), build.frames()), "gpus")
    heat = data["nodes"][0]["heat"]
    names = [name for name, _, _ in heat["metrics"]]
    rows = {row["gpu"]: dict(zip(names, row["cells"], strict=True)) for row in heat["rows"]}
    assert len(rows) == 8
    assert rows["5"]["DCGM_FI_DEV_POWER_USAGE"]["level"] == -3
    assert rows["5"]["DCGM_FI_DEV_XID_ERRORS"] == {"during": 79.0, "before": 0.0, "level": 3}
    assert rows["2"]["DCGM_FI_DEV_POWER_USAGE"]["level"] == 0
    assert "far below" in page.text("gpus")


def test_fewer_than_eight_scrapes_before_the_fault_give_no_baseline(tmp_path):
    for scrapes, is_measured in ((7, False), (8, True)):
        rows = pd.DataFrame({"t": np.arange(-float(scrapes), 4.0), "value": 50.0})
        found = statistics("m", "W", "0", rows, (0.0, 5.0))
        assert (found.before.n, found.robust_z is not None, found.out_of_band_s is not None) == (
            scrapes,
            is_measured,
            is_measured,
        )


def test_scrapes_every_half_minute_give_curves_but_no_band_and_no_colour(tmp_path):
    page, data = section_of(build.write(tmp_path, build.passing(), build.frames(every=30.0)), "gpus")
    (node,) = data["nodes"]
    assert (node["scrapes_before"], len(node["charts"]) > 0) == (3, True)
    names = [name for name, _, _ in node["heat"]["metrics"]]
    levels = {cell["level"] for row in node["heat"]["rows"] for name, cell in zip(names, row["cells"], strict=True)
              if name != "DCGM_FI_DEV_XID_ERRORS"}  # fmt: skip
    assert levels == {None}
    assert {found["robust_z"] for found in node["statistics"]} == {None}
    assert "What is usual was not measured: 3 scrapes before the fault" in page.text("gpus")
    assert all(chart.drawing.band is None for chart in gpus.build(load_run_folder(tmp_path)).nodes[0].charts)


def test_samples_that_were_too_many_are_said_to_be_resampled(tmp_path):
    read = FrameRead(
        frame="metrics", server="Prometheus", query="q", start=build.at(-60), end=build.at(46), step_s=20.0, rows=1
    )
    page, _ = section_of(build.write(tmp_path, [*build.passing(), build.Timed(46, read)], build.frames()), "gpus")
    assert "resampled, one every 20.0 s" in page.text("gpus")


def test_robust_z_is_in_the_baselines_own_spread():
    before = pd.Series([10.0, 11.0, 12.0, 13.0, 14.0])  # median 12, MAD 1
    assert robust_z(before, pd.Series([12.0 + 1.4826 * 3])) == pytest.approx(3.0)
    assert robust_z(pd.Series([100.0] * 5), pd.Series([104.0])) == pytest.approx(2.0)  # of a constant: by 2 % of it
    assert robust_z(pd.Series([0.0] * 5), pd.Series([1.0])) is None
    assert robust_z(pd.Series([0.0] * 5), pd.Series([0.0])) == 0.0
    assert robust_z(before, before.iloc[:0]) is None


def test_statistics_count_gaps_and_seconds_out_of_band():
    t = [*np.arange(-10.0, 10.0), *np.arange(20.0, 30.0)]
    rows = pd.DataFrame({"t": t, "value": [50.0 if at < 0 else 90.0 if at < 5 else 50.0 for at in t]})
    found = statistics("m", "W", "0", rows, (0.0, 5.0))
    assert (found.interval_s, found.gaps, found.longest_gap_s) == (1.0, 1, 11.0)
    assert found.out_of_band_s == 5.0
    assert (found.before.n, found.before.median, found.during.high, found.after.median) == (10, 50.0, 90.0, 50.0)


def test_a_gap_is_not_time_out_of_band():
    rows = pd.DataFrame({"t": [*np.arange(-8.0, 2.0), 100.0, 101.0], "value": [5.0] * 9 + [9.0, 5.0, 5.0]})
    assert statistics("m", "W", "0", rows, (0.0, 101.0)).out_of_band_s == 3.0  # three intervals of the 99 s


def test_what_the_canary_measured_is_set_against_before(tmp_path):
    def measured(phase: str, value: float | None, ok: bool | None, s: float) -> build.Timed:
        event = CanaryMeasured(
            node=build.NODE, measure="all-reduce bus bandwidth", phase=phase, value=value, unit="GB/s",
            bound=">= 300 GB/s", ok=ok, at=build.at(s),
        )  # fmt: skip
        return build.Timed(s, event)

    more = [measured("before", 400.0, True, 5), measured("during", 100.0, False, 12), measured("after", None, None, 40)]
    page, data = section_of(build.write(tmp_path, [*build.passing(), *more]), "canary")
    assert data["rows"][0]["change_percent"] == -75.0
    text = page.text("canary")
    assert "−75.0 %" in text and "out of bounds" in text and "not measured" in text
    page, _ = section_of(build.write(tmp_path, build.passing()), "canary")
    assert "Canary (no canary job ran beside this fault)" in page.text()


def test_the_appendix_has_log_lines_and_events(tmp_path):
    event = KubernetesEventSeen(
        node=build.NODE, reason="GPUXid79", type="Warning", source="gameday-health", message="<b>lost</b>",
        count=3, at=build.at(10),
    )  # fmt: skip
    lines = [{"time": pd.Timestamp(build.at(n / 10)), "node": build.NODE, "line": f"line {n}"} for n in range(500)]
    frames = Frames(logs=conform("logs", lines))
    page, data = section_of(build.write(tmp_path, [*build.passing(), build.Timed(10, event)], frames), "appendix")
    assert data["lines_left_out"] == 300 and len(data["lines"]) == 200
    text = page.text("appendix")
    assert "line 0" in text and "line 499" in text and "line 250" not in text
    assert "300 lines from the middle are left out" in text
    assert "GPUXid79" in text and "<b>lost</b>" in text and "3 times" in text


def test_a_number_that_is_none_is_null_in_the_json(tmp_path):
    odd = QaChecked(node=build.NODE, gpu=0, check="odd", value=float("inf"), bound="", ok=None)
    folder = build.write(tmp_path, build.passing())
    history = (folder / "history.jsonl").read_text()
    line = RECORD.dump_json(build.history_of([build.Timed(41, odd)]).records[0]).decode()
    record = line.replace('"value":null', '"value":NaN')
    (folder / "history.jsonl").write_text(f"{history}{record}\n")
    _, data = section_of(folder, "qa")
    assert [row["cells"][0]["value"] for row in data["tables"][0]["rows"] if row["check"] == "odd"] == [None]


@pytest.mark.parametrize(
    ("start", "end", "labels"),
    [
        (-12.0, 14.0, ["−10 s", "−5 s", "T", "+5 s", "+10 s"]),
        (-0.3, 0.9, ["−0.2 s", "T", "+0.2 s", "+0.4 s", "+0.6 s", "+0.8 s"]),
        (-60.0, 600.0, ["T", "+2 min", "+4 min", "+6 min", "+8 min", "+10 min"]),
        (0.0, 40000.0, ["T", "+2 h", "+4 h", "+6 h", "+8 h", "+10 h"]),
        (0.0, 3e6, ["T", "+10 d", "+20 d", "+30 d"]),
    ],
)
def test_time_axes_have_round_labels(start, end, labels):
    assert [tick.label for tick in time_ticks(start, end)] == labels


@pytest.mark.parametrize("width", [1e-9, 0.07, 1.0, 42.0, 9999.0, 1e12])
def test_a_step_is_round_and_gives_a_few_ticks(width):
    step = nice_step(width, 4)
    assert 1.99 < width / step < 5.01
    assert f"{step:e}"[0] in "125"
