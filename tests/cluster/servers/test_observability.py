"""The search for the programs, and the pace of the rehearsal's Prometheus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.errors import ProgramMissingError
from gameday.observe.dcgm import RUN_METRICS
from gameday_rehearsal import programs
from gameday_rehearsal.observability import (
    Credentials,
    component_jobs,
    control_plane_rules,
    node_rules,
    pace,
    prometheus_program,
    scrape_jobs,
)
from gameday_rehearsal.programs import find_program, install_hint
from gameday_rehearsal.scrape_pace import WORKED_ON, WORKED_ON_TARGETS
from tests.alerts.shipped import run_tool


def test_a_missing_program_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "TOOLS", tmp_path)
    with pytest.raises(ProgramMissingError, match="prometheus-alertmanager or alertmanager is neither on PATH"):
        find_program("alertmanager")
    program = tmp_path / "bin" / "alertmanager"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("alertmanager") == program


@pytest.mark.parametrize(
    ("os_release", "hint"),
    [
        ("ID=debian\n", "make setup"),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', "apt-get install prometheus"),
        ("ID=fedora\n", "dnf install golang-github-prometheus"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf install"),
        ("ID=arch\n", "pacman -S prometheus"),
        ("ID=plan9\n", "package manager"),
    ],
)
def test_the_hint_fits_the_system(tmp_path: Path, os_release: str, hint: str) -> None:
    file = tmp_path / "os-release"
    file.write_text(os_release)
    assert hint in install_hint("prometheus", file)


def test_the_hint_of_an_installed_package_names_no_makefile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "TOOLS", tmp_path)
    monkeypatch.setattr(programs, "checkout", lambda: None)
    with pytest.raises(ProgramMissingError, match="prometheus is not on PATH: ") as caught:
        find_program("prometheus")
    assert "make" not in str(caught.value)


def test_the_hint_without_os_release_names_the_package_manager(tmp_path: Path) -> None:
    assert "package manager" in install_hint("chromium", tmp_path / "none")


def test_the_pace_slows_down_with_the_size_of_the_cluster() -> None:
    assert (pace(1).scrape_s, pace(32).scrape_s, pace(1000).scrape_s, pace(5000).scrape_s) == (1, 1, 15, 30)
    paces = [pace(nodes).scrape_s for nodes in range(1, 1200)]
    assert paces == sorted(paces)
    assert all(pace(nodes).health_s <= 1 for nodes in (1, 100, 1000)), "the detector's metrics are never read slowly"


def test_each_scrape_job_has_its_own_pace(tmp_path: Path) -> None:
    jobs = scrape_jobs(1000, dcgm_address="127.0.0.1:1", health_address="127.0.0.1:2")
    program = prometheus_program(tmp_path, port=3, nodes=1000, jobs=jobs, alertmanager_port=4)
    config = YAML(typ="safe", pure=True).load((tmp_path / "prometheus.yml").read_text())
    assert {job["job_name"]: job["scrape_interval"] for job in config["scrape_configs"]} == {
        "dcgm-exporter": "15000ms",
        "node-health": "1000ms",
        "prometheus": "15000ms",
    }
    assert config["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["127.0.0.1:4"]}]}]
    assert program.ready_url == "http://127.0.0.1:3/-/ready"
    assert "--web.listen-address=127.0.0.1:3" in program.argv


def test_of_thousands_of_nodes_only_those_worked_on_are_read_whole(tmp_path: Path) -> None:
    jobs = scrape_jobs(5000, dcgm_address="127.0.0.1:1", health_address="127.0.0.1:2")
    prometheus_program(tmp_path, port=3, nodes=5000, jobs=jobs, alertmanager_port=4)
    file = tmp_path / "prometheus.yml"
    config = YAML(typ="safe", pure=True).load(file.read_text())
    every_node, worked_on = config["scrape_configs"][:2]
    assert every_node["params"] == {"name": ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS"]}
    assert every_node["scrape_interval"] == "30000ms"
    assert worked_on["metrics_path"] == WORKED_ON
    assert worked_on["http_sd_configs"][0]["url"] == f"http://127.0.0.1:1{WORKED_ON_TARGETS}"
    assert {*RUN_METRICS, "DCGM_FI_DEV_ROW_REMAP_FAILURE"} <= {*worked_on["params"]["name"]}
    assert run_tool("promtool", "check", "config", file).returncode == 0


def test_a_cluster_with_another_detector_has_no_rules_of_our_controller(tmp_path: Path) -> None:
    shipped, other = node_rules(tmp_path, has_controller=True), node_rules(tmp_path, has_controller=False)
    assert shipped.parent != other.parent == tmp_path
    yaml = YAML(typ="safe", pure=True)
    before, after = (
        {group["name"]: group for group in yaml.load(path.read_text())["groups"]} for path in (shipped, other)
    )
    assert before.keys() - after.keys() == {"gpu-node-health"}
    assert "gameday_health_log_stream_connected" not in other.read_text()
    assert all(before[name] == group for name, group in after.items())
    assert run_tool("promtool", "check", "rules", other).returncode == 0


def test_the_rules_know_the_memory_budget_of_the_labs_servers(tmp_path: Path) -> None:
    shipped = control_plane_rules(tmp_path, None)
    copy = control_plane_rules(tmp_path, 1300 * 2**20)
    assert shipped.parent != copy.parent == tmp_path
    yaml = YAML(typ="safe", pure=True)
    before, after = (
        [rule for group in yaml.load(path.read_text())["groups"] for rule in group["rules"]] for path in (shipped, copy)
    )
    changed = [new for old, new in zip(before, after, strict=True) if new != old]
    expr = 'group by (instance) (up{job="apiserver"}) * 1363148800'
    assert changed == [{"record": "instance:apiserver_memory_budget:bytes", "expr": expr}]
    assert run_tool("promtool", "check", "rules", copy).returncode == 0


def test_each_server_of_a_control_plane_is_scraped_under_its_name(tmp_path: Path) -> None:
    servers = {
        "etcd": "127.0.0.1:1",
        "kube-apiserver": "127.0.0.1:2",
        "kube-apiserver-2": "127.0.0.1:3",
        "kube-scheduler": "127.0.0.1:4",
        "haproxy": "127.0.0.1:5",
    }
    jobs = component_jobs(servers, Credentials(Path("/ca.crt"), Path("/client.crt"), Path("/client.key")))
    prometheus_program(tmp_path, port=3, nodes=1, jobs=jobs, alertmanager_port=4)
    path = tmp_path / "prometheus.yml"
    assert run_tool("promtool", "check", "config", "--syntax-only", path).returncode == 0
    scraped = {job["job_name"]: job for job in YAML(typ="safe", pure=True).load(path.read_text())["scrape_configs"]}
    assert scraped["apiserver"]["static_configs"] == [
        {"targets": ["127.0.0.1:2"], "labels": {"instance": "kube-apiserver"}},
        {"targets": ["127.0.0.1:3"], "labels": {"instance": "kube-apiserver-2"}},
    ]
    assert (scraped["apiserver"]["scheme"], scraped["apiserver"]["scrape_interval"]) == ("https", "5000ms")
    assert "scheme" not in scraped["etcd"]
    (kept,) = scraped["apiserver"]["metric_relabel_configs"]
    assert re.fullmatch(kept["regex"], "apiserver_response_sizes_sum")
    assert not re.fullmatch(kept["regex"], "apiserver_audit_event_total")
    assert not any("127.0.0.1:5" in target["targets"] for job in scraped.values() for target in job["static_configs"])
