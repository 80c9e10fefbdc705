"""`gameday plans`: how the shipped plans are grouped, chosen and put into words."""

from __future__ import annotations

import json

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday.plan.catalogue import package_plans, shipped_plans

Capture = pytest.CaptureFixture[str]


def listed(capsys: Capture, *options: str) -> list[str]:
    assert run(["plans", *options]) == ExitCode.PASSED
    return capsys.readouterr().out.splitlines()


def names(capsys: Capture, *options: str) -> set[str]:
    assert run(["plans", "--json", *options]) == ExitCode.PASSED
    return {row["name"] for row in json.loads(capsys.readouterr().out)}


def test_a_plan_is_one_line_with_its_title(capsys: Capture) -> None:
    lines = listed(capsys)
    assert len(lines) < len(shipped_plans()) + len(package_plans()) + 40
    assert [line.split() for line in lines if line.startswith("  gpu-fell-off-the-bus ")] == [
        ["gpu-fell-off-the-bus", *["A", "GPU", "falls", "off", "the", "bus"]]
    ]


@pytest.mark.parametrize("options", [["--long"], ["gpu-fell-off-the-bus"], ["gpu-fell"]])
def test_a_plan_that_is_asked_for_has_its_details_below_its_name(options: list[str], capsys: Capture) -> None:
    lines = listed(capsys, *options)
    at = lines.index("  gpu-fell-off-the-bus")
    assert lines[at + 1 : at + 3] == [
        "      A GPU falls off the bus",
        "      xid 79 · GPUFellOffTheBus within 15s · trainy.konduktor.ai/faulty:NoSchedule within 15s"
        " · repair: reboot",
    ]


def test_each_plan_stands_once_below_the_layer_of_its_fault(capsys: Capture) -> None:
    lines = listed(capsys)
    layers = [line for line in lines if line and not line.startswith(" ")][:-1]
    assert layers[0] == "Kernel log"
    assert layers[-1] == "Scheduling"
    assert len(layers) == len(set(layers))
    shown = [line.split()[0] for line in lines if line.startswith("  ")]
    assert sorted(shown) == sorted([*shipped_plans(), *package_plans()])


def test_device_taints_stand_where_users_of_dra_look(capsys: Capture) -> None:
    assert names(capsys, "--layer", "scheduling") == {"dra-device-taint", "hardware-aware-placement"}


def test_dangerous_plans_are_marked(capsys: Capture) -> None:
    lines = listed(capsys, "--layer", "hardware load")
    marked = {line.split()[0] for line in lines if line.endswith("  dangerous")}
    assert {"gpu-burn", "gpu-heat-throttles"} <= marked
    assert "numa-far-node" not in marked


def test_faults_are_in_words(capsys: Capture) -> None:
    lines = listed(capsys, "--long")
    for plan, words in (
        ("dmesg-shipper-frozen", "component_frozen (component dmesg-shipper) + xid 95 · "),
        ("exporter-flaps", "unit_stopped (unit nvidia-dcgm-exporter), times 3, every 20s · "),
        ("ecc-off", "ecc_off (gpu 7, reset) · "),
        ("nccl-ib-disabled", "nccl_environment (variables NCCL_IB_DISABLE=1) · "),
        ("apiserver-list-storm", "list_storm (stages 2 4 8 12)"),
        ("dcgm-gpu-temperature", "dcgm_field (field DCGM_FI_DEV_GPU_TEMP, value 95) · "),
    ):
        at = next(at for at, line in enumerate(lines) if line.split()[:1] == [plan])
        assert lines[at + 2].startswith(f"      {words}"), plan


def test_plans_can_be_asked_for_by_layer_fault_and_detector(capsys: Capture) -> None:
    assert names(capsys, "--layer", "network", "--fault", "net_tbf") == {"net-rate-limit-ib0", "nccl-over-slow-ib0"}
    assert names(capsys, "--fault", "sxid") == {"sxid-12028-refused-request", "sxid-20034-link-fault"}
    assert "xid-95-without-dcgm" in names(capsys, "--fault", "xid"), "a part of its fault is an xid"
    seen = names(capsys, "--detector", "device-plugin")
    assert "gpu-removed" in seen
    assert "kubelet-stopped" not in seen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--layer", "networ"], "there is no layer networ; did you mean --layer 'network'?"),
        (["--fault", "zz\x1b"], "there is no fault zz\\x1b; one of: api_churn, "),
        (["--layer", "network", "--fault", "xid"], "no shipped plan is like that; `gameday plans` lists them all"),
    ],
)
def test_a_wrong_wish_is_answered_with_what_there_is(capsys: Capture, options: list[str], said: str) -> None:
    assert run(["plans", *options]) == ExitCode.USAGE
    assert f"gameday: {said}" in capsys.readouterr().err


def test_json_is_for_programs(capsys: Capture) -> None:
    assert run(["plans", "--json"]) == ExitCode.PASSED
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["xid-13-application-error"] == {
        "name": "xid-13-application-error",
        "title": "Negative control: a bug in a job must not cost a node",
        "layer": "kernel log",
        "fault": "xid 13",
        "dangerous": [],
        "targets": 1,
        "expected": ["stays schedulable for 15s"],
        "remediation": "none",
    }
    assert rows["gpu-burn"]["dangerous"] == ["gpu_burn"]
