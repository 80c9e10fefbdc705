"""A plan whose fault runs on an API-client node expects what can be seen there, and no other plan does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gameday.errors import DocumentError, DocumentProblem
from gameday.faults.registry import parameter_models
from gameday.plan.load import LoadedPlan, parse_plan
from gameday.report.run_folder import load_run_folder
from tests.report.run_builder import passing, write

STORM = """\
apiVersion: gameday/v1
name: a
title: t
hypothesis: h
fault: {type: list_storm}
guardrails: {allow_dangerous: [list_storm, node_reboot]}
expect:
  api_canary: {}
"""
GPU = STORM.replace("{type: list_storm}", "{type: xid, xid: 79}")


def parse(text: str) -> LoadedPlan:
    return parse_plan(text.encode(), "p.yaml", parameter_models())


def problem(text: str) -> DocumentProblem:
    with pytest.raises(DocumentError) as caught:
        parse(text)
    (found,) = caught.value.problems
    return found


def test_the_smallest_plan_of_the_control_plane_is_accepted() -> None:
    assert parse(STORM).plan.expect.api_canary is not None


def test_a_storm_that_nothing_measures_is_refused() -> None:
    found = problem(STORM.replace("api_canary: {}", "containment: {executing_at_most: 2}"))
    assert found.where == "expect"
    assert "`api_canary: {}`" in found.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("taints", "[{key: a, within: 5s}]"),
        ("cordoned", "{within: 5s}"),
        ("stays_schedulable_for", "5s"),
        ("workloads", "{running_pods: kept}"),
    ],
)
def test_what_only_a_gpu_node_can_show_is_refused_of_a_storm(key: str, value: str) -> None:
    found = problem(f"{STORM}  {key}: {value}\n")
    assert found.where == f"expect.{key}"
    assert "leaves its node whole" in found.message


def test_a_node_that_stays_whole_is_not_repaired() -> None:
    found = problem(f"{STORM}recover: {{remediation: reboot}}\n")
    assert "no node to repair" in found.message


def test_two_faults_of_a_plan_are_for_the_same_kind_of_node() -> None:
    found = problem(f"{STORM}recover: {{remediation: reboot, fault_during: {{type: node_reboot}}}}\n")
    assert found.where == "recover.fault_during.type"
    assert "the same kind of node" in found.message


@pytest.mark.parametrize(("key", "value"), [("api_canary", "{}"), ("containment", "{executing_at_most: 2}")])
def test_what_only_api_clients_show_is_refused_of_a_gpu_fault(key: str, value: str) -> None:
    text = GPU.replace("api_canary: {}", f"{key}: {value}") + "  taints: [{key: a, within: 5s}]\n"
    found = problem(text)
    assert found.where == f"expect.{key}"
    assert "such as list_storm" in found.message


def test_containment_that_asks_for_nothing_is_refused() -> None:
    found = problem(f"{STORM}  containment: {{servers_stay_up: false}}\n")
    assert found.where == "expect.containment"
    assert "executing_at_most" in found.message


@pytest.mark.parametrize("fault", ["etcd_paused", "{type: api_server_restarted, hold: 4m}"])
def test_a_fault_that_stops_the_control_plane_needs_a_lab(fault: str) -> None:
    fault = fault if fault.startswith("{") else f"{{type: {fault}, hold: 2m}}"
    text = STORM.replace("{type: list_storm}", fault)
    found = problem(text)
    assert found.where == "fault.type"
    assert "only a lab allows" in found.message
    assert parse(f"{text}rehearsal: {{cluster: lab}}\n").plan.fault.needs_lab


def test_every_node_and_pod_is_read_on_a_lab_only() -> None:
    text = f"{STORM}  containment: {{nodes_and_pods_stay: true, servers_stay_up: false}}\n"
    assert problem(text).where == "expect.containment.nodes_and_pods_stay"
    assert parse(f"{text}rehearsal: {{cluster: lab}}\n")


def test_a_report_reads_a_stored_plan_of_the_control_plane(tmp_path: Path) -> None:
    plan = parse(f"{STORM}  containment: {{executing_at_most: 2}}\nrehearsal: {{cluster: lab}}\n").plan
    run = load_run_folder(write(tmp_path, passing(), plan=plan))
    assert run.plan is not None
    assert run.plan.expect.containment == plan.expect.containment
    assert run.plan.fault.type == "list_storm"
    assert json.loads((tmp_path / "plan.json").read_text())["rehearsal"]["api_servers"] is None


def test_a_restart_that_nothing_makes_or_measures_is_refused() -> None:
    found = problem(f"{STORM}  containment: {{restart_frees: {{at_least: 0.2}}}}\n")
    assert found.where == "expect.containment.restart_frees"
    assert "`restart_api_servers: {}`" in found.message
    gpu = GPU.replace("api_canary: {}", "stays_schedulable_for: 5s")
    found = problem(f"{gpu}recover: {{restart_api_servers: {{}}}}\n")
    assert found.where == "recover.restart_api_servers"
    both = f"{STORM}  containment: {{restart_frees: {{at_least: 0.2}}}}\nrecover: {{restart_api_servers: {{}}}}\n"
    assert parse(both).plan.recover.restart_api_servers
