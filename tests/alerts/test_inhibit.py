"""Which alert mutes which: the shipped inhibit rules are Alertmanager's, name our alerts, and mute what they should."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from ruamel.yaml import YAML

from gameday_rehearsal.programs import find_program
from tests.alerts.shipped import BY_NAME, INHIBIT, read_yaml, run_tool
from tests.rehearsal.processes import until
from tests.support.ports import free_ports

RANK = {"info": 0, "warning": 1, "critical": 2}
ENTRIES = read_yaml(INHIBIT)["inhibit_rules"]


def _names(matchers: list[str]) -> set[str]:
    [(names,)] = [re.findall(r'^alertname=~?"([^"]+)"$', matcher) for matcher in matchers]
    return set(names.split("|"))


PAIRS = sorted({(a, b) for e in ENTRIES for a in _names(e["source_matchers"]) for b in _names(e["target_matchers"])})


def _config(folder: Path) -> Path:
    """A whole configuration with the shipped list in it, as a team would paste it."""
    path = folder / "alertmanager.yml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(
            {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}], "inhibit_rules": ENTRIES}, file
        )
    return path


def test_amtool_accepts_them(tmp_path: Path) -> None:
    done = run_tool("amtool", "check-config", _config(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ENTRIES)} inhibit rules" in done.stdout


def test_they_name_alerts_that_exist() -> None:
    assert {name for pair in PAIRS for name in pair} - set(BY_NAME) == set()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_nothing_is_muted_by_something_milder(source: str, target: str) -> None:
    severity = {name: BY_NAME[name]["labels"]["severity"] for name in (source, target)}
    assert RANK[severity[source]] >= RANK[severity[target]]


def test_no_two_alerts_mute_each_other() -> None:
    mutes: dict[str, set[str]] = {}
    for source, target in PAIRS:
        mutes.setdefault(source, set()).add(target)

    def reaches(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for target in mutes.get(waiting.pop(), set()) - found:
                found.add(target)
                waiting.append(target)
        return found

    assert [name for name in mutes if name in reaches(name)] == []


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    port = free_ports(1)[0]
    log = tmp_path / "alertmanager.log"
    argv = [
        str(find_program("alertmanager")),
        f"--config.file={_config(tmp_path)}",
        f"--storage.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    try:
        until(ready, 30, "Alertmanager to serve")
        yield url
    finally:
        process.terminate()
        process.wait(20)


def _alert(name: str, **labels: str) -> dict[str, dict[str, str]]:
    return {"labels": {"alertname": name, **labels}}


def test_alertmanager_mutes_the_same_fault_seen_twice_and_no_other_node_or_gpu(alertmanager: str) -> None:
    sent = [
        _alert("GPUFellOffTheBus", node="n1", pci_bus_id="b"),
        _alert("GPUCountLow", node="n1"),
        _alert("GPUCountLow", node="n2"),
        _alert("GPUNVLinkRecoveryErrors", node="n3", gpu="3", UUID="GPU-3"),
        _alert("GPUNVLinkReplayErrors", node="n3", gpu="3", UUID="GPU-3"),
        _alert("GPUNVLinkReplayErrors", node="n3", gpu="4", UUID="GPU-4"),
        _alert("NodeHealthControllerAbsent"),
        _alert("KernelLogLate", instance="a"),
        _alert("NodeNotReadyWithGPUs", node="n4"),
        _alert("DcgmExporterAbsent", node="n4", Hostname="n4"),
        _alert("DcgmExporterAbsent"),
    ]
    httpx.post(f"{alertmanager}/api/v2/alerts", json=sent, trust_env=False).raise_for_status()

    def muted() -> set[tuple[str, str, str]]:
        answer = httpx.get(f"{alertmanager}/api/v2/alerts", trust_env=False).raise_for_status().json()
        return {
            (alert["labels"]["alertname"], alert["labels"].get("node", ""), alert["labels"].get("gpu", ""))
            for alert in answer
            if alert["status"]["inhibitedBy"]
        }

    expected = {
        ("GPUCountLow", "n1", ""),
        ("GPUNVLinkReplayErrors", "n3", "3"),
        ("KernelLogLate", "", ""),
        ("DcgmExporterAbsent", "n4", ""),
    }
    until(lambda: muted() == expected, 20, f"exactly {expected} to be muted")
