"""A whole comparison on the rehearsal cluster: a fault, and a control without one."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from prefect.settings import temporary_settings
from ruamel.yaml import YAML

from gameday import cli
from gameday.history.events import TargetsChosen
from gameday.history.journal import read_history
from tests.game_days.conftest import QUICK, QUIET, Arena, changed
from tests.support.prefect_api import client_settings

pytestmark = [pytest.mark.gameday, pytest.mark.timeout(400)]
NOTHING_BROKEN = {
    "name": "control",
    "set": {
        "fault": {"type": "noop"},
        "expect": {"alerts": [{"name": "GPUXidCritical", "within": "3s"}], "taints": None, "workloads": None},
        "recover": {"remediation": "none"},
    },
    "must_break": ["alert-fires"],
    "may_break": ["alert-resolves"],
}


@pytest.mark.slow  # two whole game-days: only these show that members share lease, nodes and folder
def test_two_arms_on_one_node_of_which_the_control_must_break(clean_arena: Arena, tmp_path: Path) -> None:
    plan = tmp_path / "quick.yaml"
    YAML(typ="safe", pure=True).dump(changed(QUICK, "arms", {"compare": [{"name": "fault"}, NOTHING_BROKEN]}), plan)
    said, settings = io.StringIO(), {**client_settings(clean_arena.cluster.prefect_client), **QUIET}
    arguments = ["--profile", str(clean_arena.cluster.profile), "--reports", str(tmp_path / "r")]
    with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(["run", str(plan), *arguments])
    assert code == 0, said.getvalue()
    (page,) = (tmp_path / "r").glob("arms-*-quick/comparison.json")
    compared = json.loads(page.read_bytes())
    runs = [run for column in compared["arms"] for run in column["runs"]]
    assert [(run["outcome"], run["own_outcome"]) for run in runs] == [("passed", "passed"), ("passed", "failed")]
    histories = [read_history(page.parent / run["run_id"] / "history.jsonl") for run in runs]
    chosen = [history.of(TargetsChosen)[0].targets for history in histories]
    assert chosen[0] == chosen[1]
    assert all((page.parent / run["run_id"] / "report.html").is_file() for run in runs)
    cells = {row["check"]: row["cells"] for row in compared["expectations"]}
    assert [(cell["held"], cell["broken"]) for cell in cells["alert-fires"]] == [(1, 0), (0, 1)]
