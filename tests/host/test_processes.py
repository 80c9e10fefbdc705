"""Workers and users of a GPU and DCGM's engines in /proc; every process that is killed here belongs to the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host.base import Burn, DcgmEngine, DcgmEngines, GpuSample, GpuUser
from gameday.host.processes import dcgm_engines, device_users, start_worker, workers
from gameday.host.real import RealHost


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return a /proc with one GPU, minor 3, which two processes have open."""
    information = tmp_path / "proc/driver/nvidia/gpus/0000:4e:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 3\nGPU Excluded:\t No\n")
    for pid, command, opened in (
        (1, ["/sbin/init"], "/dev/null"),
        (11, ["/usr/bin/nvidia-persistenced", "--verbose"], "/dev/nvidia3"),
        (12, ["python", "train.py"], "/dev/nvidia3"),
        (13, ["nvidia-smi"], "/dev/nvidia30"),
        (14, ["python", "-m", "gameday.host.worker", "--gpu=1"], "/dev/nvidiactl"),
    ):
        folder = tmp_path / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cmdline").write_bytes(b"\0".join(part.encode() for part in command) + b"\0")
        (folder / "fd" / "4").symlink_to(opened)
    return tmp_path / "proc"


def test_users_of_a_gpu_are_the_processes_that_have_its_device_open(proc: Path) -> None:
    assert device_users(proc, "0000:4e:00") == (
        GpuUser(pid=11, command="/usr/bin/nvidia-persistenced --verbose"),
        GpuUser(pid=12, command="python train.py"),
    )


POD = "0c2b1f3e-9a54-4c1d-8f5e-2b7a6d9e4f10"
SLICE = f"kubepods-burstable-pod{POD.replace('-', '_')}.slice"
STATIC = "5b1c3a4f7d8e9012a3b4c5d6e7f80912"


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        (f"0::/kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-1.scope", POD),
        (f"0::/kubepods/besteffort/pod{POD}/4711", POD),
        (f"0::/../../{SLICE}/crio-1.scope", POD),
        (f"11:memory:/kubepods/besteffort/pod{STATIC}/4711", STATIC),
        ("0::/system.slice/nvidia-dcgm.service", ""),
        ("0::/machine.slice/libpod-4711.scope", ""),
    ],
)
def test_the_pod_of_a_user_is_read_from_its_cgroup(proc: Path, cgroup: str, pod: str) -> None:
    (proc / "12/cgroup").write_text(cgroup + "\n")
    assert device_users(proc, "0000:4e:00")[1].pod == pod


def test_a_process_that_ends_during_the_search_is_no_user(proc: Path) -> None:
    (proc / "12/fd/4").unlink()
    (proc / "12/fd").rmdir()
    assert [user.pid for user in device_users(proc, "0000:4e:00")] == [11]


def test_a_process_that_root_may_not_look_into_is_not_seen(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readlink = Path.readlink

    def refused(link: Path) -> Path:
        if link == proc / "1/fd/4":
            raise PermissionError
        return readlink(link)

    monkeypatch.setattr(Path, "readlink", refused)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert {user.line for user in device_users(proc, "0000:4e:00")} == {
        "1 /sbin/init (not seen: its open files cannot be read)",
        "11 /usr/bin/nvidia-persistenced --verbose",
        "12 python train.py",
    }
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="run the agent as root"):
        device_users(proc, "0000:4e:00")


def test_a_process_with_a_hidden_command_is_not_taken_for_one_that_has_ended(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def refused(path: Path) -> bytes:
        if path == proc / "12/cmdline":
            raise PermissionError
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refused)
    assert [user.pid for user in device_users(proc, "0000:4e:00")] == [11, 12]


def test_users_that_cannot_be_found_are_a_host_error(proc: Path) -> None:
    with pytest.raises(HostError, match="is the nvidia module loaded"):
        device_users(proc, "0000:ff:00")
    (proc / "driver/nvidia/gpus/0000:4e:00.0/information").write_text("nothing\n")
    with pytest.raises(HostError, match="names no `Device Minor`"):
        device_users(proc, "0000:4e:00")


def test_the_real_host_finds_users_by_the_gpus_pci_address(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = RealHost(proc.parent)
    monkeypatch.setattr(host, "gpus", lambda: [GpuSample(index=0, uuid="", name="", pci_bus_id="0000:4e:00")])
    assert len(host.gpu_users(0)) == 2
    with pytest.raises(HostError, match="no PCI address of a GPU 1"):
        host.gpu_users(1)


def test_a_worker_of_another_agent_is_found_by_its_command_line(proc: Path) -> None:
    assert workers(proc, 1) == [14]
    assert workers(proc, 3) == []
    assert RealHost(proc.parent).has_work(1)


@pytest.fixture
def stray() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that a test may kill in place of a worker that a dead agent left."""
    command = ["-c", "import sys, time; time.sleep(60)"]
    process = subprocess.Popen([sys.executable, *command])
    yield process
    process.kill()
    process.wait()


def test_a_stray_worker_is_killed_by_another_agent(
    proc: Path, stray: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = proc / str(stray.pid)
    folder.mkdir()
    (folder / "cmdline").write_bytes(b"python\0-m\0gameday.host.worker\0--gpu=3\0")
    kill = os.kill

    def killed(pid: int, signal: int) -> None:
        assert pid == stray.pid
        kill(pid, signal)
        (folder / "cmdline").unlink()

    monkeypatch.setattr(os, "kill", killed)
    host = RealHost(proc.parent)
    assert host.end_work(3) is None
    assert stray.wait(10) == -9
    assert not host.has_work(3)


def test_without_cupy_work_is_refused_and_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "")
    host = RealHost()
    try:
        __import__("cupy")
    except ImportError:
        with pytest.raises(HostError, match=r"CuPy cannot be imported .*install gpu-gameday\[gpu\]"):
            host.start_work(77, Burn())
    assert host.work_report(77) is None
    assert host.end_work(77) is None
    assert not host.has_work(77)


def test_a_worker_that_cannot_be_started_is_a_host_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(HostError, match=r"cannot start gameday.host.worker"):
        start_worker(0, Burn())


@pytest.fixture
def threads(proc: Path) -> Path:
    """Add threads: process 11 is nv-hostengine, 12 a client of it, 13 has an engine of its own, in a pod."""
    for pid, names in ((11, ["nv-hostengine", "cache_mgr_main"]), (12, ["python", "dcgm_ipc"])):
        add_threads(proc, pid, names)
    add_threads(proc, 13, ["python3", "cache_mgr_event", "cache_mgr_main"])
    (proc / "13/cgroup").write_text(f"0::/kubepods/besteffort/pod{POD}/4711\n")
    (proc / "self/ns").mkdir(parents=True)
    (proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    return proc


def add_threads(proc: Path, pid: int, names: list[str]) -> None:
    for number, name in enumerate(names):
        thread = proc / f"{pid}/task/{pid + number}"
        thread.mkdir(parents=True)
        (thread / "comm").write_text(f"{name}\n")


def test_an_engine_is_known_by_its_thread_and_a_client_is_none(threads: Path) -> None:
    assert RealHost(threads.parent).dcgm_engines() == DcgmEngines(
        engines=(
            DcgmEngine(pid=11, command="/usr/bin/nvidia-persistenced --verbose", embedded=False),
            DcgmEngine(pid=13, command="nvidia-smi", pod=POD, embedded=True),
        )
    )


def test_a_thread_that_ends_during_the_search_hides_no_engine(threads: Path) -> None:
    (threads / "13/task/99").mkdir()
    assert [one.pid for one in dcgm_engines(threads).engines] == [11, 13]


def test_another_pid_namespace_is_said(threads: Path) -> None:
    (threads / "self/ns/pid").unlink()
    (threads / "self/ns/pid").symlink_to("pid:[4026532999]")
    (why,) = dcgm_engines(threads).unseen
    assert "outside this PID namespace" in why
    (threads / "self/ns/pid").unlink()
    assert "cannot be read" in dcgm_engines(threads).unseen[0]


def test_processes_that_proc_hides_are_said(threads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_text

    def denied(path: Path, *arguments: str) -> str:
        if path.name == "comm" and path.parents[2].name == "13":
            raise PermissionError(13, "Permission denied")
        return read(path, *arguments)

    monkeypatch.setattr(Path, "read_text", denied)
    found = dcgm_engines(threads)
    assert [one.pid for one in found.engines] == [11]
    assert found.unseen == ("the threads of process 13: permission denied",)
    shutil.rmtree(threads / "1")
    assert any("hidepid" in why for why in dcgm_engines(threads).unseen)


@pytest.fixture
def embedding() -> Iterator[int]:
    """Start a process that names a thread as DCGM does, and yield its id."""
    script = (
        "import ctypes, sys, threading\n"
        "ready, stop = threading.Event(), threading.Event()\n"
        "def run():\n"
        "    ctypes.CDLL(None).prctl(15, b'cache_mgr_main', 0, 0, 0)\n"
        "    ready.set(); stop.wait()\n"
        "threading.Thread(target=run, daemon=True).start()\n"
        "ready.wait(); print('ready', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    process.kill()
    process.communicate()


def test_this_machines_own_proc_shows_a_thread_of_that_name(embedding: int) -> None:
    (found,) = [one for one in RealHost().dcgm_engines().engines if one.pid == embedding]
    assert found.embedded
