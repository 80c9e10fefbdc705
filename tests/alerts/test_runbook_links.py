"""`runbook_url` opens: from alerts of the rehearsal's Prometheus, and at a base that `gameday alerts` writes in."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday_rehearsal.observability import prometheus_program
from tests.alerts.shipped import ALERTS, BY_NAME, RULE_FILES, read_yaml, run_tool, write_yaml
from tests.rehearsal.processes import until
from tests.support.ports import free_ports

BASE = "https://git.example/gpu-gameday/blob/main/docs/runbooks"


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The rehearsal's own, with every shipped alert firing from the start."""
    firing = [{**rule, "expr": "vector(1)", "for": "0s"} for rule in BY_NAME.values()]
    rules = tmp_path / "firing.rules.yaml"
    write_yaml(rules, {"groups": [{"name": "firing", "rules": firing}]})
    port, nobody = free_ports(2)
    program = prometheus_program(tmp_path, port=port, nodes=1, jobs=[], alertmanager_port=nobody, rule_files=[rules])
    with program.log_file.open("wb") as log:
        process = subprocess.Popen(program.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.slow
def test_each_alert_of_the_rehearsals_prometheus_links_to_its_runbook(prometheus: str) -> None:
    with httpx.Client(trust_env=False) as client:

        def firing() -> list[dict[str, Any]]:
            try:
                answer = client.get(f"{prometheus}/api/v1/alerts")
            except httpx.TransportError:
                return []
            return answer.json()["data"]["alerts"] if answer.status_code == 200 else []

        until(lambda: len(firing()) == len(BY_NAME), 60, "every alert to fire")
        for alert in firing():
            name, url = alert["labels"]["alertname"], alert["annotations"]["runbook_url"]
            assert url.startswith(f"{prometheus}/")
            page = client.get(url)
            assert page.status_code == 200, url
            assert page.text.startswith(f"# {name}\n")


def test_rules_and_manifests_with_a_base_of_ones_own(tmp_path: Path) -> None:
    assert run(["alerts", str(tmp_path / "mine"), "--runbooks", f"{BASE}/"]) == ExitCode.PASSED
    found = {}
    for shipped in RULE_FILES:
        rules = tmp_path / "mine" / shipped.name
        assert run_tool("promtool", "check", "rules", rules).returncode == 0
        groups = read_yaml(rules)["groups"]
        manifest = read_yaml(rules.with_name(shipped.name.replace(".rules.", ".prometheusrule.")))
        assert manifest["spec"]["groups"] == groups
        found |= {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}
    assert found.keys() == BY_NAME.keys()
    for name, rule in found.items():
        assert rule["annotations"].pop("runbook_url") == f"{BASE}/{name}.md"
        assert {**rule, "annotations": {**rule["annotations"], "runbook_url": ""}} == {
            **BY_NAME[name],
            "annotations": {**BY_NAME[name]["annotations"], "runbook_url": ""},
        }
    listed = read_yaml(tmp_path / "mine" / "kustomization.yaml")["resources"]
    assert [(tmp_path / "mine" / file).is_file() for file in listed] == [True] * len(RULE_FILES)
    pages = {page.stem for page in (tmp_path / "mine" / "runbooks").glob("*.md")}
    assert pages == {*BY_NAME, "README"}


def test_without_a_base_the_files_are_the_shipped_ones(tmp_path: Path) -> None:
    assert run(["alerts", str(tmp_path)]) == ExitCode.PASSED
    for file in (*ALERTS.glob("*.rules.yaml"), *ALERTS.glob("*.prometheusrule.yaml")):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "url", ["docs/runbooks", "file:///x", "https://", 'https://h/"x', "https://h/{{ .x }}", "h/\n"]
)
def test_what_is_no_address_of_a_folder_is_refused(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["alerts", str(tmp_path / "new"), "--runbooks", url]) == ExitCode.USAGE
    assert "is not the http(s) URL of a folder" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "new").exists()
