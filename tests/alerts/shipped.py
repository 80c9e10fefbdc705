"""The shipped alert rules, read once, and promtool's and amtool's way to look at them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from gameday_rehearsal.programs import find_program

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "alerts"
RULE_FILES = sorted(ALERTS.glob("*.rules.yaml"))
COUNTERS = ALERTS / "dcgm-counters.csv"
INHIBIT = ALERTS / "alertmanager-inhibit.yaml"
UNIT_TESTS = sorted((ALERTS / "tests").glob("*.test.yaml"))


def read_yaml(path: Path) -> dict:
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def write_yaml(path: Path, content: dict) -> None:
    path.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper), encoding="utf-8")


GROUPS_OF = {file.name: read_yaml(file)["groups"] for file in RULE_FILES}
GROUPS = [group for groups in GROUPS_OF.values() for group in groups]
ALL_RULES = [rule for group in GROUPS for rule in group["rules"]]
BY_NAME = {rule["alert"]: rule for rule in ALL_RULES if "alert" in rule}
RECORDED = {rule["record"] for rule in ALL_RULES if "record" in rule}


def run_tool(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = [str(find_program(name)), *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=100)
