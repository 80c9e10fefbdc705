"""A real DCGM for the table of exchanges: programs on PATH, and a host engine that the user names."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass

import httpx

from tests.rehearsal.dcgm.table import Answer

_TIMEOUT_S = 30.0
ENGINE, EXPORTER = "GAMEDAY_DCGM", "GAMEDAY_DCGM_EXPORTER"
"""The variables that name the host engine as `host:port`, and its exporter's page as a URL, if there is one."""


class Unplayable(Exception):
    """The user's DCGM may not do this: it would disturb others, or there is no exporter."""


@dataclass(frozen=True)
class RealNode:
    """A host engine of the user's, and its exporter. It is neither restarted, nor is its kernel log written."""

    host: str
    exporter: str = ""

    def dcgmi(self, *arguments: str) -> Answer:
        subsystem, *rest = arguments or ("",)
        argv = ["dcgmi", subsystem, "--host", self.host, *rest] if subsystem else ["dcgmi"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        stdout = done.stdout.replace(self.host, "localhost")
        return Answer(stdout, done.stderr, done.returncode)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def kernel_log(self, gpu: int, text: str) -> None:
        raise Unplayable("a user's kernel log is left alone")

    def engine(self, verb: str) -> None:
        raise Unplayable("a user's host engine is left alone")

    def lose(self, gpu: int) -> None:
        raise Unplayable("a user's GPU is left alone")

    def scrape(self) -> str:
        if not self.exporter:
            raise Unplayable(f"no exporter: {EXPORTER}=http://host:9400/metrics names it")
        return httpx.get(self.exporter, timeout=_TIMEOUT_S, trust_env=False).raise_for_status().text


def the_users_node() -> RealNode | None:
    """Return the DCGM that the user names; None if there is none."""
    host = os.environ.get(ENGINE)
    return RealNode(host, os.environ.get(EXPORTER, "")) if host else None
