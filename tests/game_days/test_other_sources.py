"""Clusters without our controller: one that has Konduktor and kube-state-metrics, and one that has dcgm-exporter only.

In each a shipped plan holds, a near miss of it does not, and the doctor says which rule can fire.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from gameday import cli
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from tests.cluster.servers.conftest import eventually
from tests.game_days.conftest import Arena, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

PLANS = Path(__file__).parents[2] / "plans" / "detectors"
XID = {"type": "xid", "xid": 79, "hold": "60s"}
DCGM = {"type": "dcgm_field", "field": "DCGM_FI_DEV_XID_ERRORS", "value": 79, "hold": "60s"}


def shipped(name: str) -> dict[str, Any]:
    plan: dict[str, Any] = YAML(typ="safe", pure=True).load((PLANS / f"{name}.yaml").read_text(encoding="utf-8"))
    return plan


def expecting(alert: str, fault: dict[str, Any]) -> dict[str, Any]:
    """A plan that names this rule for this fault, with as much time as the rule needs."""
    plan = changed(shipped("dcgm-exporter-xid-79"), "fault", fault)
    return changed(plan, "expect.alerts", [{"name": alert, "within": "40s" if alert.startswith("Node") else "15s"}])


@contextlib.contextmanager
def rehearsal(arena: Arena, folder: Path, detector: Detector) -> Iterator[Arena]:
    """A cluster of its own; the arena's Prefect server serves it too."""
    with RehearsalCluster(Blueprint(folder / "cluster", Size(nodes=3, gpus=8), detector, prefect=False)) as cluster:
        cluster.urls["prefect"] = arena.cluster.urls["prefect"]
        cluster.prefect_password = arena.cluster.prefect_password
        jobs = {"dcgm-exporter", *(["kube-state-metrics"] if detector is Detector.KONDUKTOR else [])}
        eventually(lambda: scraped(cluster), jobs.__le__)
        yield Arena(cluster, folder)


def scraped(cluster: RehearsalCluster) -> set[str]:
    answer = httpx.get(f"{cluster.urls['prometheus']}/api/v1/query", params={"query": "up == 1"}, trust_env=False)
    return {one["metric"]["job"] for one in answer.raise_for_status().json()["data"]["result"]}


@pytest.fixture(scope="module")
def konduktor(arena: Arena, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with rehearsal(arena, tmp_path_factory.mktemp("konduktor"), Detector.KONDUKTOR) as here:
        yield here


@pytest.fixture(scope="module")
def dcgm_exporter(arena: Arena, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with rehearsal(arena, tmp_path_factory.mktemp("dcgm-exporter"), Detector.OFF) as here:
        yield here


def can_fire(arena: Arena, plan: dict[str, Any]) -> dict[str, Any]:
    """The doctor's word on whether the rule of the plan's alert can fire."""
    file = arena.folder / "doctor.yaml"
    YAML(typ="safe", pure=True).dump(plan, file)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        cli.run(["doctor", str(file), "--profile", str(arena.cluster.profile), "--json"])
    (row,) = (row for row in json.loads(said.getvalue()) if row["name"].endswith(" can fire"))
    found: dict[str, Any] = row
    return found


def named_instead(row: dict[str, Any]) -> str:
    """The one rule that the doctor names instead; empty where it names none."""
    named: str = row["fix"].partition("of the same meaning, and able to fire here: ")[2]
    assert ", N" not in named and ", GPU" not in named, "several rules"
    return named


def test_with_konduktor_only_a_plan_holds_by_the_alert_that_its_taint_sets_off(konduktor: Arena) -> None:
    played = konduktor.play(shipped("konduktor-xid-79"))
    assert played.exit_code == 0, played.output
    assert "Alert NodeQuarantined fires" in played.output


def test_with_konduktor_only_a_fault_that_it_does_not_see_sets_off_no_alert_of_its_taint(konduktor: Arena) -> None:
    played = konduktor.play(expecting("NodeQuarantined", DCGM))
    assert played.exit_code == 1, played.output
    assert played.verdicts()["alert-fires"] == "broken"


@pytest.mark.parametrize(
    ("plan", "ok", "says", "named"),
    [
        (shipped("konduktor-xid-79"), True, "", ""),
        (
            expecting("GPUFellOffTheBus", XID),
            False,
            "our node-health controller alone, and detector konduktor makes none of them",
            "NodeQuarantined",
        ),
        (
            expecting("NodeGPUConditionFailed", XID),
            None,
            "konduktor sets no condition for this fault, by its profile",
            "NodeQuarantined",
        ),
        (expecting("NodeQuarantined", DCGM), None, "konduktor sets no taint", "GPUXidHardware"),
        (expecting("GPUXidHardware", XID), False, "of which DCGM sees nothing", "NodeQuarantined"),
    ],
    ids=["shipped", "our-controllers", "a-condition", "a-fault-it-cannot-see", "dcgm-exporters"],
)
def test_with_konduktor_only_the_doctor_says_which_rule_can_fire(
    konduktor: Arena, plan: dict[str, Any], ok: bool | None, says: str, named: str
) -> None:
    row = can_fire(konduktor, plan)
    assert row["ok"] is ok, row
    assert says in row["detail"]
    assert named_instead(row).partition(" (")[0] == named


def test_with_dcgm_exporter_only_a_plan_holds_by_its_alert(dcgm_exporter: Arena) -> None:
    played = dcgm_exporter.play(shipped("dcgm-exporter-xid-79"))
    assert played.exit_code == 0, played.output
    assert "Alert GPUXidHardware fires" in played.output


@pytest.mark.parametrize("fault", [XID, DCGM | {"value": 13}], ids=["in-the-kernel-log", "of-an-application"])
def test_with_dcgm_exporter_only_another_fault_does_not_set_it_off(dcgm_exporter: Arena, fault: dict[str, Any]) -> None:
    played = dcgm_exporter.play(expecting("GPUXidHardware", fault))
    assert played.exit_code == 1, played.output
    assert played.verdicts()["alert-fires"] == "broken"


@pytest.mark.parametrize(
    ("plan", "ok", "says", "named"),
    [
        (shipped("dcgm-exporter-xid-79"), True, "", ""),
        (expecting("GPUFellOffTheBus", DCGM), False, "no series of metric gameday_health_", "GPUXidHardware"),
        (expecting("GPUFellOffTheBus", XID), False, "no series of metric gameday_health_", ""),
        (expecting("NodeQuarantined", XID), False, "no series of metric kube_node_spec_taint", ""),
        (expecting("GPUXidHardware", XID), False, "of which DCGM sees nothing", ""),
    ],
    ids=["shipped", "our-controllers", "our-controllers-for-a-line", "a-taint", "dcgm-exporters-for-a-line"],
)
def test_with_dcgm_exporter_only_the_doctor_says_which_rule_can_fire(
    dcgm_exporter: Arena, plan: dict[str, Any], ok: bool, says: str, named: str
) -> None:
    row = can_fire(dcgm_exporter, plan)
    assert row["ok"] is ok, row
    assert says in row["detail"]
    assert named_instead(row).partition(" (")[0] == named
