"""The plan's purpose, the boards, the queries, the cost and the safety log: what surrounds a run in its report."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from gameday.history.frames import Frames
from gameday.plan.purpose import Goal, Purpose
from gameday.report.render import render
from tests.report import around
from tests.report import run_builder as build
from tests.report.page import Page, drawn
from tests.report.test_comparison import written

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    purpose = Purpose(
        goal=Goal.VALIDATE_OUTAGE,
        incident="https://wiki.example/2026-02-11",
        change="javascript:alert(1)",
        environment="staging",
        contact="+49 30 123",
    )
    plan = build.PLAN.model_copy(update={"purpose": purpose})
    timed = [*build.passing(), *around.events()]
    made = render(build.write(tmp_path_factory.mktemp("run"), timed, around.frames(), plan), NOW)
    return Page(made.html.read_text()), json.loads(made.json.read_text())["sections"]


def test_the_purpose_is_in_hypothesis_identity_and_guardrails(full):
    page, _ = full
    assert "To see that a past outage would be caught now" in page.text("hypothesis")
    assert "staging" in page.text("identity")
    assert "+49 30 123" in page.text("guardrails") and "+49 30 123" in page.text("hypothesis")


def test_of_what_a_plan_says_only_web_addresses_become_links(full):
    page, _ = full
    out = [attrs["href"] for attrs in page.attributes("a") if not attrs["href"].startswith("#")]
    assert out == ["https://wiki.example/2026-02-11"]
    assert "javascript:alert(1)" in page.text("identity")


def test_a_plan_without_a_purpose_has_a_note_of_that(tmp_path):
    page, _ = drawn(build.write(tmp_path, build.passing(), Frames()), "hypothesis", "identity")
    assert "the plan states none" in page.text("hypothesis")
    assert "not stated in the plan" in page.text("identity")


def test_the_boards_are_named_the_target_first(full):
    _, data = full
    gpus = data["blast-radius"]["hardware"][0]["gpus"]
    assert (gpus[0]["gpu"], gpus[0]["uuid"]) == (str(build.GPU), f"GPU-0000-{build.GPU}")
    assert len(gpus) == 8


def test_the_queries_and_the_columns_of_the_frames_can_be_asked_again(full):
    page, data = full
    assert data["reproduce"]["sources"][0]["query"] == '{__name__=~"DCGM_FI_DEV_GPU_TEMP",Hostname=~"gpu-node-03"}'
    assert "One sample per" in page.text("reproduce") and "0.50 s" in page.text("reproduce")
    assert data["reproduce"]["columns"]["pods"]["gpus"] == "Int64"


def test_the_cost_counts_queries_watches_pods_and_processor(full):
    page, data = full
    cost = data["cost"]
    assert (cost["queries"], cost["watches"], len(cost["made"])) == (20, 2, 3)
    assert cost["own"]["cpu_s"] == 2.4
    assert "not measured" in page.text("cost")  # what the agent's pods cost the node


def test_a_run_that_counted_no_cost_has_none(tmp_path):
    timed = build.without(build.passing(), lambda e: e.kind == "api_cost")
    cost = drawn(build.write(tmp_path, timed, Frames()), "cost")[1]["cost"]
    assert (cost["queries"], cost["watches"], cost["own"]) == (None, None, None)


def test_the_safety_log_lists_the_gates_and_the_lock(full):
    page, data = full
    assert [gate["name"] for gate in data["guardrails"]["gates"]][-1] == "log path"
    assert "0.40 s after the run was started" in page.text("guardrails")
    assert "not before this run" in page.text("guardrails")


def test_the_undo_was_last_proved_by_the_newest_earlier_run_that_ended_clean(tmp_path):
    written(tmp_path, 1)
    written(tmp_path, 2)
    page = Page((written(tmp_path, 3) / "report.html").read_text())
    assert "run 20260002 of this plan left the cluster clean" in page.text("guardrails")


def test_what_changed_in_the_plan_is_shown_line_by_line(tmp_path):
    earlier = written(tmp_path, 1)
    text = (earlier / "plan.yaml").read_text()
    (earlier / "plan.yaml").write_text(text.replace("within: 15s", "within: 25s"))
    newer = written(tmp_path, 2)
    diff = json.loads((newer / "report.json").read_text())["sections"]["comparison"]["plan_diff"]
    changed = [line for line in diff if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert changed == ["-      within: 25s", "+      within: 15s"]
    assert "What changed in the plan" in Page((newer / "report.html").read_text()).text("comparison")


def test_time_to_resolve_counts_from_the_end_of_the_repair(full):
    _, data = full
    row = data["alerts"]["expected"][0]
    assert row["to_resolve_s"] == pytest.approx(34.0 - 31.2)
    assert row["severity"] == "critical"
