"""`gameday rehearse` and `gameday rehearsal`: refusals before anything starts, and nothing left however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gameday.cli import run
from gameday.cli.console import console
from gameday.cluster.virtual_cluster import holder, why_ended
from gameday.errors import ChildError, CommandError, MemoryShortError, RehearsalError, StartError
from gameday.exit_codes import ExitCode
from gameday_rehearsal.blueprint import Blueprint
from gameday_rehearsal.cli.embedded_cluster import running_cluster
from gameday_rehearsal.folder import STATE, HeldFolder
from tests.plan.plans import changed
from tests.rehearsal.processes import answers, naming, until

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def private_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where clusters' temporary folders go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--detector", "foo"], ExitCode.USAGE, "known are: default, konduktor, conservative, off, "),
        (["--detector", "of"], ExitCode.USAGE, "did you mean off?"),
        (["xid-9"], ExitCode.USAGE, "did you mean xid-94-again-and-again or xid-94-contained-ecc or "),
        (["gpu-fell-off-the-bsu"], ExitCode.USAGE, "did you mean gpu-fell-off-the-bus?"),
        (["--gpus", "0"], ExitCode.USAGE, "--gpus"),
        (["--guest", "no-such-detector"], ExitCode.REFUSED, "guest no-such-detector: command not found"),
        (["--guest", "true {nodes}"], ExitCode.USAGE, "{nodes} is not a placeholder"),
        (["--guest", "true", "--detector", "default"], ExitCode.USAGE, "leave out --detector, or --guest"),
        (["--guest", "{lab}"], ExitCode.USAGE, "guest of-the-lab needs another control plane than --cluster embedded"),
        (["--repair", "maybe"], ExitCode.USAGE, "choose one of on, off, auto"),
        (["--reports", "{file}"], ExitCode.REFUSED, "file exists"),
        (["--reports", "/proc/no"], ExitCode.REFUSED, "cannot be written"),
    ],
)
def test_refused_before_anything_is_started(
    arguments: list[str], code: ExitCode, said: str, private_tmp: Path, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "lab.yaml").write_text(
        "apiVersion: gameday/v1\nkind: Guest\nname: of-the-lab\ncluster: lab\ncommand: ['true']\n"
    )
    files = {"{file}": tmp_path / "file", "{lab}": tmp_path / "lab.yaml"}
    assert run(["rehearse", *(str(files.get(one, one)) for one in arguments)]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""
    assert list(private_tmp.iterdir()) == []


@pytest.mark.parametrize("command", [["rehearse"], ["rehearsal", "up"]])
@pytest.mark.parametrize(
    ("switch", "wanted"), [([], None), (["--kube-state-metrics"], True), (["--no-kube-state-metrics"], False)]
)
def test_the_cluster_learns_whether_kube_state_metrics_is_wanted(
    command: list[str], switch: list[str], wanted: bool | None, private_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool | None] = []

    def cluster(blueprint: Blueprint) -> None:
        asked.append(blueprint.kube_state_metrics)
        raise CommandError("the test ends here")

    monkeypatch.setattr("gameday_rehearsal.cluster.RehearsalCluster", cluster)
    monkeypatch.chdir(private_tmp)
    assert run([*command, *switch]) == ExitCode.USAGE
    assert asked == [wanted]


def test_a_plan_is_read_once(private_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: list[Path] = []

    def counted(path: Path) -> bytes:
        files.append(path)
        return path.read_bytes()

    def cluster(_: Blueprint) -> None:
        raise CommandError("the test ends here")

    monkeypatch.setattr("gameday.plan.load.read", counted)
    monkeypatch.setattr("gameday_rehearsal.cluster.RehearsalCluster", cluster)
    monkeypatch.chdir(private_tmp)
    assert run(["rehearse"]) == ExitCode.USAGE
    assert [path.name for path in files] == ["gpu-fell-off-the-bus.yaml"]


def test_a_plan_that_no_rule_can_show_where_this_detector_watches_is_refused(
    private_tmp: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(changed("    - name: GPUFellOffTheBus\n", "    - meaning: xid-recorded\n"))
    assert run(["rehearse", str(path), "--detector", "konduktor"]) == ExitCode.USAGE
    assert "no shipped rule shows this fault as xid-recorded where konduktor watches" in capsys.readouterr().err
    assert list(private_tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("plan", "size", "said"),
    [
        (changed("recover:", "qa:\n  floors: {gpus: 8}\nrecover:"), ["--gpus", "4"], "wants 8 GPUs per node"),
        (
            changed("  nodes: 1\n", "  nodes: 3\nguardrails: {max_nodes: 3}\n"),
            ["--nodes", "2"],
            "aims at 3 nodes",
        ),
    ],
)
def test_a_cluster_too_small_for_the_plan_is_refused(
    plan: str, size: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(plan)
    assert run(["rehearse", str(path), *size]) == ExitCode.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["apiserver-list-storm", "--scale", "talk"], "must stay free beside it, and 7.0 GiB are free"),
        (["--nodes", "5000"], "--nodes 5000 does not fit this machine: it takes 4.9 GiB of memory"),
        (["apiserver-list-storm-releases"], "run `make lab-release VERSION=1.32`"),
    ],
)
def test_what_this_machine_does_not_have_is_said_before_anything_is_started(
    arguments: list[str],
    said: str,
    private_tmp: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: {20 * 2**20} kB\nMemAvailable: {7 * 2**20} kB\n")
    monkeypatch.setattr("gameday.host.memory.MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr("gameday_rehearsal.lab.programs.TOOLS", tmp_path)
    assert run(["rehearse", *arguments]) == ExitCode.REFUSED
    assert said in capsys.readouterr().err
    assert list(private_tmp.iterdir()) == []


@pytest.mark.slow
def test_a_start_that_fails_keeps_its_logs_and_names_them(
    private_tmp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr("gameday_rehearsal.programs.TOOLS", tmp_path / "no-tools")
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # what `rehearse` sets for its own Prefect stays here
    monkeypatch.setattr("gameday_rehearsal.cli.embedded_cluster._load", lambda flow: None)
    before = signal.getsignal(signal.SIGINT)
    assert run(["rehearse", "--reports", str(tmp_path / "reports")]) == ExitCode.REFUSED
    (kept,) = private_tmp.iterdir()
    out, err = capsys.readouterr()
    assert f"the cluster's logs: {kept}" in out
    assert "prometheus is neither on PATH nor in" in err
    assert naming(kept) == set()
    assert signal.getsignal(signal.SIGINT) is before


class Starting:
    """A cluster whose start lasts until it is killed, on a machine that runs short of memory, or where a part died."""

    def __init__(self, error: RehearsalError) -> None:
        self.description = "a cluster"
        self.ended = 0
        self._error = error
        self._killed = threading.Event()

    def start(self) -> None:
        assert self._killed.wait(10)
        raise StartError("apiserver ended before it was ready")

    def check(self) -> None:
        raise self._error

    def kill(self, why: str) -> None:
        self._killed.set()

    def end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize(
    ("error", "code"),
    [(MemoryShortError("out of memory"), ExitCode.ABORTED), (ChildError("nodes died"), ExitCode.INTERNAL)],
)
def test_a_start_that_the_machine_cannot_carry_ends_with_the_reason(error: RehearsalError, code: ExitCode) -> None:
    cluster = Starting(error)
    said = f"{error}; the rest is ended"
    with pytest.raises(CommandError, match=said) as raised, running_cluster(cluster, console()):  # type: ignore[arg-type]
        pytest.fail("it started")
    assert raised.value.code is code
    assert cluster.ended == 1


def test_status_and_down_where_nothing_runs(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "none"
    assert run(["rehearsal", "status", "--folder", str(folder)]) == ExitCode.FAILED
    assert run(["rehearsal", "down", "--folder", str(folder)]) == ExitCode.PASSED
    assert run(["rehearsal", "down", "--folder", str(folder)]) == ExitCode.PASSED
    assert capsys.readouterr().out == f"no rehearsal runs in {folder}\n" * 3
    assert not folder.exists()


def test_down_spares_a_process_that_reuses_a_killed_ones_id(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        (tmp_path / "lock").write_text(f"{bystander.pid}\n")
        (tmp_path / STATE).write_text(json.dumps({"pid": bystander.pid}))
        assert run(["rehearsal", "status", "--folder", str(tmp_path)]) == ExitCode.FAILED
        assert run(["rehearsal", "down", "--folder", str(tmp_path)]) == ExitCode.PASSED
        assert bystander.poll() is None
        bystander.kill()


@pytest.mark.slow
def test_a_second_up_in_the_folder_is_refused_and_the_first_one_lives(tmp_path: Path, capsys: Capture) -> None:
    held = HeldFolder(tmp_path)
    (tmp_path / STATE).write_text("{}")
    try:
        assert run(["rehearsal", "up", "--folder", str(tmp_path)]) == ExitCode.REFUSED
        assert f"another rehearsal (process {os.getpid()}) runs in {tmp_path}" in capsys.readouterr().err
        assert run(["rehearsal", "status", "--folder", str(tmp_path)]) == ExitCode.PASSED
        (tmp_path / STATE).unlink()
        assert run(["rehearsal", "status", "--folder", str(tmp_path)]) == ExitCode.FAILED
        assert "a rehearsal starts or ends in" in capsys.readouterr().out
    finally:
        held.release()


class Up:
    """One `gameday rehearsal up` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        argv = [sys.executable, "-m", "gameday.cli", "rehearsal", "up", "--nodes", "1", "--gpus", "2"]
        self.process = subprocess.Popen(
            [*argv, "--folder", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def state(self) -> dict[str, Any]:
        path = self.folder / STATE
        until(lambda: path.exists() or self.process.poll() is not None, 150, "the cluster is up")
        until(path.read_text, 5, "its state is written")
        state: dict[str, Any] = json.loads(path.read_text())
        return state

    def ended(self, within_s: float = 60) -> tuple[int, str]:
        said, _ = self.process.communicate(timeout=within_s)
        return self.process.returncode, said


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path / "a folder")
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.communicate()


@pytest.mark.slow
def test_a_killed_up_leaves_no_process_and_no_port(up: Up) -> None:
    state = up.state()
    assert state["pid"] == holder(up.folder) == up.process.pid
    urls = list(state["urls"].values())
    assert all(map(answers, urls))
    assert httpx.get(f"{state['urls']['prefect']}/api/health", trust_env=False).json() is True
    up.process.kill()
    up.process.wait()
    until(lambda: not naming(up.folder), 30, "its processes are gone")
    until(lambda: not any(map(answers, urls)), 10, "its ports are closed")
    assert run(["rehearsal", "status", "--folder", str(up.folder)]) == ExitCode.FAILED


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_start_that_is_broken_off_leaves_nothing(up: Up, which: signal.Signals) -> None:
    until((up.folder / "apiserver.log").exists, 30, "it starts processes")
    up.process.send_signal(which)
    up.process.send_signal(which)
    assert up.ended()[0] == ExitCode.ABORTED
    # One whose start the signal cut short dies with its parent, which is a moment after.
    until(lambda: not naming(up.folder), 30, "its processes are gone")


@pytest.mark.slow
def test_down_ends_the_rehearsal_and_its_exit_code_shows_it(up: Up) -> None:
    up.state()
    assert run(["rehearsal", "down", "--folder", str(up.folder)]) == ExitCode.PASSED
    code, said = up.ended()
    assert code == ExitCode.PASSED
    assert f"export KUBECONFIG='{up.folder}/control-plane/admin.kubeconfig'" in said
    assert naming(up.folder) == set()


@pytest.mark.slow
def test_a_part_that_dies_is_named_with_its_log_and_the_rest_is_ended(up: Up) -> None:
    up.state()
    nodes = next(pid for pid in naming(up.folder) if b"rehearsal.nodes" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(nodes, signal.SIGKILL)
    code, said = up.ended()
    assert code == ExitCode.INTERNAL
    assert "gameday: nodes died (exit status -9)" in said
    assert "nodes died (exit status -9)" in why_ended(up.folder), "game-days in other processes learn it"
    assert f"its log is {up.folder}/nodes.log" in said
    assert naming(up.folder) == set()
