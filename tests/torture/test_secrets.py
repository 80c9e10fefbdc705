"""Secrets of the profile, the kubeconfig and the environment show up nowhere, however a run fails."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.history.events import StepStarted
from gameday.history.journal import read_history
from gameday.values.results import Step
from tests.torture.lanes import Lane
from tests.torture.matrix import PLANS

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(600)]
PLANTED = {
    "profile": "planted-bearer-token-of-prometheus",
    "file": "planted-password-of-loki",
    "environment": "planted-password-of-the-shell",
    "kubeconfig": "planted-token-of-the-kubeconfig",
}
_yaml = YAML(typ="safe", pure=True)


def own_token(lane: Lane) -> str:
    found: str = json.loads((lane.folder / "gameday-runner.kubeconfig").read_text())["users"][0]["user"]["token"]
    return found


def planted_profile(lane: Lane, home: Path, **changes: Any) -> Path:
    """The lane's, with credentials for servers that do not ask for any."""
    profile = _yaml.load(lane.profile.read_text())
    password = home / "password"
    password.write_text(PLANTED["file"])
    profile["prometheus"] = {**profile["prometheus"], "bearer_token_env": "PLANTED_TOKEN"}
    profile["loki"] = {**profile["loki"], "username": "ada", "password_file": str(password)}
    for key, value in changes.items():
        profile[key] = {**profile[key], **value} if isinstance(value, dict) else value
    path = home / "profile.yaml"
    with path.open("w") as out:
        _yaml.dump(profile, out)
    return path


def run(lane: Lane, home: Path, profile: Path, during: Callable[[subprocess.Popen[str]], None]) -> str:
    plan = home / "plan.yaml"
    with plan.open("w") as out:
        _yaml.dump({**PLANS["unit_stopped"], "targets": {"names": [lane.node]}}, out)
    started = lane.start(
        plan, home / "reports", profile, PLANTED_TOKEN=PLANTED["profile"], PASSWORD=PLANTED["environment"]
    )
    during(started)
    output, _ = started.communicate(timeout=240)
    return output


def nothing(_: subprocess.Popen[str]) -> None:
    return None


def found_in(lane: Lane, home: Path, output: str) -> list[str]:
    """Places with a secret that must not be there: (secret, place)."""
    cluster = [lane.core.list_namespaced_config_map, lane.core.list_namespaced_pod]
    places = {"output": output.encode()} | {
        call.__name__: json.dumps(lane.core.api_client.sanitize_for_serialization(call(lane.name))).encode()
        for call in cluster
    }
    for path in (*(home / "reports").rglob("*"), *(lane.cluster.folder / "prefect").rglob("*.db*")):
        if path.is_file():
            places[str(path.name)] = path.read_bytes()
    secrets = {**PLANTED, "own token": own_token(lane)}
    return [f"{name} in {place}" for place, text in places.items() for name, s in secrets.items() if s.encode() in text]


def test_a_run_killed_in_the_middle(lane: Lane, tmp_path: Path) -> None:
    def kill(process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 240
        while not any(
            event.step is Step.AWAIT_ALERT
            for path in (tmp_path / "reports").glob("*/history.jsonl")
            for event in read_history(path).of(StepStarted)
        ):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)

    output = run(lane, tmp_path, planted_profile(lane, tmp_path), kill)
    assert lane.core.list_namespaced_pod(lane.name).items, "there is something to look into"
    assert found_in(lane, tmp_path, output) == []


@pytest.mark.parametrize("server", ["prometheus", "loki"])
def test_a_server_that_is_away(lane: Lane, tmp_path: Path, server: str) -> None:
    output = run(lane, tmp_path, planted_profile(lane, tmp_path, **{server: {"url": "http://127.0.0.1:9"}}), nothing)
    assert "127.0.0.1:9" in output
    assert found_in(lane, tmp_path, output) == []


def test_an_api_server_that_refuses_the_token(lane: Lane, tmp_path: Path) -> None:
    kubeconfig = json.loads((lane.folder / "gameday-runner.kubeconfig").read_text())
    kubeconfig["users"][0]["user"]["token"] = PLANTED["kubeconfig"]
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    output = run(lane, tmp_path, planted_profile(lane, tmp_path, kubeconfig=str(tmp_path / "kubeconfig")), nothing)
    assert "401" in output
    assert found_in(lane, tmp_path, output) == []


@pytest.mark.parametrize(
    "change",
    [
        {"prometheus": {"bearer_token_env": PLANTED["profile"]}},
        {"prometheus": {"url": f"http://ada:{PLANTED['profile']}@127.0.0.1:9"}},
        {"prometheus": {"token": PLANTED["profile"]}},
        {"loki": {"password_file": "/nowhere", "bearer_token_env": PLANTED["profile"]}},
        {"namespace": PLANTED["profile"].upper()},
    ],
    ids=["value-for-name", "in-the-url", "unknown-key", "two-ways", "elsewhere"],
)
def test_a_profile_with_the_secret_in_the_wrong_place(lane: Lane, tmp_path: Path, change: dict[str, Any]) -> None:
    output = run(lane, tmp_path, planted_profile(lane, tmp_path, **change), nothing)
    assert "profile" in output
    assert PLANTED["profile"] not in output.lower()


def test_a_kubeconfig_that_is_damaged_around_its_token(lane: Lane, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(f"users: [{{user: {{token: {PLANTED['kubeconfig']}}}\n")
    output = run(lane, tmp_path, planted_profile(lane, tmp_path, kubeconfig=str(tmp_path / "kubeconfig")), nothing)
    assert "no usable Kubernetes configuration" in output
    assert found_in(lane, tmp_path, output) == []
