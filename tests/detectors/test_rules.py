"""What the shipped profiles say of faults: who sees which fault, and what it does then."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.detectors.facts import facts, facts_of, rule_for
from gameday.detectors.load import load_detector
from gameday.detectors.models import Rule
from gameday.faults.registry import parse_parameters
from gameday.xid.lines import Form, format_xid, recognise

XID = "DCGM_FI_DEV_XID_ERRORS"


def word(detector: str, **fault: Any) -> str:
    """taint, cordon, condition, event, allocatable, nothing, blind, or unsaid: the strongest the profile says."""
    return strongest(rule_for(load_detector(detector), parse_parameters(fault)))


def strongest(rule: Rule | None) -> str:
    if rule is None:
        return "unsaid"
    if rule.cannot_see:
        return "blind"
    effects = {
        "taint": rule.taints,
        "cordon": rule.cordoned,
        "condition": rule.conditions,
        "event": rule.events,
        "allocatable": rule.allocatable_falls,
    }
    return next((name for name, effect in effects.items() if effect), "nothing")


@pytest.mark.parametrize("kernel", ["illegal_address", "misaligned_address", "trap"])
def test_a_real_crash_is_the_kernels_own_line_and_an_event_of_nvml(kernel: str) -> None:
    fault = {"type": "cuda_crash", "kernel": kernel}
    detectors = ("konduktor", "nvsentinel", "gameday", "eks-node-monitoring-agent", "device-plugin")
    said = {detector: word(detector, **fault) for detector in detectors}
    assert said == dict(zip(detectors, ("taint", "event", "event", "event", "nothing"), strict=True))


@pytest.mark.parametrize(
    ("code", "form", "konduktor", "nvsentinel", "gameday"),
    [
        (79, "kernel", "taint", "cordon", "taint"),
        (119, "kernel", "taint", "cordon", "taint"),
        (13, "kernel", "taint", "event", "event"),
        (31, "kernel", "taint", "event", "event"),
        (43, "kernel", "taint", "event", "event"),
        (45, "kernel", "taint", "cordon", "event"),
        (14, "kernel", "taint", "event", "event"),
        (63, "kernel", "taint", "event", "event"),
        (94, "kernel", "taint", "event", "event"),
        (999, "kernel", "taint", "cordon", "event"),
        (79, "mig", "taint", "blind", "taint"),
        (79, "old", "taint", "blind", "taint"),
        (79, "bare", "taint", "blind", "taint"),
        (145, "kernel", "taint", "unsaid", "event"),
        (154, "kernel", "taint", "unsaid", "taint"),
    ],
)
def test_an_xid_in_the_kernel_log(code: int, form: str, konduktor: str, nvsentinel: str, gameday: str) -> None:
    fault = {"type": "xid", "xid": code, "form": form}
    said = {detector: word(detector, **fault) for detector in ("konduktor", "nvsentinel", "gameday")}
    assert said == {"konduktor": konduktor, "nvsentinel": nvsentinel, "gameday": gameday}


@pytest.mark.parametrize("detector", ["eks-node-monitoring-agent", "device-plugin"])
def test_who_does_not_read_the_kernel_log_sees_no_line_of_it(detector: str) -> None:
    assert word(detector, type="xid", xid=79) == "blind"
    assert word(detector, type="sxid", sxid=20034, pci="0000:c1:00") == "blind"


@pytest.mark.parametrize(
    ("fault", "konduktor", "nvsentinel"),
    [
        ({"sxid": 12021}, "taint", "event"),
        ({"sxid": 20034, "link": 30}, "taint", "cordon"),
        ({"sxid": 20034, "link": None}, "taint", "blind"),
        ({"sxid": 20034, "link": 30, "form": "bare"}, "taint", "blind"),
        ({"sxid": 12028, "severity": "Fatal"}, "taint", "cordon"),
    ],
)
def test_an_sxid_in_the_kernel_log(fault: dict[str, Any], konduktor: str, nvsentinel: str) -> None:
    said = [word(detector, type="sxid", pci="0000:c1:00", **fault) for detector in ("konduktor", "nvsentinel")]
    assert said == [konduktor, nvsentinel]


@pytest.mark.parametrize(
    ("field", "value", "nvsentinel", "eks", "device_plugin"),
    [
        (XID, 95, "cordon", "condition", "blind"),
        (XID, 64, "cordon", "condition", "blind"),
        (XID, 60, "cordon", "event", "blind"),
        (XID, 48, "event", "condition", "blind"),
        (XID, 119, "event", "condition", "blind"),
        (XID, 13, "unsaid", "event", "blind"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1, "cordon", "condition", "blind"),
        ("DCGM_FI_DEV_ECC_DBE_VOL_DEV", 1, "unsaid", "condition", "blind"),
        ("DCGM_FI_DEV_POWER_VIOLATION", 99999, "event", "unsaid", "blind"),
        ("DCGM_FI_DEV_THERMAL_VIOLATION", 99999, "cordon", "unsaid", "blind"),
        ("DCGM_FI_DEV_GPU_TEMP", 95, "blind", "unsaid", "blind"),
    ],
)
def test_a_value_in_dcgms_cache(field: str, value: int, nvsentinel: str, eks: str, device_plugin: str) -> None:
    fault = {"type": "dcgm_field", "field": field, "value": value}
    detectors = ("nvsentinel", "eks-node-monitoring-agent", "device-plugin")
    assert [word(detector, **fault) for detector in detectors] == [nvsentinel, eks, device_plugin]


def test_a_power_cap_is_seen_by_nobody() -> None:
    for detector in ("konduktor", "nvsentinel", "eks-node-monitoring-agent", "device-plugin", "gameday"):
        assert word(detector, type="power_cap", watts=300) == "blind"


def test_only_the_kubelets_own_count_shows_a_removed_gpu() -> None:
    assert word("device-plugin", type="gpu_removed") == "allocatable"
    assert word("node-problem-detector", type="gpu_removed") == "blind"


def test_node_problem_detector_writes_an_event_beside_its_condition() -> None:
    rule = rule_for(load_detector("node-problem-detector"), parse_parameters({"type": "xid", "xid": 79}))
    assert rule is not None
    assert [(event.reason, event.type) for event in rule.events] == [("GPUXidHardware", "Warning")]
    assert [condition.type for condition in rule.conditions] == ["GPUXidFault"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"type": "xid", "xid": 79}, "nothing"),
        ({"type": "xid", "xid": 79, "form": "bare"}, "nothing"),
        ({"type": "xid", "xid": 79, "form": "mig"}, "blind"),
        ({"type": "xid", "xid": 63}, "blind"),
        ({"type": "xid", "xid": 999}, "blind"),
        ({"type": "sxid", "sxid": 20034, "pci": "0000:c1:00", "link": None}, "nothing"),
    ],
)
def test_gpud_sees_and_shows_nothing_in_the_cluster(fault: dict[str, Any], said: str) -> None:
    assert word("gpud", **fault) == said


def test_nvsentinel_without_quarantine_sets_conditions_and_never_cordons() -> None:
    profile = load_detector("nvsentinel-kernel-log")
    assert not profile.ever_quarantines
    assert word("nvsentinel-kernel-log", type="xid", xid=79) == "condition"
    assert word("nvsentinel-kernel-log", type="xid", xid=13) == "event"
    assert word("nvsentinel-kernel-log", type="xid", xid=79, form="bare") == "blind"


def test_several_faults_at_once_cause_what_each_part_causes() -> None:
    parts = [{"type": "xid", "xid": 13}, {"type": "dcgm_field", "field": "DCGM_FI_DEV_ROW_REMAP_FAILURE"}]
    rule = rule_for(load_detector("nvsentinel"), parse_parameters({"type": "compound", "parts": parts}))
    assert rule is not None
    assert [event.reason for event in rule.events] == ["SysLogsXIDErrorIsNotHealthy"]
    assert [condition.type for condition in rule.conditions] == ["GpuMemWatch"]
    assert rule.cordoned is not None


@pytest.mark.parametrize("form", list(Form))
def test_a_line_in_a_log_store_has_the_facts_of_the_plan_that_wrote_it(form: Form) -> None:
    event = recognise("[  12.345678] " + format_xid(79, "0000:4e:00", form))
    assert event is not None
    planned = facts(parse_parameters({"type": "xid", "xid": 79, "form": str(form)}))
    assert facts_of(event).items() <= planned.items()
