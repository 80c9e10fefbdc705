"""The rule that stands for an alert expected by its meaning: by the fault's layer, and by the detector that watches."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gameday.detectors.load import known_detectors, load_detector
from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError
from gameday.expect.alerts import ExpectedAlert
from gameday.plan.models import Plan
from gameday.report.run_folder import OpenFault
from gameday.values.alert_families import AlertSource
from tests.alerts.shipped import BY_NAME

XID = "{type: xid, xid: 79}"
DCGM = "{type: dcgm_field, field: DCGM_FI_DEV_XID_ERRORS, value: 79}"
PLAN = """\
apiVersion: gameday/v1
name: by-meaning
title: By meaning
hypothesis: An alert fires, whoever watches.
{detector}
fault: {fault}
expect:
  alerts:
    - {{meaning: {meaning}, within: 30s{more}}}
"""


def alert_of(
    folder: Path,
    meaning: str = "gpu-fell-off-the-bus",
    *,
    fault: str = XID,
    named: str = "",
    watching: str | None = None,
    more: str = "",
) -> ExpectedAlert:
    path = folder / "by-meaning.yaml"
    detector = f"detector: {named}" if named else ""
    path.write_text(PLAN.format(meaning=meaning, fault=fault, detector=detector, more=more))
    return load_complete_plan(path, watching=watching).plan.expect.alerts[0]


@pytest.mark.parametrize("watching", [None, "gameday"])
def test_our_controllers_rule_where_it_watches(tmp_path: Path, watching: str | None) -> None:
    assert alert_of(tmp_path, watching=watching).name == "GPUFellOffTheBus"


@pytest.mark.parametrize(
    ("detector", "alert"),
    [
        ("konduktor", "NodeQuarantined"),
        ("nvsentinel", "NodeGPUConditionFailed"),
        ("node-problem-detector", "NodeGPUConditionFailed"),
    ],
)
def test_what_the_detectors_profile_says_it_does_to_the_node(tmp_path: Path, detector: str, alert: str) -> None:
    assert alert_of(tmp_path, watching=detector).name == alert
    assert alert_of(tmp_path, named=detector).name == alert, "the plan's own word"
    assert alert_of(tmp_path, named=detector, watching="gameday").name == alert, "the plan's word comes first"


@pytest.mark.parametrize("watching", [None, "konduktor"])
def test_dcgm_exporters_rule_for_a_fault_in_dcgms_cache_whoever_watches(tmp_path: Path, watching: str | None) -> None:
    alert = alert_of(tmp_path, fault=DCGM, watching=watching, more=", labels: {severity: critical}")
    assert (alert.name, alert.labels) == ("GPUXidHardware", {"code": "79", "severity": "critical"})
    assert alert_of(tmp_path, fault=DCGM, more=', labels: {code: "48"}').labels == {"code": "48"}, "the plan's own wins"


@pytest.mark.parametrize(
    ("meaning", "watching"), [("gpu-fell-off-the-bus", "device-plugin"), ("xid-recorded", "konduktor")]
)
def test_a_detector_that_sets_nothing_the_rules_read_is_refused_with_the_line(
    tmp_path: Path, meaning: str, watching: str
) -> None:
    with pytest.raises(DocumentError) as refused:
        alert_of(tmp_path, meaning, watching=watching)
    (problem,) = refused.value.problems
    assert (problem.line, problem.where, problem.value) == (9, "expect.alerts[0].meaning", f"'{meaning}'")
    assert f"where {watching} watches" in problem.message


BARE = "{type: xid, xid: 79, form: bare}"


@pytest.mark.parametrize(
    ("fault", "watching", "silent"),
    [
        (XID, None, {AlertSource.DCGM: True}),
        (BARE, None, {}),
        (DCGM, None, {AlertSource.CONTROLLER: True}),
        (XID, "konduktor", {AlertSource.DCGM: True, AlertSource.CONDITIONS: False}),
        (XID, "node-problem-detector", {AlertSource.DCGM: True, AlertSource.TAINTS: False}),
        (
            DCGM,
            "konduktor",
            {AlertSource.CONTROLLER: True, AlertSource.CONDITIONS: False, AlertSource.TAINTS: False},
        ),
    ],
)
def test_the_sources_that_do_not_show_the_fault(
    tmp_path: Path, fault: str, watching: str | None, silent: dict[AlertSource, bool]
) -> None:
    alert_of(tmp_path, fault=fault, watching=watching, more=", name: Mine")
    loaded = load_complete_plan(tmp_path / "by-meaning.yaml", watching=watching)
    assert {one.source: one.certain for one in loaded.silent_sources} == silent


def test_a_profile_that_cannot_be_read_is_a_warning_where_no_rule_is_chosen_by_it(tmp_path: Path) -> None:
    alert_of(tmp_path, more=", name: Mine")
    loaded = load_complete_plan(tmp_path / "by-meaning.yaml", watching="nobody-has-it")
    assert [one.detector for one in loaded.detector_warnings] == ["nobody-has-it"]
    with pytest.raises(DocumentError):
        alert_of(tmp_path, watching="nobody-has-it")


CONDITIONS = [
    (profile.name, condition)
    for profile in map(load_detector, known_detectors())
    for rule in profile.rules
    for condition in rule.conditions
]


@pytest.mark.parametrize(("profile", "condition"), CONDITIONS)
def test_the_rule_about_conditions_reads_every_condition_of_a_shipped_profile(profile: str, condition: Any) -> None:
    expression = BY_NAME["NodeGPUConditionFailed"]["expr"]
    selectors = re.findall(r'condition(=~?)"([^"]+)", status="(\w+)"', expression)
    assert len(selectors) == 3
    assert any(
        re.fullmatch(pattern, condition.type) and status == condition.status.lower() for _, pattern, status in selectors
    ), f"{profile}: {condition.type}"


def test_a_name_is_kept_and_one_of_both_is_needed(tmp_path: Path) -> None:
    assert alert_of(tmp_path, watching="konduktor", more=", name: Mine").name == "Mine"
    with pytest.raises(DocumentError, match="name the alert's rule, or its meaning: gpu-fell-off-the-bus"):
        alert_of(tmp_path, "null")


def test_a_stored_plan_keeps_meaning_and_rule(tmp_path: Path) -> None:
    alert_of(tmp_path)
    plan = load_complete_plan(tmp_path / "by-meaning.yaml", watching="konduktor").plan
    read = Plan.model_validate_json(plan.model_dump_json(), context={"faults": {"xid": OpenFault}})
    assert read.expect.alerts == plan.expect.alerts
    assert read.expect.alerts[0].name == "NodeQuarantined"
    assert read.expect.alerts[0].names >= {"NodeQuarantined", "GPUFellOffTheBus", "GPUXidHardware"}
