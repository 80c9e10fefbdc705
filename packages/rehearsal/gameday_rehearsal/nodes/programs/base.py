"""The parts that all virtual programs share: their result, and options with the real tool's complaints."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Printed:
    """A program's end, with `stdout` and `stderr` like the real one's."""

    stdout: str = ""
    stderr: str = ""
    exit_status: int = 0


class Refused(Exception):
    """Ends the program early with this result."""

    def __init__(self, printed: Printed) -> None:
        super().__init__(printed.stderr or printed.stdout)
        self.printed = printed


class Options(argparse.ArgumentParser):
    """An argparse that neither prints nor exits: a bad option is `Refused` with the program's own exit status."""

    def __init__(self, program: str, bad_usage: int) -> None:
        super().__init__(prog=program, add_help=False, allow_abbrev=False)
        self._bad_usage = bad_usage

    def error(self, message: str) -> NoReturn:
        raise Refused(Printed(stderr=f"{self.prog}: {message}\n", exit_status=self._bad_usage))
