"""The shipped alert rules: promtool accepts them and their unit tests, and a person knows what to do about each."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from gameday.cli.alerts import PROMETHEUS_ITSELF, manifest, manifest_of
from gameday.xid.catalogue import XidRule, xids
from tests.alerts.shipped import (
    ALL_RULES,
    BY_NAME,
    GROUPS_OF,
    ROOT,
    RULE_FILES,
    UNIT_TESTS,
    read_yaml,
    run_tool,
    write_yaml,
)

CASES = [case for file in UNIT_TESTS for test in read_yaml(file)["tests"] for case in test.get("alert_rule_test", [])]
# Neither is about one node.
WITHOUT_NODE = {
    "NodeHealthControllerAbsent",
    "KernelLogPipelineSilent",
    "KernelLogNodeUnknown",
    "KernelLogLate",
    "NodeQuarantinesWithheld",
    "NodeHealthSourceDown",
    "NodeHealthWritesFail",
    "KernelLogShipperDown",
    "NodeRepairsWithheld",
    "NodeHandedOver",
    "NodeRepairsBreakOff",
}
PAGE_HEADINGS = ("Check", "Do")


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_promtool_accepts_the_rules(file: Path) -> None:
    done = run_tool("promtool", "check", "rules", "--lint-fatal", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len(group['rules']) for group in GROUPS_OF[file.name])} rules found" in done.stdout


def test_no_two_alerts_share_a_name() -> None:
    assert len(BY_NAME) == sum("alert" in rule for rule in ALL_RULES)


@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.name)
@pytest.mark.slow
def test_unit_tests(file: Path, tmp_path: Path) -> None:
    _unit_test(file, file.read_text(encoding="utf-8"), tmp_path)


# Of a series and of an alert: the name after 4.5.3-4.8.2, and relabellings beside a Hostname that is the pod's.
OTHER_NODE_LABELS = {
    "hostname": (r'hostname="\1"', r'hostname: "\1"'),
    "hostname beside Hostname": (r'Hostname="pod", hostname="\1"', r'Hostname: "pod", hostname: "\1"'),
    "node beside Hostname": (r'Hostname="pod", node="\1"', 'Hostname: "pod"'),
}


@pytest.mark.parametrize("labels", OTHER_NODE_LABELS)
@pytest.mark.parametrize(
    "file", [file for file in UNIT_TESTS if 'Hostname="' in file.read_text()], ids=lambda f: f.name
)
@pytest.mark.slow
def test_unit_tests_hold_where_another_label_has_the_nodes_name(file: Path, labels: str, tmp_path: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for written, other in zip((r'Hostname="([^"]+)"', r'Hostname: "([^"]+)"'), OTHER_NODE_LABELS[labels], strict=True):
        text = re.sub(rf"\b{written}", other, text)
    _unit_test(file, text, tmp_path)


def _unit_test(file: Path, text: str, tmp_path: Path) -> None:
    """Run unit tests with only the alerts they ask for, and every recorded series.

    promtool looks at each rule at every step, and no alert depends on another.
    """
    (rules,) = (Path(name).name for name in read_yaml(file)["rule_files"])
    asked = {case["alertname"] for test in read_yaml(file)["tests"] for case in test.get("alert_rule_test", [])}
    patterns = [*asked, *re.findall(r'ALERTS\{alertname=~?"([^"]+)"', text)]
    write_yaml(tmp_path / rules, {"groups": [_only(group, "|".join(patterns)) for group in GROUPS_OF[rules]]})
    copy = tmp_path / "tests" / file.name
    copy.parent.mkdir()
    copy.write_text(text, encoding="utf-8")
    done = run_tool("promtool", "test", "rules", copy)
    assert done.returncode == 0, done.stdout + done.stderr


def _only(group: dict[str, Any], names: str) -> dict[str, Any]:
    return {**group, "rules": [one for one in group["rules"] if "record" in one or re.fullmatch(names, one["alert"])]}


def test_no_alert_depends_on_another() -> None:
    assert [rule for rule in ALL_RULES if "ALERTS" in rule["expr"]] == []


def test_every_alert_is_tested_firing_and_silent() -> None:
    assert {case["alertname"] for case in CASES if case["exp_alerts"]} == set(BY_NAME)
    assert {case["alertname"] for case in CASES if not case["exp_alerts"]} == set(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_alert_says_where_and_what_to_do(name: str) -> None:
    rule = BY_NAME[name]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"{PROMETHEUS_ITSELF}/{name}.md"
    firing = [alert for case in CASES if case["alertname"] == name for alert in case["exp_alerts"]]
    for alert in firing:
        labels, said = alert["exp_labels"], alert["exp_annotations"]
        node = labels.get("node")
        assert node or name in WITHOUT_NODE or len(firing) > 1 or "instance" in labels
        for text in (said["summary"], said["description"]):
            assert "{{" not in text
            assert "  " not in text, "a label it names is empty"
        if node:
            assert node in said["summary"]
            assert node in said["description"]
        if "gpu" in labels and "code" not in labels:
            assert f"GPU {labels['gpu']} " in said["description"]


def test_every_alert_has_a_runbook_page_with_what_a_person_needs() -> None:
    for name in BY_NAME:
        text = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text(encoding="utf-8")
        sections = dict(re.findall(r"^## (.+)\n\n((?:.+\n)+)", text, re.MULTILINE))
        assert tuple(sections)[:2] == PAGE_HEADINGS, name
        assert tuple(sections)[2:] in ((), ("Closes",), ("False positives",), ("Closes", "False positives")), name
        _title, _summary, meaning, *_ = text.split("\n\n")
        assert not meaning.startswith("#"), name


def test_the_runbooks_say_what_the_rules_and_the_plans_say() -> None:
    for page, text in runpy.run_path(str(ROOT / "scripts" / "runbooks.py"))["pages"]().items():
        assert page.read_text(encoding="utf-8") == text, "run `make alerts`"


def test_every_runbook_has_its_alert() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert pages == set(BY_NAME)


def test_a_runbook_links_only_to_what_exists() -> None:
    for page in (ROOT / "docs" / "runbooks").glob("*.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page


@pytest.mark.parametrize(
    "name",
    [
        "DcgmExporterAbsent",
        "DcgmHostengineFrozen",
        "GPUCountLow",
        "GPUSeriesStale",
        "KernelLogPipelineSilent",
        "NodeHealthControllerAbsent",
    ],
)
def test_absence_outlasts_a_rehearsal_reboot(name: str) -> None:
    assert re.fullmatch(r"[1-9]\d*m", BY_NAME[name]["for"])


def _codes(name: str, pattern: str) -> set[int]:
    """The codes below 1000 that the alert's selectors with this matcher (`code=~` or `code!~`) let through or out."""
    expressions = re.findall(rf'{pattern}"([^"]+)"', BY_NAME[name]["expr"])
    assert expressions
    matched = [{code for code in range(1000) if re.fullmatch(text, str(code))} for text in expressions]
    assert all(codes == matched[0] for codes in matched), "one alert, two lists"
    return matched[0]


def _ruled(*rules: XidRule) -> set[int]:
    return {code for code, known in xids().items() if known.rule in rules}


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("GPUXidHardware", XidRule.QUARANTINE),
        ("GPUXidWorkload", XidRule.WORKLOAD),
        ("GPUNVLink5Error", XidRule.DECODE),
        ("GPUXidRecoveryAction", XidRule.STATED),
    ],
)
def test_the_classes_of_xids_are_the_catalogues(name: str, rule: XidRule) -> None:
    assert _codes(name, "code=~") == _ruled(rule)


def test_what_is_left_of_the_xids_is_reported() -> None:
    assert _codes("GPUXidReported", "code!~") == _ruled(
        XidRule.QUARANTINE, XidRule.WORKLOAD, XidRule.DECODE, XidRule.STATED
    )
    assert _codes("GPUXidRecorded", "code!~") == _ruled(XidRule.WORKLOAD, XidRule.DECODE)


@pytest.mark.parametrize("code", [13, 31, 43, 45, 94])
def test_an_applications_xid_pages_nobody(code: int) -> None:
    assert code in _codes("GPUXidWorkload", "code=~")
    assert BY_NAME["GPUXidWorkload"]["labels"]["severity"] == "info"
    assert code not in _codes("GPUXidHardware", "code=~")


@pytest.mark.parametrize("file", RULE_FILES, ids=lambda file: file.name)
def test_the_manifest_is_made_from_the_rules(file: Path) -> None:
    assert manifest_of(file).read_text() == manifest(file), "run `make alerts`"
