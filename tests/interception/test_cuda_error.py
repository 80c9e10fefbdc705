"""The interception library in real processes, under the real loader, in front of a fake driver."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.values.cuda_switch import (
    CudaError,
    CudaSwitch,
    felt_line,
    parse_switch,
    ready_line,
    was_felt,
    why_not_loaded,
)
from tests.rehearsal.processes import until
from tests.support.compiler import compile_c
from tests.support.cuda_job import SOURCE, CudaJob, CudaPrograms, compile_cuda, cuda_job

pytestmark = pytest.mark.slow
WAYS = ("linked", "dlsym", "asks", "asks-old")
"""How a program comes by the driver's functions."""
MARK = "5f0c9a41d2e7b830"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> CudaPrograms:
    return compile_cuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def switch_file(tmp_path: Path) -> Path:
    file = tmp_path / "cuda-error"
    file.write_text("")
    return file


@pytest.fixture
def start(programs: CudaPrograms, switch_file: Path, tmp_path: Path) -> Iterator[Callable[..., CudaJob]]:
    with ExitStack() as stack:

        def begin(how: str, preload: str = str(programs.library), file: Path = switch_file) -> CudaJob:
            environment = {"LD_PRELOAD": preload, "GAMEDAY_CUDA_SWITCH": str(file)}
            folder = tmp_path / f"job-{len(list(tmp_path.glob('job-*')))}"
            folder.mkdir()
            job = stack.enter_context(cuda_job(programs, how, environment, folder))
            job.tell("free")  # it is loaded: a value that comes from now on is not one that was there before
            return job

        yield begin


def value(*, error: CudaError = CudaError.LAUNCH_FAILED, for_new: bool = False, minutes: float = 5) -> CudaSwitch:
    return CudaSwitch(error.code, datetime.now(UTC) + timedelta(minutes=minutes), for_new, MARK)


def write(file: Path, text: object) -> None:
    """Put a value in as the kubelet does: a reader sees the old one or the new one."""
    beside = file.with_suffix(".new")
    beside.write_text(str(text))
    beside.replace(file)


def fails(job: CudaJob, code: int) -> None:
    """Let the job call until it fails: a process looks at its switch five times a second."""
    until(lambda: job.tell("call") == str(code), 30, "calls that all fail")


@pytest.mark.parametrize("way", WAYS)
def test_every_call_fails_from_the_value_on_and_after_it_was_taken_away(
    start: Callable[..., CudaJob], switch_file: Path, way: str
) -> None:
    job = start(way)
    assert job.tell("call") == "0"
    assert job.said == [ready_line(str(switch_file), job.pid)]
    switch = value()
    write(switch_file, switch)
    fails(job, 719)
    assert job.said[1:] == [felt_line(switch, job.pid)]
    assert job.tell("threads") == " ".join(["719"] * 8)
    assert job.tell("free") == "0 0 1"
    write(switch_file, "")
    assert job.tell("call") == "719"
    assert was_felt(job.said, MARK)
    assert not was_felt(job.said, MARK[::-1])
    assert not why_not_loaded(job.said)


@pytest.mark.parametrize("for_new", [False, True])
def test_a_process_that_starts_later_fails_only_where_the_value_says_so(
    start: Callable[..., CudaJob], switch_file: Path, for_new: bool
) -> None:
    before = start("asks")
    assert before.tell("call") == "0"
    write(switch_file, value(for_new=for_new))
    fails(before, 719)
    later = start("asks")
    # Its first call looks: that of a process with no value there, too.
    assert later.tell("call") == ("719" if for_new else "0")
    assert was_felt(later.said, MARK) is for_new
    write(switch_file, "")
    assert start("asks").tell("call") == "0"


def test_a_forked_child_is_a_process_that_starts_later(start: Callable[..., CudaJob], switch_file: Path) -> None:
    job = start("asks")
    write(switch_file, value())
    fails(job, 719)
    assert job.tell("fork") == "0"
    write(switch_file, value(for_new=True))
    assert job.tell("fork") == "719"
    assert job.tell("call") == "719"


def test_another_error_does_not_take_the_place_of_the_first(start: Callable[..., CudaJob], switch_file: Path) -> None:
    job = start("dlsym")
    write(switch_file, value(error=CudaError.ECC_UNCORRECTABLE))
    fails(job, 214)
    write(switch_file, value(error=CudaError.ILLEGAL_ADDRESS, for_new=True))
    assert job.tell("call") == "214"


def test_many_threads_begin_to_fail_together_and_say_so_once(start: Callable[..., CudaJob], switch_file: Path) -> None:
    job = start("asks")
    write(switch_file, value())
    until(lambda: job.tell("threads") == " ".join(["719"] * 8), 30, "threads that all fail")
    assert len([line for line in job.said if "from now on" in line]) == 1


@pytest.mark.parametrize("way", WAYS)
def test_without_the_library_the_same_value_does_nothing(
    start: Callable[..., CudaJob], switch_file: Path, way: str
) -> None:
    write(switch_file, value(for_new=True))
    job = start(way, preload="")
    assert job.tell("call") == "0"
    assert "no process in it has said" in why_not_loaded(job.said)


def test_a_library_that_the_loader_refuses_is_told_by_its_line(start: Callable[..., CudaJob], tmp_path: Path) -> None:
    broken = tmp_path / "libgameday-cuda-error.so"
    broken.write_bytes(b"not a library")
    for preload in (broken, tmp_path / "missing" / "libgameday-cuda-error.so"):
        job = start("asks", preload=str(preload))
        assert job.tell("call") == "0"
        assert "could not load libgameday-cuda-error.so: ld.so: object" in why_not_loaded(job.said)


def test_a_library_without_its_file_is_loaded_and_not_ready(
    start: Callable[..., CudaJob], tmp_path: Path, programs: CudaPrograms
) -> None:
    job = start("asks", file=tmp_path / "missing")
    assert job.tell("call") == "0"
    assert "not ready: cannot read" in why_not_loaded(job.said)
    with cuda_job(programs, "dlsym", {"LD_PRELOAD": str(programs.library)}, tmp_path) as job:
        assert job.tell("call") == "0"
        assert "GAMEDAY_CUDA_SWITCH names no file" in why_not_loaded(job.said)


def test_a_program_without_cuda_finds_none_and_reads_nothing_of_us(start: Callable[..., CudaJob]) -> None:
    job = start("none")
    assert (job.tell("anything"), job.said) == ("0", [])


def test_other_preloaded_libraries_still_find_what_comes_after_them(programs: CudaPrograms) -> None:
    preload = f"{programs.library} {programs.preloaded_too}"
    argv = [sys.executable, "-c", "import os; print(os.getppid())"]
    done = subprocess.run(argv, env={"LD_PRELOAD": preload}, capture_output=True, text=True, timeout=30, check=True)
    assert (done.stdout, done.stderr) == ("4711\n", "")


NOW = 1_795_000_000
VALUES: list[tuple[str, tuple[int, int, bool] | None]] = [
    (f"v1 719 {NOW + 60} running {MARK}", (719, NOW + 60, False)),
    (f"v1 214 {NOW + 1} all {MARK}\n", (214, NOW + 1, True)),
    (f"v1 1 {NOW + 3600} all {MARK}", (1, NOW + 3600, True)),
    (f"v1 999 {NOW + 60} running {MARK}", (999, NOW + 60, False)),
    ("", None),
    ("\n", None),
    (f"v1 719 {NOW} running {MARK}", None),
    (f"v1 719 {NOW - 1} running {MARK}", None),
    (f"v1 719 {NOW + 3601} running {MARK}", None),
    (f"v1 719 {'9' * 11} running {MARK}", None),
    (f"v1 719 {'9' * 40} running {MARK}", None),
    (f"v2 719 {NOW + 60} running {MARK}", None),
    (f"v1 0 {NOW + 60} running {MARK}", None),
    (f"v1 07 {NOW + 60} running {MARK}", None),
    (f"v1 1000 {NOW + 60} running {MARK}", None),
    (f"v1 -1 {NOW + 60} running {MARK}", None),
    (f"v1 +7 {NOW + 60} running {MARK}", None),
    (f"v1 719 {NOW + 60} none {MARK}", None),
    (f"v1 719 {NOW + 60} runningall {MARK}", None),
    (f"v1 719 {NOW + 60} running {MARK[:-1]}", None),
    (f"v1 719 {NOW + 60} running {MARK}0", None),
    (f"v1 719 {NOW + 60} running {MARK.upper()}", None),
    (f"v1 719 {NOW + 60} running {MARK} ", None),
    (f"v1 719 {NOW + 60} running {MARK}\n\n", None),
    (f"v1 719 {NOW + 60} running {MARK}\nmore", None),
    (f"v1 719  {NOW + 60} running {MARK}", None),
    (f" v1 719 {NOW + 60} running {MARK}", None),
    (f"v1 719 {NOW + 60} running {MARK}\0", None),
    (f"v1 ٧ {NOW + 60} running {MARK}", None),
    (f"v1 719 {NOW + 60} running {MARK}" + " " * 200, None),
]

_PARSES = """
#include "%s"
VISIBLE int parses(const char *path, long long now, long long *out) {
    value found;
    switch_file = path;
    if (!read_switch_at(&found, now))
        return 0;
    out[0] = found.code, out[1] = found.until, out[2] = found.all;
    return 1;
}
"""


@pytest.fixture(scope="module")
def parses(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], tuple[int, int, bool] | None]:
    """Return what the library itself makes of a file at the time of the table."""
    folder = tmp_path_factory.mktemp("parser")
    source = folder / "parser.c"
    source.write_text(_PARSES % SOURCE)
    library = ctypes.CDLL(str(compile_c(source, folder / "parser.so", "-shared", "-fPIC", "-ldl", "-pthread")))

    def parse(file: Path) -> tuple[int, int, bool] | None:
        out = (ctypes.c_longlong * 3)()
        found = library.parses(str(file).encode(), ctypes.c_longlong(NOW), out)
        return (out[0], out[1], bool(out[2])) if found else None

    return parse


@pytest.mark.parametrize(("text", "meant"), VALUES, ids=[json.dumps(text)[:60] for text, _ in VALUES])
def test_the_library_and_the_agent_read_a_value_alike(
    parses: Callable[[Path], tuple[int, int, bool] | None],
    switch_file: Path,
    text: str,
    meant: tuple[int, int, bool] | None,
) -> None:
    switch_file.write_bytes(text.encode())
    assert parses(switch_file) == meant
    found = parse_switch(text, datetime.fromtimestamp(NOW, UTC))
    assert (found and (found.code, int(found.until.timestamp()), found.for_new_processes)) == meant
    if found:
        assert str(found) == text.rstrip("\n")
