"""The package of examples/acme-gameday, installed without a network, is seen wherever gameday looks for such parts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gameday.plugins import Group
from tests.report.run_builder import passing, write

EXAMPLE = Path(__file__).parents[1] / "examples/acme-gameday"
PROJECT = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCRIPT = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from gameday.checks.run import run_checks
from gameday.detectors.load import load_detector
from gameday.expect.registry import found_expectations
from gameday.faults.registry import found_faults, known_faults
from gameday.guard.registry import guardrails
from gameday.history.frames import Frames
from gameday.history.journal import read_history
from gameday.remediations.registry import found_remediations
from gameday.report.figure import figures_of
from gameday.report.render import render
from gameday.report.run_folder import load_run_folder

folder = Path(sys.argv[1])
run = load_run_folder(folder)
print(json.dumps({
    "fault": known_faults()["devkmsg_off"].summary,
    "fault's package": found_faults().packages["devkmsg_off"],
    "remediation": found_remediations().packages["pci-rescan"],
    "expectation": found_expectations().packages["disruption"],
    "check": [v.check for v in run_checks(run.plan, run.history, Frames())],
    "guardrail": [one.name for one in guardrails()],
    "detector": load_detector("acme-watch").title,
    "figure": [one.name for one in figures_of(run.plan, run.history, run.frames).figures],
    "section": "ml-platform" in render(folder, datetime.now(UTC)).html.read_text(encoding="utf-8"),
    "prefect": "prefect" in sys.modules,
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the package counts as installed: the files that pip would lay out."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE / "acme_gameday", site / "acme_gameday")
    info = site / f"acme_gameday-{PROJECT['version']}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    points = [
        line
        for group, entries in PROJECT["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(points) + "\n", encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(site), "COLUMNS": "200"}


def run(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *map(str, arguments)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=100, check=False)


def test_the_example_and_our_packages_add_to_every_group_and_to_no_other() -> None:
    files = EXAMPLE.parents[1].glob("packages/*/pyproject.toml")
    ours = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files]
    assert {group for project in (PROJECT, *ours) for group in project.get("entry-points", {})} == set(Group)


@pytest.mark.slow
def test_each_part_is_seen(installed: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, passing())
    ended = run(installed, "-c", SCRIPT, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "", "no part is broken"
    found = json.loads(ended.stdout)
    assert found["fault"] == "Lets nobody open /dev/kmsg, and mutes those who have it open"
    assert {found[kind] for kind in ("fault's package", "remediation", "expectation")} == {"acme-gameday 1.0"}
    assert "acme-severity" in found["check"]
    assert "weekend" in found["guardrail"]
    assert found["detector"] == "Acme's watch, which reads kernel logs"
    assert found["section"] is True
    assert found["prefect"] is False


@pytest.mark.slow
def test_validate_takes_a_plan_with_the_fault_the_expectation_the_remediation_and_the_detector(
    installed: dict[str, str], tmp_path: Path
) -> None:
    shipped = (EXAMPLE / "devkmsg-off.yaml").read_text(encoding="utf-8")
    shipped = shipped.replace("expect:\n", "expect:\n  disruption: {within: 5s}\n")
    plan = tmp_path / "devkmsg-off.yaml"
    plan.write_text(
        shipped.replace("remediation: none", "remediation: pci-rescan") + "detector: acme-watch\n", encoding="utf-8"
    )
    profile = EXAMPLE / "acme_gameday/detectors/acme-watch.yaml"
    ended = run(installed, "-m", "gameday.cli", "validate", plan, profile)
    assert ended.returncode == 0, ended.stderr
    assert [line.split()[0] for line in ended.stdout.splitlines()] == ["ok", "ok"]


@pytest.mark.slow
def test_without_the_package_the_same_plan_is_refused_with_what_is_known() -> None:
    ended = run(dict(os.environ), "-m", "gameday.cli", "validate", EXAMPLE / "devkmsg-off.yaml")
    assert ended.returncode == 64
    assert "unknown fault type; known: api_churn, api_server_restarted, clock_lock" in ended.stderr


@pytest.mark.slow
def test_the_schema_for_editors_has_the_fault_and_the_expectation(installed: dict[str, str]) -> None:
    ended = run(installed, "-m", "gameday.cli", "schema")
    assert '"devkmsg_off"' in ended.stdout
    assert '"ExpectedDisruption"' in ended.stdout


@pytest.mark.slow
def test_the_command_prints_its_message_and_refuses_a_plan_as_ours_do(installed: dict[str, str]) -> None:
    ended = run(installed, "-m", "gameday.cli", "announce", "gpu-fell-off-the-bus")
    assert ended.stdout.startswith("Game-day: A GPU falls off the bus. When a GPU falls"), ended.stderr
    assert ended.stdout.endswith("Alerts to expect: GPUFellOffTheBus.\n")
    assert run(installed, "-m", "gameday.cli", "announce", "nothing-of-this-name").returncode == 64


@pytest.mark.slow
def test_validate_takes_the_kind_of_file_and_names_the_line_of_a_mistake(
    installed: dict[str, str], tmp_path: Path
) -> None:
    wrong = tmp_path / "rota.yaml"
    wrong.write_text("kind: AcmeRota\nname: gpu-oncall\npeople: [ann]\n", encoding="utf-8")
    ended = run(installed, "-m", "gameday.cli", "validate", EXAMPLE / "rota.yaml", wrong)
    assert ended.returncode == 64
    assert ended.stdout.endswith("rota.yaml  gpu-oncall\n")
    assert f"{wrong}:3:" in ended.stderr


@pytest.mark.slow
def test_the_tutorials_own_tests_pass(installed: dict[str, str]) -> None:
    ended = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, EXAMPLE / "tests")
    assert "3 passed" in ended.stdout, ended.stdout
