"""Figures of a simulation beside those of the arithmetic, and work in a process of its own whose cost is counted."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Generic, ParamSpec, TypeVar

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


@dataclass(frozen=True)
class Figure:
    """A row of the table; `on_paper` is the arithmetic of docs/scale.md, empty where it has none."""

    what: str
    on_paper: str
    simulated: str


@dataclass(frozen=True)
class Cost(Generic[Answer]):
    """The answer of a piece of work, and what it took."""

    answer: Answer
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Resident memory at most, of the whole process."""

    def __str__(self) -> str:
        return f"{self.wall_s:.1f} s, {self.cpu_s:.1f} s of CPU, {self.peak_mib:,.0f} MiB at most"


def in_a_child(work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs) -> Cost[Answer]:
    """Call a function in a process of its own. The caller has to be small: a child's peak counts from its size on."""
    fork = get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    child = fork.Process(target=_counted, args=(theirs, work, args, named))
    child.start()
    theirs.close()
    try:
        cost: Cost[Answer] = ours.recv()
    except EOFError:
        raise RuntimeError(f"{work.__name__} ended without an answer: see above") from None
    finally:
        child.join()
    return cost


def _counted(answers: Connection, work: Callable[..., object], args: tuple[object, ...], named: object) -> None:
    began = time.monotonic()
    answer = work(*args, **named)  # type: ignore[arg-type]
    used = resource.getrusage(resource.RUSAGE_SELF)
    took = time.monotonic() - began
    answers.send(Cost(answer, took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024))
