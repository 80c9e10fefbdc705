"""The shipped plans: found by name, valid, consistent with the Xid catalogue and the shipped alert rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError
from gameday.faults.compound import CompoundParameters
from gameday.faults.registry import parameter_models
from gameday.faults.sxid import SxidParameters
from gameday.faults.xid import XidParameters
from gameday.plan.catalogue import find_plan, load_shipped, package_plans, shipped_plans
from gameday.plan.models import Plan
from gameday.values.nodes import NodeRole
from gameday.xid.decide import Response
from gameday.xid.lines import format_xid, recognise
from gameday_health.policy_files import kernel_signal, load_policy

ROOT = Path(__file__).parents[2]
PLANS = {name: load_complete_plan(path, ()).plan for name, path in shipped_plans().items()}
LOGGED = sorted(name for name, plan in PLANS.items() if isinstance(plan.fault, (XidParameters, SxidParameters)))
CONTROLS = {
    "xid-13-application-error",
    "xid-13-burst",
    "xid-31-mmu-fault",
    "xid-43-channel-reset",
    "xid-45-preemptive-cleanup",
    "xid-94-contained-ecc",
    "probes-of-the-owners",
    "sxid-12028-refused-request",
}


def test_the_default_rehearsal_is_shipped_and_expects_the_whole_chain() -> None:
    plan = PLANS["gpu-fell-off-the-bus"]
    assert isinstance(plan.fault, XidParameters)
    assert plan.fault.xid == 79
    assert plan.recover.remediation == "reboot"
    assert [alert.name for alert in plan.expect.alerts] == ["GPUFellOffTheBus"]
    assert [(taint.key, taint.value, taint.effect) for taint in plan.expect.taints] == [
        ("trainy.konduktor.ai/faulty", "true", "NoSchedule")
    ]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_shipped_plan_has_its_files_name_and_points_editors_to_the_schema(name: str) -> None:
    assert PLANS[name].name == name
    first, *_ = shipped_plans()[name].read_text(encoding="utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=../docs/plan.schema.json"
    assert (shipped_plans()[name].parent / "../docs/plan.schema.json").resolve().is_file()


def test_expected_alerts_exist_in_the_shipped_rules() -> None:
    rules = YAML(typ="safe", pure=True).load((ROOT / "deploy/alerts/gpu-faults.rules.yaml").read_text(encoding="utf-8"))
    known = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    expected = {(alert.name, name) for name, plan in PLANS.items() for alert in plan.expect.alerts}
    assert len(expected) > 10
    assert {(alert, plan) for alert, plan in expected if alert not in known} == set()


@pytest.mark.parametrize("name", LOGGED)
def test_a_taint_is_expected_exactly_where_the_catalogue_asks_for_one(name: str) -> None:
    plan = PLANS[name]
    assert _quarantines(plan, "default") == bool(plan.expect.taints)
    assert bool(plan.expect.stays_schedulable_for) == (name in CONTROLS)


def test_every_fault_type_has_a_shipped_plan() -> None:
    faults = [loaded.plan.fault for loaded in load_shipped(parameter_models())]
    parts = [part for fault in faults if isinstance(fault, CompoundParameters) for part in fault.parts]
    used = {fault.type for fault in (*faults, *parts)}
    assert set(parameter_models()) - used == set()


def test_each_application_error_of_the_catalogue_has_a_negative_control() -> None:
    faults = [PLANS[name].fault for name in CONTROLS]
    assert {fault.xid for fault in faults if isinstance(fault, XidParameters)} == {13, 31, 43, 45, 94}


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_a_negative_control_catches_a_detector_that_taints_on_everything(name: str) -> None:
    assert _quarantines(PLANS[name], "konduktor")


def _quarantines(plan: Plan, policy: str) -> bool:
    fault = plan.fault
    if isinstance(fault, XidParameters):
        line = format_xid(fault.xid, "0000:4e:00", fault.form)
    else:
        assert isinstance(fault, SxidParameters)
        line = fault.line
    event = recognise(line)
    assert event is not None
    return load_policy(policy).policy.decide(kernel_signal(event)).response is Response.QUARANTINE


def test_all_shipped_plans_are_loaded_those_of_gpu_faults_first() -> None:
    names = [loaded.plan.name for loaded in load_shipped(parameter_models())]
    assert names == [*sorted(PLANS), *sorted(package_plans())]


@pytest.mark.parametrize("name", sorted(package_plans()))
def test_a_plan_of_the_control_plane_names_its_schema_and_its_cluster(name: str) -> None:
    path = package_plans()[name]
    plan = load_complete_plan(path, ()).plan
    assert plan.name == name
    first, *_ = path.read_text(encoding="utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=../../docs/plan.schema.json"
    assert plan.rehearsal.cluster == "lab"
    assert (plan.expect.api_canary is not None) is (plan.fault.runs_on is NodeRole.API_CLIENT)
    assert find_plan(name) == path


def test_a_plan_is_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_plan("gpu-fell-off-the-bus").name == "gpu-fell-off-the-bus.yaml"
    assert find_plan("some/where.yaml") == Path("some/where.yaml")
    (tmp_path / "mine").touch()
    monkeypatch.chdir(tmp_path)
    assert find_plan("mine") == Path("mine")


def test_an_unknown_name_suggests_the_nearest_shipped_one() -> None:
    with pytest.raises(DocumentError) as caught:
        find_plan("gpu-fel-off-bus")
    assert caught.value.problems[0].suggestion == "did you mean gpu-fell-off-the-bus?"


def test_the_beginning_of_one_name_alone_is_enough() -> None:
    assert find_plan("xid-48").stem == "xid-48-double-bit-ecc"
    with pytest.raises(DocumentError) as caught:
        find_plan("xid-95")
    assert str(caught.value.problems[0].suggestion).split()[3::2] == [
        *("xid-95-in-the-old-form", "xid-95-of-a-mig-instance", "xid-95-uncontained-ecc", "xid-95-without-dcgm?")
    ]
    with pytest.raises(DocumentError, match="did you mean nccl-over-slow-ib0 or net-interface-down-ib0 or "):
        find_plan("ib0")
