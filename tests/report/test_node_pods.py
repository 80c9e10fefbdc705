"""The node over time: GPUs offered, pods by phase, and what is said where nothing was seen."""

from __future__ import annotations

import pandas as pd
import pytest

from gameday.history.events import AllocatableSeen, ConditionSeen
from gameday.history.frames import Frames
from tests.report import around
from tests.report import run_builder as build
from tests.report.page import Page, drawn


def node_of(folder, timed, frames) -> tuple[Page, dict]:
    page, data = drawn(build.write(folder, timed, frames), "node-pods")
    return page, data["node-pods"]["nodes"][0]


def changes(data: dict, title: str) -> dict:
    return {
        name: [(pytest.approx(t), n) for t, n in steps]
        for name, steps in next(c["changes"] for c in data["counts"] if c["title"] == title).items()
    }


def test_pods_are_counted_by_phase_at_each_change(tmp_path):
    page, data = node_of(tmp_path, build.passing(), around.frames())
    assert changes(data, "Pods on the node") == {
        "Running": [(-9.0, 2), (6.0, 3), (13.0, 2)],
        "Pending": [(-9.0, 0), (1.0, 1), (6.0, 0)],
    }
    assert changes(data, "GPUs asked for by running pods") == {"In use": [(-9.0, 4), (6.0, 6), (13.0, 2)]}
    assert "training/train-llm-0" in page.text("node-pods")


def test_the_gpus_offered_are_those_of_the_snapshots_and_every_change(tmp_path):
    fell = [(12.0, 8, 7), (20.0, 7, 8)]
    seen = [
        build.Timed(t, AllocatableSeen(node=build.NODE, gpus=now, before=before, at=build.at(t)))
        for t, before, now in fell
    ]
    _, data = node_of(tmp_path, [*build.passing(), *seen], Frames())
    offered = changes(data, "GPUs the kubelet offers")["Offered"]
    # The builder's snapshot at 16.4 s says 8 again: both are shown, by their own times.
    assert [n for _, n in offered] == [8, 7, 8]


def test_stretches_without_ready_are_shown(tmp_path):
    seen = [
        build.Timed(t, ConditionSeen(node=build.NODE, condition="Ready", status=status, at=build.at(t)))
        for t, status in ((23.0, "Unknown"), (24.0, "False"), (30.0, "True"))
    ]
    page, data = node_of(tmp_path, [*build.passing(), *seen], Frames())
    assert data["not_ready"] == [[pytest.approx(23 - build.FAULT_AT), pytest.approx(30 - build.FAULT_AT)]]
    assert "was not Ready from T+13.6 s to T+20.6 s" in page.text("node-pods")


def test_a_node_that_never_was_ready_again_is_so_to_the_end(tmp_path):
    seen = build.Timed(23, ConditionSeen(node=build.NODE, condition="Ready", status="False", at=build.at(23)))
    _, data = node_of(tmp_path, build.cut_off([*build.passing(), seen], 30), Frames())
    assert data["not_ready"][0][1] >= 23 - build.FAULT_AT


def test_no_pod_seen_is_not_measured_and_not_zero(tmp_path):
    page, data = node_of(tmp_path, build.passing(), Frames())
    assert changes(data, "Pods on the node") == {}
    assert changes(data, "GPUs asked for by running pods") == {}
    assert "Not measured." in page.text("node-pods")


def test_a_run_without_a_target_has_no_node_to_show(tmp_path):
    page, _ = drawn(build.write(tmp_path, build.cut_off(build.passing(), 0.5), Frames()), "node-pods")
    assert "Node and pods (no target was chosen)" in page.text()


def test_pods_that_leave_between_taint_and_recovery_end_the_chain(tmp_path):
    _, data = drawn(build.write(tmp_path, build.passing(), evicted(3.0)), "chain")
    rows = data["chain"]["chains"][0]["rows"]
    assert rows[-1]["hop"] == "pods reacted"
    assert rows[-1]["took_s"] == pytest.approx(3.0 - 0.97)


def test_pods_that_the_recovery_ends_are_no_reaction(tmp_path):
    _, data = drawn(build.write(tmp_path, build.passing(), evicted(20.0)), "chain")
    rows = data["chain"]["chains"][0]["rows"]
    assert "pods reacted" not in {row["hop"] for row in rows}


def evicted(t: float) -> Frames:
    """The training pod ends so many seconds after the fault."""
    frames = around.frames()
    pods = frames.pods[frames.pods["phase"] == "Failed"].copy()
    pods["time"] = pd.Timestamp(build.at(build.FAULT_AT + t)).as_unit("ns")
    frames.pods = pods
    return frames
