"""The table of docs/metal.md, row by row: what the model of a node does, and what the kernel of this machine does.

The kernel's side needs root. What it writes names itself as a test's, and what it sets is what was set before.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host.processes import device_users
from gameday.host.real import RealHost
from gameday_rehearsal.nodes.files import write_file
from gameday_rehearsal.nodes.host_calls import MachineCalls
from gameday_rehearsal.nodes.kernel_log_files import node_files
from gameday_rehearsal.nodes.machine import Machine

KMSG = Path("/dev/kmsg")
DEVKMSG = Path("/proc/sys/kernel/printk_devkmsg")
RESCAN = Path("/sys/bus/pci/rescan")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MARK = f"gameday: a test's record {secrets.token_hex(4)}"
REFUSED = {
    "EINVAL": "Invalid argument",
    "EACCES": "Permission denied",
    "ENOENT": "No such file",
    "EPERM": "not permitted",
}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def kmsg() -> Path:
    """Return the kernel's own /dev/kmsg; skip where it cannot be opened."""
    if os.geteuid() != 0 or not KMSG.is_char_device():
        pytest.skip("needs root and the kernel's own /dev/kmsg")
    if why := error_of(lambda: os.close(os.open(KMSG, os.O_RDWR))):
        pytest.skip(f"{why}: {DEVKMSG} is {DEVKMSG.read_text()}")
    return KMSG


def error_of(call: Callable[[], object]) -> str:
    """Return the name of the kernel's error, empty if there is none; of a host's error, the name of its text."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    except HostError as error:
        return next(name for name, text in REFUSED.items() if text in str(error))
    return ""


@contextmanager
def opened(path: Path | str, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def reader(path: Path) -> Iterator[int]:
    """Open a kernel log for reading from its end on."""
    with opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        os.lseek(descriptor, 0, os.SEEK_END)
        yield descriptor


def records(descriptor: int) -> list[bytes]:
    """Return what there is to read now; others may write as well."""
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(os.read(descriptor, 8192))
    return found


def write(path: Path, raw: bytes) -> int:
    with opened(path, os.O_WRONLY) as descriptor:
        return os.write(descriptor, raw)


def shown(kmsg_records: list[bytes], mark: str) -> tuple[str, str]:
    """Return the priority and the text of the one record that has the mark."""
    (record,) = (one for one in kmsg_records if mark.encode() in one)
    head, _, text = record.partition(b";")
    return head.split(b",")[0].decode(), text.decode().removesuffix("\n")


# Records


WRITTEN = (
    ("<6>{}\n", "14", "{}"),
    ("<46>{}\n", "46", "{}"),
    ("<2054>{}\n", "14", "{}"),
    ("<4294967302>{}\n", "14", "{}"),
    ("<0006>{}\n", "14", "{}"),
    ("{}\n", "12", "{}"),
    ("<-6>{}\n", "12", "<-6>{}"),
    ("<6 >{}\n", "12", "<6 >{}"),
    ("<6>{} two\nlines\n", "14", r"{} two\x0alines"),
    ("<6>{} two newlines\n\n", "14", r"{} two newlines\x0a"),
    ("<6>{} \t\x1b\x7f\\é\n", "14", r"{} \x09\x1b\x7f\x5c\xc3\xa9"),
    ("<6>{} a NUL\0and more\n", "14", "{} a NUL"),
    ("<6>{}" + "x" * 923, "14", "{}" + "x" * 923),
)
"""Records as written, and as a reader of /dev/kmsg gets them: priority and text. `{}` has 50 characters."""


@pytest.fixture(params=range(len(WRITTEN)))
def written(request: pytest.FixtureRequest) -> tuple[str, str, str, str]:
    """Return a row's mark, what to write, and the priority and text to be read."""
    mark = f"{MARK} {request.param:2d}".ljust(50, ".")
    raw, priority, text = WRITTEN[request.param]
    return mark, raw.replace("{}", mark), priority, text.replace("{}", mark)


def test_the_model_shows_a_record_as_the_kernel_does(machine: Machine, written: tuple[str, str, str, str]) -> None:
    mark, raw, priority, text = written
    machine.log.write(raw)
    machine.log.write("<6>the end of a record without one\n")
    assert shown([record.kmsg for record in machine.log.records()], mark) == (priority, text)


def test_the_kernel_shows_a_record_as_the_model_does(kmsg: Path, written: tuple[str, str, str, str]) -> None:
    mark, raw, priority, text = written
    with reader(kmsg) as waiting:
        assert write(kmsg, raw.encode()) == len(raw.encode())
        if not raw.endswith("\n") or "\0" in raw:
            write(kmsg, f"<6>{MARK}, the end of one without a newline\n".encode())
        assert shown(records(waiting), mark) == (priority, text)


def test_the_kernel_refuses_more_than_1024_bytes_too(kmsg: Path) -> None:
    assert error_of(lambda: write(kmsg, b"<6>" + b"x" * 1022)) == "EINVAL"


def test_the_kernel_drops_what_one_open_file_writes_too_fast_and_takes_what_the_product_writes(kmsg: Path) -> None:
    if DEVKMSG.read_text() != "ratelimit\n":
        pytest.skip(f"{DEVKMSG} is not ratelimit")
    with reader(kmsg) as waiting:
        began = time.monotonic()
        with opened(kmsg, os.O_WRONLY) as writing:
            lengths = {os.write(writing, f"<6>{MARK} in a burst\n".encode()) for _ in range(11)}
        if time.monotonic() - began > 5:
            pytest.skip("the machine is too busy to write 11 records in 5 s")
        RealHost().write_kernel_log(f"<6>{MARK} after the burst")
        found = b"".join(records(waiting))
    assert lengths == {len(f"<6>{MARK} in a burst\n")}  # the one that was dropped, too
    assert found.count(f"{MARK} in a burst".encode()) == 10
    assert f"{MARK} after the burst".encode() in found


# Readers


def test_a_read_with_too_small_a_buffer_loses_the_record(kmsg: Path) -> None:
    with opened(kmsg, os.O_RDONLY | os.O_NONBLOCK) as first, opened(kmsg, os.O_RDONLY | os.O_NONBLOCK) as second:
        assert error_of(lambda: os.read(first, 4)) == "EINVAL"
        lost, after = os.read(second, 8192), os.read(first, 8192)
    assert int(after.split(b",")[1]) > int(lost.split(b",")[1])


def test_a_reader_may_go_to_the_begin_and_the_end_and_nowhere_else(kmsg: Path) -> None:
    with opened(kmsg, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
        for whence in (os.SEEK_SET, os.SEEK_END, os.SEEK_DATA):
            assert os.lseek(descriptor, 0, whence) == 0
        assert error_of(lambda: os.lseek(descriptor, 5, os.SEEK_SET)) == "ESPIPE"
        assert error_of(lambda: os.lseek(descriptor, 0, os.SEEK_CUR)) == "EINVAL"


def test_the_models_pipe_cuts_a_short_read_and_has_no_positions(machine: Machine, tmp_path: Path) -> None:
    async def play() -> None:
        async with node_files(tmp_path, [machine]) as files:
            with opened(files[machine.name].kmsg, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
                while error_of(lambda: read.append(os.read(descriptor, 4))):
                    await asyncio.sleep(0.005)
                read.append(os.read(descriptor, 8192))
                assert error_of(lambda: os.lseek(descriptor, 0, os.SEEK_END)) == "ESPIPE"

    read: list[bytes] = []
    asyncio.run(play())
    first, second = (record.kmsg for record in machine.log.records()[:2])
    assert read == [first[:4], second]


def test_a_program_without_rights_neither_reads_nor_writes(kmsg: Path) -> None:
    if Path("/proc/sys/kernel/dmesg_restrict").read_text() != "1\n":
        pytest.skip("kernel.dmesg_restrict is 0: everybody may read")
    program = f"(: <{kmsg}); (: >>{kmsg})"
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", program)
    said = subprocess.run(nobody, capture_output=True, text=True, check=False).stderr
    assert [line.rpartition(": ")[2] for line in said.splitlines()] == ["Operation not permitted", "Permission denied"]


@pytest.mark.slow
def test_off_lets_nobody_open_the_log_and_mutes_who_has_it_open(kmsg: Path) -> None:
    """Slow, as it is `off` for the whole machine, for less than a millisecond."""
    before = DEVKMSG.read_bytes()
    with opened(DEVKMSG, os.O_RDWR) as setting, reader(kmsg) as waiting, opened(kmsg, os.O_WRONLY) as writing:
        os.pwrite(setting, b"off\n", 0)
        try:
            errors = [error_of(lambda mode=mode: os.open(kmsg, mode)) for mode in (os.O_RDONLY, os.O_WRONLY)]  # type: ignore[misc]
            os.write(writing, f"<6>{MARK} while it is off\n".encode())
        finally:
            os.pwrite(setting, before, 0)
        assert not any(b"while it is off" in record for record in records(waiting))
    assert errors == ["EPERM", "EPERM"]


def test_off_refuses_agents_on_the_model(machine: Machine) -> None:
    write_file(machine, str(DEVKMSG), "off\n")
    calls = MachineCalls(machine)
    assert error_of(calls.read_kernel_log) == error_of(lambda: calls.write_kernel_log("<6>muted\n")) == "EPERM"


# Files


@pytest.fixture(params=["model", "kernel"])
def host(request: pytest.FixtureRequest, machine: Machine) -> MachineCalls | RealHost:
    """Return the model of a machine, or this machine if the test is root on it and may write /sys."""
    if request.param == "model":
        return MachineCalls(machine)
    if os.geteuid() != 0 or not os.access(RESCAN, os.W_OK):
        pytest.skip("needs root, a PCI bus and a writable /sys")
    return RealHost()


@pytest.mark.parametrize("form", ["{}", "{}\n\n", " {}\n", "{} \n", "", "maybe\n", "{}\n"])
def test_printk_devkmsg_takes_a_word_and_one_newline(host: MachineCalls | RealHost, form: str) -> None:
    value = host.read_file(str(DEVKMSG)).strip()
    wanted = "" if form == "{}\n" else "EINVAL"
    if not wanted and isinstance(host, RealHost) and error_of(lambda: DEVKMSG.write_text(f"{value}\n")):
        pytest.skip("the kernel's command line sets it for good")
    assert error_of(lambda: host.write_file(str(DEVKMSG), form.replace("{}", value))) == wanted
    assert host.read_file(str(DEVKMSG)) == f"{value}\n"


FLAGS = dict.fromkeys(("0", "0\n", "", "0x0", "+0", "00"), "") | dict.fromkeys(
    ("x", " 0", "0 ", "0\n\n", "-0", "0_0"), "EINVAL"
)


@pytest.mark.parametrize(("content", "error"), FLAGS.items())
def test_a_flag_of_sysfs_takes_a_number_and_no_more_than_a_newline(
    host: MachineCalls | RealHost, content: str, error: str
) -> None:
    assert error_of(lambda: host.write_file(str(RESCAN), content)) == error


@pytest.mark.parametrize(("content", "error"), FLAGS.items())
def test_a_flag_that_is_0_or_refused_does_nothing_to_the_model(machine: Machine, content: str, error: str) -> None:
    machine.fleet.removed[0, 1] = True
    remove = f"/sys/bus/pci/devices/{machine.gpus[2].sysfs_name}/remove"
    assert error_of(lambda: write_file(machine, str(RESCAN), content)) == error
    assert error_of(lambda: write_file(machine, remove, content)) == error
    assert machine.known_gpus() == [0, 2, 3]


def test_not_even_root_opens_a_file_against_its_mode_or_by_another_name(
    host: MachineCalls | RealHost, machine: Machine
) -> None:
    devices = sorted(Path("/sys/bus/pci/devices").iterdir()) if isinstance(host, RealHost) else []
    folder = f"/sys/bus/pci/devices/{devices[0].name if devices else machine.gpus[0].sysfs_name}"
    if isinstance(host, RealHost) and not devices:
        pytest.skip("no PCI device")
    for path in (str(RESCAN), f"{folder}/remove"):
        assert error_of(lambda path=path: host.read_file(path)) == "EACCES"  # type: ignore[misc]
    for path in (BOOT_ID, f"{folder}/vendor"):
        assert error_of(lambda path=path: host.write_file(path, "1")) == "EACCES"  # type: ignore[misc]
    for path in (f"{folder.rpartition('.')[0]}/vendor", f"{folder}/nothing"):
        assert error_of(lambda path=path: host.read_file(path)) == "ENOENT"  # type: ignore[misc]


def test_one_read_of_a_file_that_the_kernel_makes_up_ends_after_a_page() -> None:
    with opened("/proc/self/maps", os.O_RDONLY) as descriptor:
        first, second = os.read(descriptor, 1 << 20), os.read(descriptor, 1 << 20)
    assert len(first) <= os.sysconf("SC_PAGE_SIZE") and second


@needs_root
def test_a_cgroup_reports_that_it_is_frozen_and_its_processes_can_still_be_killed() -> None:
    folders = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
    root = next((folder for folder in folders if (folder / "cgroup.controllers").is_file()), None)
    if root is None:
        pytest.skip("no cgroup v2 is mounted")
    cgroup = root / f"gameday-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    host, events = RealHost(), f"{cgroup}/cgroup.events"
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        (cgroup / "cgroup.procs").write_text(str(sleeper.pid))
        host.write_file(f"{cgroup}/cgroup.freeze", "1")
        until(lambda: host.read_file(events) == "populated 1\nfrozen 1\n")
        sleeper.kill()
        assert sleeper.wait(30) == -9
        until(lambda: host.read_file(events).startswith("populated 0\n"))
    finally:
        sleeper.kill()
        sleeper.wait()
        until(lambda: not error_of(cgroup.rmdir))


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Processes


def test_a_process_that_ends_during_a_look_at_it_gives_two_kinds_of_errors() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    folder = f"/proc/{sleeper.pid}"
    with opened(folder, os.O_RDONLY) as held, opened(f"{folder}/cmdline", os.O_RDONLY) as command:
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert Path(f"{folder}/cmdline").read_bytes() == b""  # it is a zombie
        sleeper.wait()
        assert error_of(lambda: os.read(command, 100)) == "ESRCH"
        assert error_of(lambda: os.open("cmdline", os.O_RDONLY, dir_fd=held)) == "ESRCH"
        assert error_of(lambda: os.open(folder, os.O_RDONLY)) == "ENOENT"


@needs_root
def test_a_process_with_more_rights_than_root_is_named_as_not_seen(tmp_path: Path) -> None:
    if error_of(Path("/proc/1/fd/0").readlink) != "EACCES":
        pytest.skip("root may read the open files of process 1")
    information = tmp_path / "driver/nvidia/gpus/0000:4e:00.0/information"
    information.parent.mkdir(parents=True)
    information.write_text("Device Minor: 3\n")
    (tmp_path / "1").symlink_to("/proc/1")
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    (unseen,) = device_users(tmp_path, "0000:4e:00")
    assert (unseen.pid, unseen.seen) == (1, False)


@needs_root
def test_programs_run_where_root_may_not_look_at_the_namespaces_of_process_1() -> None:
    if error_of(Path("/proc/1/ns/mnt").readlink) != "EACCES":
        pytest.skip("root may look at the namespaces of process 1")
    assert RealHost(environment={}).run(["echo", "here"], 10).stdout == "here\n"
    with pytest.raises(HostError, match="privileged and with hostPID"):
        RealHost(environment={"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).run(["echo", "here"], 10)


@needs_root
def test_process_1_of_a_container_gets_no_signal_that_it_does_not_handle() -> None:
    program = ("sh", "-c", "kill -TERM $$; echo lives")
    contained = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", *program], capture_output=True, check=False
    )
    if contained.returncode and contained.stderr:
        pytest.skip(contained.stderr.decode())
    assert contained.stdout == b"lives\n"
    assert subprocess.run(program, check=False).returncode == -15
