from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gameday.errors import PodConfigError, PodRejectedError
from gameday_rehearsal.nodes.container_log import PrintedLog
from gameday_rehearsal.nodes.containers import RealProcess
from gameday_rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday_rehearsal.nodes.probes import _run_inside
from gameday_rehearsal.nodes.sandbox import Sandbox

POD: dict[str, Any] = {
    "metadata": {"uid": "u1", "name": "p", "namespace": "ns"},
    "spec": {
        "nodeName": "n1",
        "volumes": [{"name": "run", "emptyDir": {}}, {"name": "kmsg", "hostPath": {"path": "/dev/kmsg"}}],
    },
}
CONTAINER: dict[str, Any] = {
    "name": "c",
    "volumeMounts": [
        {"name": "run", "mountPath": "/run/gameday"},
        {"name": "kmsg", "mountPath": "/dev/kmsg"},
    ],
}


def holder(name: str) -> GpuHolder:
    return GpuHolder(f"uid-{name}", "ns", name, "c")


def test_gpus_go_to_one_pod_and_come_back() -> None:
    handed: list[tuple[int, str | None]] = []
    devices = GpuDevices(4, lambda gpu: gpu != 0, lambda gpu, to: handed.append((gpu, to.pod if to else None)))
    assert devices.allocatable == 3
    devices.allocate([(holder("p"), 2)])
    assert devices.held_by("uid-p") == [1, 2]
    with pytest.raises(PodRejectedError) as busy:
        devices.allocate([(holder("q"), 2)])
    assert busy.value.reason == "UnexpectedAdmissionError"
    with pytest.raises(PodRejectedError) as too_many:
        devices.allocate([(holder("q"), 4)])
    assert too_many.value.reason == "OutOfnvidia.com/gpu"
    assert devices.held_by("uid-q") == []
    devices.release("uid-p")
    assert handed == [(1, "p"), (2, "p"), (1, None), (2, None)]


def test_paths_below_an_emptydir_are_rewritten_and_no_others(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, POD)
    volume = tmp_path / "u1" / "volumes" / "run"
    assert volume.is_dir()
    assert sandbox.rewritten(CONTAINER, "/run/gameday/ready") == str(volume / "ready")
    assert sandbox.rewritten(CONTAINER, "/run/gameday") == str(volume)
    for other in ("/run/gamedays", "/dev/kmsg", '{"path": "/run/gameday"}', ""):
        assert sandbox.rewritten(CONTAINER, other) == other


def test_the_environment_is_the_containers_and_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    env = [
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "STATE", "value": "/run/gameday"},
        {"name": "LD_PRELOAD", "value": "/tmp/evil.so"},
    ]
    found = Sandbox(tmp_path, POD).environment({**CONTAINER, "env": env}, {"GAMEDAY_VIRTUAL_HOST": "http://h"})
    assert set(found) == {"NODE", "STATE", "PATH", "GAMEDAY_VIRTUAL_HOST"}
    assert found["NODE"] == "n1"
    secret = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    with pytest.raises(PodConfigError, match="variable S"):
        Sandbox(tmp_path, POD).environment({**CONTAINER, "env": secret}, {})


def test_probes_look_only_inside_the_pods_folder(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, POD)
    ready = sandbox.rewritten(CONTAINER, "/run/gameday/ready")
    assert not _run_inside(["cat", ready], sandbox)
    Path(ready).touch()
    assert _run_inside(["cat", ready], sandbox)
    assert _run_inside(["test", "-f", ready], sandbox)
    assert not _run_inside(["cat", "/etc/hostname"], sandbox)
    assert not _run_inside(["cat", sandbox.rewritten(CONTAINER, "/run/gameday/../../../../etc/hostname")], sandbox)
    assert not _run_inside(["sh", "-c", "true"], sandbox)


def test_the_termination_message_is_cut_and_falls_back_to_the_log(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, POD)
    fallback = {**CONTAINER, "terminationMessagePolicy": "FallbackToLogsOnError"}
    sandbox.log_file(CONTAINER, 0).write_text("one\nlast words\n")
    assert sandbox.termination_message(CONTAINER, 0, failed=True) == ""
    assert sandbox.termination_message(fallback, 0, failed=False) == ""
    assert sandbox.termination_message(fallback, 0, failed=True).endswith("last words\n")
    sandbox.termination_log(CONTAINER, 0).write_text("x" * 5000)
    assert sandbox.termination_message(fallback, 0, failed=True) == "x" * 4096


async def run(folder: Path, code: str) -> tuple[RealProcess, PrintedLog]:
    """`timeit` runs any statement once, so it stands in for the agent's module."""
    log = PrintedLog(folder / "log")
    arguments = ["-n1", "-r1", "-s", "import os, signal, time", code]
    argv = [sys.executable, "-m", "gameday_rehearsal.nodes.launch", "timeit", *arguments]
    return await RealProcess.start(argv, {}, folder, log), log


async def wait_for_line(log: PrintedLog, text: str) -> None:
    while not any(text in line.text for line in log.read(0)[0]):
        await log.grown()


async def test_the_output_of_a_process_is_logged_and_its_exit_reported(tmp_path: Path) -> None:
    process, log = await run(tmp_path, "print('hello', flush=True); os._exit(3)")
    assert await process.wait() == 3
    assert log.closed
    assert "hello" in [line.text for line in log.read(0)[0]]
    assert "hello" in (tmp_path / "log").read_text()


async def test_a_process_may_handle_sigterm_and_may_not_handle_sigkill(tmp_path: Path) -> None:
    handler = "signal.signal(15, lambda *_: os._exit(7)); print('up', flush=True); time.sleep(60)"
    process, log = await run(tmp_path, handler)
    await wait_for_line(log, "up")
    process.terminate()
    assert await process.wait() == 7
    stubborn = "signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process, log = await run(tmp_path, stubborn)
    await wait_for_line(log, "up")
    process.terminate()
    process.kill()
    assert await process.wait() == 137
