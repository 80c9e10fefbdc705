"""The shipped alert rules: promtool accepts them and their unit tests, and everything around them is complete."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.rehearsal.programs import find_program

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "alerts"
RULES = ALERTS / "gpu-faults.rules.yaml"
UNIT_TESTS = sorted((ALERTS / "tests").glob("*.test.yaml"))
GROUPS = YAML(typ="safe", pure=True).load(RULES.read_text())["groups"]
BY_NAME = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(find_program("promtool")), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(BY_NAME)} rules found" in done.stdout


@pytest.mark.parametrize("file", UNIT_TESTS, ids=lambda file: file.name)
def test_unit_tests(file: Path) -> None:
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", BY_NAME)
def test_every_rule_is_tested_firing_and_silent(name: str) -> None:
    cases = [
        case
        for file in UNIT_TESTS
        for test in YAML(typ="safe", pure=True).load(file.read_text())["tests"]
        for case in test.get("alert_rule_test", [])
        if case["alertname"] == name
    ]
    assert any(case["exp_alerts"] for case in cases), "no test has it firing"
    assert any(not case["exp_alerts"] for case in cases), "no test has it silent"


@pytest.mark.parametrize("name", BY_NAME)
def test_every_rule_tells_a_person_what_to_do(name: str) -> None:
    rule = BY_NAME[name]
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
    runbook = ROOT / rule["annotations"]["runbook_url"]
    assert runbook.name == f"{name}.md"
    text = runbook.read_text()
    assert text.startswith(f"# {name}\n")
    assert all(heading in text for heading in ("## Means", "## Check", "## Do"))


def test_every_runbook_has_its_rule() -> None:
    pages = {page.stem for page in (ROOT / "docs" / "runbooks").glob("*.md")} - {"README"}
    assert pages == set(BY_NAME)


@pytest.mark.parametrize("name", ["DcgmExporterAbsent", "NodeHealthControllerAbsent", "KernelLogPipelineSilent"])
def test_absence_outlasts_a_rehearsal_reboot(name: str) -> None:
    assert re.fullmatch(r"[1-9]\d*m", BY_NAME[name]["for"])


def test_the_manifest_is_made_from_the_rules() -> None:
    maker = runpy.run_path(str(ROOT / "scripts" / "alert_manifest.py"))
    assert maker["MANIFEST"].read_text() == maker["manifest"](), "run `make alerts`"
    document = YAML(typ="safe", pure=True).load(maker["MANIFEST"].read_text())
    assert document["kind"] == "PrometheusRule"
    assert document["spec"]["groups"] == GROUPS
