"""Programs that use the fake driver `fake_cuda.c`, with our interception library in front of it or without."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gameday.shipped import shipped
from gameday.values.cuda_switch import LIBRARY
from tests.support.compiler import compile_c

SOURCE = shipped("deploy") / "cuda-error" / "cuda_error.c"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class CudaPrograms:
    """What was compiled for these tests."""

    library: Path
    """The interception library."""
    driver: Path
    """The fake libcuda.so.1."""
    job: Path
    linked_job: Path
    """The same program, linked with the driver."""
    preloaded_too: Path


def compile_cuda(folder: Path) -> CudaPrograms:
    """Compile everything into a folder."""
    # What the library needs of -O2, in a third of the time.
    shared = ("-O1", "-foptimize-sibling-calls", "-shared", "-fPIC")
    strict = ("-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-ldl", "-pthread")
    library = compile_c(SOURCE, folder / LIBRARY, *shared, *strict)
    driver = compile_c(_HERE / "fake_cuda.c", folder / "libcuda.so.1", "-Wl,-soname,libcuda.so.1", *shared)
    job = compile_c(_HERE / "cuda_job.c", folder / "cuda_job", "-pthread")
    linked = compile_c(_HERE / "cuda_job.c", folder / "linked_job", "-DLINKED", "-pthread", str(driver))
    return CudaPrograms(library, driver, job, linked, compile_c(_HERE / "preloaded_too.c", folder / "too.so", *shared))


class CudaJob:
    """A running program, which makes CUDA calls when it is told to."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def tell(self, word: str) -> str:
        """Let it do what the word says, see `cuda_job.c`, and return what it prints."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().rstrip("\n")

    @property
    def said(self) -> list[str]:
        """The lines on its standard error so far."""
        return self._errors.read_text(encoding="utf-8").splitlines()

    @property
    def pid(self) -> int:
        return self._process.pid


@contextmanager
def cuda_job(programs: CudaPrograms, how: str, environment: Mapping[str, str], folder: Path) -> Iterator[CudaJob]:
    """Start the program with these variables beside the way to the fake driver, and end it after the block."""
    program = programs.linked_job if how == "linked" else programs.job
    variables = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(programs.driver.parent), **environment}
    errors = folder / f"{how}.stderr"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [program, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=variables
        )
    try:
        yield CudaJob(process, errors)
    finally:
        process.kill()
        process.communicate()
