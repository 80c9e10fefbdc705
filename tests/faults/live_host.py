"""A model host whose programs run on the test's own loop, so that what they schedule happens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.programs.run import run_program
from tests.faults.gpu_model import ModelHost


class LiveHost(ModelHost):
    """Its programs run on the test's own loop, so that what they schedule happens."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.get_running_loop()

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        running: Coroutine[Any, Any, ProgramResult] = run_program(self.machine, list(argv), timeout_s)
        return asyncio.run_coroutine_threadsafe(running, self.loop).result(10)


async def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """A fault's method beside the loop that its programs need."""
    return await asyncio.to_thread(method, *arguments)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)
