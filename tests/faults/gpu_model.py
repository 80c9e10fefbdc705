"""The model host, made to lie: programs and files that say yes and do nothing, as a broken driver would."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes import in_process


class ModelHost(in_process.ModelHost):
    """`ignore`: programs' options, and ends of paths, that have no effect; `ran`: every program, in order."""

    def __init__(self, gpus: int = 4) -> None:
        super().__init__(gpus)
        self.ignore: set[str] = set()
        self.ran: list[tuple[str, ...]] = []

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        self.ran.append(tuple(argv))
        if self.ignore & set(argv):
            return ProgramResult(argv=tuple(argv), exit_status=0, stdout="All done.\n", stderr="")
        return super().run(argv, timeout_s)

    def write_file(self, path: str, content: str) -> None:
        if not any(path.endswith(end) for end in self.ignore):
            super().write_file(path, content)
