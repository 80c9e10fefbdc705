"""docs/empty-cluster.md: its values fit our chart, and its command lines are taken."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cli.accepted import accept
from tests.deploy.helm import objects, rendered
from tests.deploy.manifests import DEPLOY, ROOT, documents

PAGE = (ROOT / "docs" / "empty-cluster.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if re.match(r" {4,}(kubectl|helm|in-worker|\{ echo) ", line)]


def _values() -> dict[str, Any]:
    """The page's values files by name, parsed."""
    blocks = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", PAGE, re.DOTALL)
    return {name: YAML(typ="safe", pure=True).load(text) for name, text in blocks}


VALUES = _values()


@pytest.mark.slow
def test_our_chart_takes_the_pages_values(tmp_path: Path) -> None:
    filled_in = json.dumps(VALUES["gameday-values.yaml"]).replace("REGISTRY", "registry.example")
    (tmp_path / "values.yaml").write_text(filled_in, encoding="utf-8")
    made = objects(rendered(options=("--values", tmp_path / "values.yaml")))
    monitors = [one for one in made if one["kind"] in ("PrometheusRule", "PodMonitor")]
    assert len(monitors) == 4
    assert {one["metadata"]["labels"]["release"] for one in monitors} == {
        VALUES["gameday-values.yaml"]["alerts"]["labels"]["release"]
    }


def test_the_command_makes_values_of_our_inhibition_rules(tmp_path: Path) -> None:
    (command,) = [line for line in COMMANDS if line.startswith("{ echo")]
    (tmp_path / "gpu-gameday").symlink_to(ROOT)
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True)
    (made,) = documents(tmp_path / "inhibit.yaml")
    (ours,) = documents(DEPLOY / "alerts" / "alertmanager-inhibit.yaml")
    assert made == {"alertmanager": {"config": ours}}
    assert len(ours["inhibit_rules"]) > 20


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("in-worker gameday ")])
def test_the_command_line_takes_what_the_page_shows(line: str) -> None:
    assert accept(line.removeprefix("in-worker "))
