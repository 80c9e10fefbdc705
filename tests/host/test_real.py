"""The real host on a folder in place of the machine's file system; this machine's kernel log is never touched."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.errors import HostBusyError, HostError
from gameday.host.program import MAX_OUTPUT_BYTES
from gameday.host.real import RealHost


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("dev", "proc/sys/kernel/random", "sys/bus", "etc", "proc/1/ns", "proc/self/ns"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dev/kmsg").touch()
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("6d1f\n")
    for process in ("1", "self"):
        (tmp_path / f"proc/{process}/ns/mnt").symlink_to("mnt:[1]")
    return tmp_path


def test_a_record_is_written_to_the_kernel_log(root: Path) -> None:
    RealHost(root).write_kernel_log("<3>kernel: NVRM: Xid")
    assert (root / "dev/kmsg").read_bytes() == b"<3>kernel: NVRM: Xid\n"


def test_a_kernel_that_drops_writes_is_an_error_that_names_the_setting(root: Path) -> None:
    (root / "proc/sys/kernel/printk_devkmsg").write_text("off\n")
    with pytest.raises(HostError, match=r"printk_devkmsg is `off`.*`sysctl kernel.printk_devkmsg=ratelimit`"):
        RealHost(root).read_kernel_log()
    with pytest.raises(HostError, match=r"printk_devkmsg is `off`.*ratelimit"):
        RealHost(root).write_kernel_log("<3>x")
    assert (root / "dev/kmsg").read_bytes() == b""


@pytest.mark.parametrize("policy", ["on", "ratelimit"])
def test_every_other_policy_keeps_the_write(root: Path, policy: str) -> None:
    (root / "proc/sys/kernel/printk_devkmsg").write_text(policy)
    RealHost(root).write_kernel_log("<3>x")
    assert (root / "dev/kmsg").read_bytes() == b"<3>x\n"


@pytest.fixture
def ring_buffer(root: Path) -> Iterator[int]:
    """Make /dev/kmsg a FIFO: each read returns one write, and EAGAIN when there is no more."""
    (root / "dev/kmsg").unlink()
    os.mkfifo(root / "dev/kmsg")
    descriptor = os.open(root / "dev/kmsg", os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_the_log_is_read_to_its_end(root: Path, ring_buffer: int) -> None:
    os.write(ring_buffer, b"3,1,1500000,-;NVRM: Xid\n")
    assert RealHost(root).read_kernel_log() == ["[    1.500000] NVRM: Xid"]


def test_a_record_of_unknown_form_is_a_host_error(root: Path, ring_buffer: int) -> None:
    os.write(ring_buffer, b"nonsense")
    with pytest.raises(HostError, match="not a kernel-log record"):
        RealHost(root).read_kernel_log()


def test_a_missing_kernel_log_is_a_host_error(root: Path) -> None:
    (root / "dev/kmsg").unlink()
    with pytest.raises(HostError, match=r"kmsg.*privileged"):
        RealHost(root).write_kernel_log("<3>x")
    with pytest.raises(HostError, match=r"kmsg.*privileged"):
        RealHost(root).read_kernel_log()


def test_files_of_the_allow_list_are_written_and_read(root: Path) -> None:
    host = RealHost(root)
    (root / "sys/bus/knob").write_text("0")
    host.write_file("/sys/bus/knob", "1")
    assert host.read_file("/sys/bus/knob") == "1"
    host.write_file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n")
    assert host.read_file("/etc/nccl.conf") == "NCCL_DEBUG=INFO\n"


def test_a_file_that_comes_in_pieces_is_read_to_its_end(root: Path) -> None:
    """As the kernel gives what is longer than a page: each read() of this pipe gets one packet."""
    os.mkfifo(root / "sys/bus/list")

    def write() -> None:
        pipe = os.open(root / "sys/bus/list", os.O_WRONLY)
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_DIRECT)
        for piece in (b"first\n", b"second\n"):
            os.write(pipe, piece)
        os.close(pipe)

    writing = threading.Thread(target=write)
    writing.start()
    assert RealHost(root).read_file("/sys/bus/list") == "first\nsecond\n"
    writing.join()


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "/sys/../etc/passwd",
        "/sys",
        "sys/bus/knob",
        "/sysfoo/x",
        "/sys/out",
        "/etc/../etc/nccl.conf",
        "/sys/\0",
        "",
    ],
)
def test_every_other_path_is_refused(root: Path, path: str) -> None:
    (root / "etc/passwd").write_text("root")
    (root / "sys/out").symlink_to(root / "etc/passwd")
    with pytest.raises(HostError):
        RealHost(root).read_file(path)


def test_a_link_in_the_place_of_nccl_conf_is_not_followed(root: Path) -> None:
    (root / "etc/passwd").write_text("root")
    (root / "etc/nccl.conf").symlink_to(root / "etc/passwd")
    with pytest.raises(HostError, match="cannot open"):
        RealHost(root).write_file("/etc/nccl.conf", "x")
    assert (root / "etc/passwd").read_text() == "root"


def test_a_container_reads_the_hosts_nccl_conf(root: Path) -> None:
    _in_container(root)
    of_the_host = root / "proc/1" / "root" / "etc"
    of_the_host.mkdir(parents=True)
    (of_the_host / "nccl.conf").write_text("host's")
    (root / "etc/nccl.conf").write_text("container's")
    assert RealHost(root).read_file("/etc/nccl.conf") == "host's"


def test_the_boot_id_is_read(root: Path) -> None:
    assert RealHost(root).boot_id() == "6d1f"


def test_a_program_runs_without_a_shell_and_without_our_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_SECRET", "hunter2")
    echoed = RealHost(root).run(["echo", "$(id); `id`"], 5)
    assert (echoed.exit_status, echoed.stdout) == (0, "$(id); `id`\n")
    assert "hunter2" not in RealHost(root).run(["env"], 5).stdout


def test_a_failing_program_is_a_result(root: Path) -> None:
    assert RealHost(root).run(["false"], 5).exit_status == 1


def test_output_is_bounded_and_the_program_is_not_blocked(root: Path) -> None:
    result = RealHost(root).run(["head", "-c", "3000000", "/dev/zero"], 10)
    assert (result.exit_status, len(result.stdout)) == (0, MAX_OUTPUT_BYTES)


def test_a_program_that_does_not_end_is_killed_with_its_children(root: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(HostBusyError, match=r"did not end within 2 s"):
        RealHost(root).run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], 2)
    child = pid_file.read_text().strip()
    # The signal is sent immediately, but on a busy machine its target may take a while to die.
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_that_is_out_of_time_may_first_stop_what_it_began_elsewhere(root: Path, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    script = f"trap 'kill $!; echo yes > {stopped}; exit 1' TERM; sleep 60 & wait"
    with pytest.raises(HostError, match=r"did not end within 1 s"):
        RealHost(root).run(["sh", "-c", script], 1)
    assert stopped.read_text() == "yes\n"


def test_a_program_that_runs_long_ends_with_the_agent(root: Path, tmp_path: Path) -> None:
    begun, stopped, ended = tmp_path / "begun", tmp_path / "stopped", threading.Event()
    script = f"trap 'kill $!; echo yes > {stopped}; exit 1' TERM; sleep 60 & echo yes > {begun}; wait"

    def end_once_it_runs() -> None:
        deadline = time.monotonic() + 10
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        ended.set()

    watcher = threading.Thread(target=end_once_it_runs)
    watcher.start()
    with pytest.raises(HostError, match="was ended, as the agent has to end"):
        RealHost(root).run(["sh", "-c", script], 60, ended)
    watcher.join()
    assert stopped.read_text() == "yes\n"
    assert RealHost(root).run(["echo", "quick"], 5, threading.Event()).stdout == "quick\n"


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_missing_program_is_a_host_error(root: Path) -> None:
    with pytest.raises(HostError, match="cannot run 'no-such-program -q'"):
        RealHost(root).run(["no-such-program", "-q"], 5)


def test_a_container_enters_the_hosts_namespaces(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _in_container(root)
    ran: list[list[str]] = []

    def run_program(argv: list[str], timeout_s: float, shown: list[str], ended: None) -> None:
        ran.append(argv)

    monkeypatch.setattr("gameday.host.program.run_program", run_program)
    RealHost(root).run(["systemctl", "reboot"], 5)
    assert ran == [
        ["nsenter", "--target", "1", "--mount", "--uts", "--ipc", "--net", "--pid", "--", "systemctl", "reboot"]
    ]


def test_nvidia_smi_runs_in_the_drivers_container_where_there_is_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _in_container(root)
    ran: list[tuple[list[str], list[str]]] = []
    monkeypatch.setattr(
        "gameday.host.program.run_program", lambda argv, timeout_s, shown, ended: ran.append((argv, shown))
    )
    host = RealHost(root)
    host.run(["nvidia-smi", "-L"], 5)
    tool = root / "proc/1" / "root" / "run/nvidia/driver/usr/bin/nvidia-smi"
    tool.parent.mkdir(parents=True)
    tool.touch()
    host.run(["nvidia-smi", "-L"], 5)
    host.run(["systemctl", "reboot"], 5)
    tails = [argv[argv.index("--") + 1 :] for argv, _ in ran]
    assert tails == [
        ["nvidia-smi", "-L"],
        ["chroot", "/run/nvidia/driver", "nvidia-smi", "-L"],
        ["systemctl", "reboot"],
    ]
    assert ran[1][1] == ["nvidia-smi", "-L"]


def test_an_unreadable_mount_namespace_is_a_host_error(root: Path) -> None:
    (root / "proc/1/ns/mnt").unlink()
    with pytest.raises(HostError, match="privileged and with hostPID"):
        RealHost(root).run(["true"], 5)


def _forbid(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the link be one that not even root may read, as of process 1 in some virtual machines."""
    readlink = Path.readlink

    def refuse(one: Path) -> Path:
        if one == path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return readlink(one)

    monkeypatch.setattr(Path, "readlink", refuse)


def test_a_forbidden_mount_namespace_of_process_1_is_no_container(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _forbid(monkeypatch, root / "proc/1/ns/mnt")
    assert RealHost(root, {}).run(["echo", "on the machine itself"], 5).stdout == "on the machine itself\n"


def test_a_forbidden_mount_namespace_of_process_1_is_an_error_in_a_pod(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forbid(monkeypatch, root / "proc/1/ns/mnt")
    with pytest.raises(HostError, match="privileged and with hostPID"):
        RealHost(root, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).run(["true"], 5)


def _in_container(root: Path) -> None:
    (root / "proc/1/ns/mnt").unlink()
    (root / "proc/1/ns/mnt").symlink_to("mnt:[2]")
