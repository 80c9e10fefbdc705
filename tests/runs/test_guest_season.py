"""A season in a rehearsal with a guest that puts its taint back: its node is taken out, and the season goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.exit_codes import ExitCode
from gameday.runs.season_record import SeasonRecord
from tests.game_days.conftest import QUICK, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

SEER = Path(__file__).parents[1] / "rehearsal" / "seer.py"
_PATIENCE_S = 300.0


def guest_file(folder: Path) -> Path:
    path = folder / "stubborn.yaml"
    document = {
        "apiVersion": "gameday/v1",
        "kind": "Guest",
        "name": "stubborn",
        "detector": "konduktor",
        "command": [sys.executable, "-I", "-S", str(SEER), "{node}", "{kmsg}", "stubborn"],
        "says": "is unhealthy",
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def plan_file(folder: Path, name: str, xid: int, node: str) -> str:
    """Write a plan for one node; the guest taints for an Xid 79 and for nothing else."""
    plan = changed(changed(QUICK, "name", name), "targets", {"names": [node], "nodes": 1})
    plan = changed(changed(plan, "fault.xid", xid), "expect.alerts", [])
    YAML(typ="safe", pure=True).dump(
        changed(plan, "expect.workloads", {"running_pods": "any"}), folder / f"{name}.yaml"
    )
    return str(folder / f"{name}.yaml")


def test_a_taint_that_is_put_back_takes_its_node_out_and_the_season_goes_on(tmp_path: Path) -> None:
    plans = [
        plan_file(tmp_path, "a-lost", 79, "gpu-node-1"),
        plan_file(tmp_path, "b-after-it", 13, "gpu-node-1"),
        plan_file(tmp_path, "c-elsewhere", 13, "gpu-node-2"),
    ]
    argv = [sys.executable, "-m", "gameday.cli", "coverage", *plans, "--rehearse", "--nodes", "3", "--gpus", "1"]
    argv += ["--at-once", "1", "--guest", str(guest_file(tmp_path)), "--reports", str(tmp_path / "r")]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == ExitCode.DIRTY, said
    (file,) = (tmp_path / "r").glob("season-*/season.json")
    season = SeasonRecord.load(file.parent)
    assert (season.stopped, [(one.node, one.plan) for one in season.dirty_nodes]) == ("", [("gpu-node-1", "a-lost")])
    covered = json.loads((file.parent / "coverage.json").read_bytes())
    rows = {row["plan"]: row["cleanliness"] for row in covered["matrix"]["rows"]}
    assert rows == {"a-lost": "dirty", "c-elsewhere": "clean"}
    (left_out,) = covered["left_out"]
    assert left_out["plan"] == "b-after-it"
    assert left_out["why"].startswith("its node gpu-node-1 was left dirty by run ")
    assert "gpu-node-1 was left dirty by run" in said
    assert "Taken out" in (file.parent / "coverage.html").read_text(encoding="utf-8")
