"""`gameday lab up | down | status` as their user meets them: refusals, what is said, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.cli import run
from gameday.cluster.virtual_cluster import holder
from gameday.exit_codes import ExitCode
from gameday_rehearsal.folder import STATE, HeldFolder
from tests.rehearsal.lab.plane import need_programs
from tests.rehearsal.processes import naming, until

Capture = pytest.CaptureFixture[str]
_COMPONENTS = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "nodes"]


@pytest.mark.parametrize(
    "arguments", [["--nodes", "-1"], ["--nodes", "5001"], ["--gpus", "0"], ["--nodes", "many"], ["--detector", "off"]]
)
def test_wrong_options_are_refused_before_anything_is_made(
    arguments: list[str], tmp_path: Path, capsys: Capture
) -> None:
    assert run(["lab", "up", "--folder", str(tmp_path / "lab"), *arguments]) == ExitCode.USAGE
    assert arguments[0] in capsys.readouterr().err
    assert not (tmp_path / "lab").exists()


def test_status_and_down_where_nothing_runs(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "none"
    assert run(["lab", "status", "--folder", str(folder)]) == ExitCode.FAILED
    assert run(["lab", "down", "--folder", str(folder)]) == ExitCode.PASSED
    assert capsys.readouterr().out == f"no lab runs in {folder}\n" * 2
    assert not folder.exists()


def test_an_image_needs_a_lab_with_a_real_node(tmp_path: Path, capsys: Capture) -> None:
    (archive := tmp_path / "image.tar").touch()
    assert run(["lab", "image", str(archive), "--folder", str(tmp_path / "none")]) == ExitCode.REFUSED
    assert "no lab with a real node runs" in capsys.readouterr().err
    assert run(["lab", "image", str(tmp_path / "missing.tar")]) == ExitCode.USAGE


def test_without_the_programs_it_says_how_to_build_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr("gameday_rehearsal.lab.programs.TOOLS", tmp_path / "no-tools")
    assert run(["lab", "up", "--folder", str(tmp_path / "lab")]) == ExitCode.REFUSED
    assert "the lab needs etcd" in (said := capsys.readouterr().err)
    assert "run `make lab`" in said
    assert holder(tmp_path / "lab") is None


@pytest.mark.parametrize("folder", ["file/lab", "/proc/no"])
def test_a_folder_that_cannot_be_made_is_named(folder: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    assert run(["lab", "up", "--folder", str(tmp_path / folder)]) == ExitCode.REFUSED
    assert str(tmp_path / folder) in capsys.readouterr().err


def test_a_second_up_in_the_folder_is_refused_with_the_firsts_process(tmp_path: Path, capsys: Capture) -> None:
    held = HeldFolder(tmp_path)
    try:
        assert run(["lab", "up", "--folder", str(tmp_path)]) == ExitCode.REFUSED
        said = capsys.readouterr().err
        assert f"(process {os.getpid()}) runs in {tmp_path}" in said
        assert f"gameday lab down --folder {tmp_path}" in said
        assert run(["lab", "status", "--folder", str(tmp_path)]) == ExitCode.FAILED
        assert "a lab starts or ends in" in capsys.readouterr().out
    finally:
        held.release()


def test_status_of_a_lab_whose_components_do_not_answer_is_not_ready(tmp_path: Path, capsys: Capture) -> None:
    from kubesim.certificates import Authority

    held = HeldFolder(tmp_path)
    try:
        plane = tmp_path / "control-plane"
        plane.mkdir()
        Authority(plane, "ca")
        one = {"version": "v1", "restarts": 3, "started_at": 0.0, "log": "x.log", "ready_url": "http://127.0.0.1:1/"}
        (plane / "components.json").write_text(json.dumps({"a": {**one, "pid": 1}, "b": {**one, "pid": None}}))
        (tmp_path / STATE).write_text('{"pid": 1, "url": "https://127.0.0.1:1"}')
        assert run(["lab", "status", "--folder", str(tmp_path)]) == ExitCode.FAILED
        components = json.loads(capsys.readouterr().out)["components"]
        assert [(each["name"], each["ready"], each["restarts"]) for each in components] == [
            ("a", False, 3),
            ("b", False, 3),
        ]
    finally:
        held.release()


class Up:
    """One `gameday lab up` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        argv = [sys.executable, "-m", "gameday.cli", "lab", "up", "--folder", str(folder), *options]
        self.process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def state(self) -> dict[str, Any]:
        path = self.folder / STATE
        until(lambda: path.exists() or self.process.poll() is not None, 90, "the lab is up")
        assert self.process.poll() is None, self.ended()[1]
        state: dict[str, Any] = json.loads(path.read_text())
        return state

    def components(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = json.loads((self.folder / "control-plane/components.json").read_text())
        return found

    def ended(self) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=30)
        return self.process.returncode, said


@pytest.fixture
def up(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Up]:
    need_programs()
    started = Up(tmp_path / "a lab", *getattr(request, "param", ["--nodes", "1", "--gpus", "2"]))
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.communicate()
    until(lambda: not naming(started.folder), 30, "its processes are gone")


@pytest.mark.lab
def test_up_status_crash_and_down(up: Up, capsys: Capture) -> None:
    state = up.state()
    folder = ["--folder", str(up.folder)]
    assert state["pid"] == holder(up.folder) == up.process.pid
    assert run(["lab", "status", *folder]) == ExitCode.PASSED
    shown = json.loads(capsys.readouterr().out)
    assert shown["url"] == state["url"]
    assert [one["name"] for one in shown["components"]] == _COMPONENTS
    assert {one["restarts"] for one in shown["components"]} == {0}
    assert all(Path(one["log"]).is_file() and one["uptime_s"] > 0 for one in shown["components"])

    os.kill(up.components()["kube-scheduler"]["pid"], signal.SIGKILL)
    until(lambda: up.components()["kube-scheduler"]["restarts"] == 1, 30, "the scheduler is started again")
    until(lambda: run(["lab", "status", *folder]) == ExitCode.PASSED, 60, "all are ready again")

    assert run(["lab", "down", *folder]) == ExitCode.PASSED
    assert naming(up.folder) <= {up.process.pid}, "down waits for the components"
    code, said = up.ended()
    assert code == ExitCode.PASSED
    assert f"export KUBECONFIG='{up.folder}/control-plane/admin.kubeconfig'" in said
    (crash,) = [line for line in said.splitlines() if "ended" in line]
    assert crash.startswith("kube-scheduler ended (exit status -9)")
    assert crash.endswith("; starting it again")


@pytest.mark.lab
def test_the_games_own_accounts_have_kubeconfigs_that_only_the_owner_reads(up: Up) -> None:
    up.state()
    for account in ("gameday-runner", "gameday-node-health", "gameday-reaper"):
        path = up.folder / f"{account}.kubeconfig"
        assert path.stat().st_mode & 0o777 == 0o600
        who = subprocess.run(
            ["kubectl", "--kubeconfig", str(path), "auth", "can-i", "--list"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "secrets" not in who
    nodes = subprocess.run(
        ["kubectl", "--kubeconfig", str(up.folder / "gameday-runner.kubeconfig"), "get", "nodes", "-o", "name"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert nodes == "node/gpu-node-1\n"


@pytest.mark.lab
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_broken_off_leaves_nothing(up: Up, which: signal.Signals) -> None:
    until((up.folder / "control-plane/kube-apiserver.log").exists, 60, "the API server starts")
    up.process.send_signal(which)
    up.process.send_signal(which)
    code, said = up.ended()
    assert code == ExitCode.ABORTED
    assert said.splitlines()[-1] == "gameday: interrupted"
    # One whose start the signal cut short dies with its parent, which is a moment after.
    until(lambda: not naming(up.folder), 10, "its processes are gone")


@pytest.mark.lab
@pytest.mark.parametrize("up", [["--nodes", "0"]], indirect=True)
def test_the_bare_control_plane_of_a_killed_up_is_gone_too(up: Up) -> None:
    up.state()
    assert list(up.components()) == _COMPONENTS[:4]
    up.process.kill()
    up.process.wait()
    until(lambda: not naming(up.folder), 30, "its processes are gone")
    assert run(["lab", "status", "--folder", str(up.folder)]) == ExitCode.FAILED
