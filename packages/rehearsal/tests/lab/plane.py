"""A real control plane for tests; those that need it skip where its programs are missing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gameday.errors import ProgramMissingError
from gameday_rehearsal.lab.programs import (
    find_api_server,
    find_balancer,
    find_programs,
    find_topology_scheduler,
)
from gameday_rehearsal.lab.settings import STOCK, LabSettings

_ENDS_WITHIN_S = 30


def need_programs(*, balancer: bool = False, topology: bool = False, releases: Sequence[str | None] = ()) -> None:
    """Skip the test, saying what to do, where the lab's programs are missing."""
    try:
        programs = find_programs()
        if balancer:
            find_balancer()
        for release in filter(None, releases):
            find_api_server(release)
        if topology:
            find_topology_scheduler(programs["kube-apiserver"])
    except ProgramMissingError as missing:
        pytest.skip(str(missing))


class Part:
    """One of our own long-running programs, from its ready line to its end."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        argv = [sys.executable, "-m", module, *arguments]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.end()
            raise AssertionError(f"{module} ended before it was ready: {log.read_text(errors='replace')[-2000:]}")
        self.ready: dict[str, Any] = json.loads(line)

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(_ENDS_WITHIN_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.process.stdout:
                self.process.stdout.close()


class Plane(Part):
    """`python -m gameday_rehearsal.lab` in `folder`."""

    def __init__(self, folder: Path, settings: LabSettings = STOCK) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        options = ("--data-dir", str(folder), "--settings", settings.model_dump_json())
        super().__init__("gameday_rehearsal.lab", *options, log=folder / "lab.log")
        self.url: str = self.ready["url"]
        self.admin = folder / "admin.kubeconfig"

    def components(self) -> dict[str, dict[str, Any]]:
        """Name → pid, program, restarts, log, ready_url."""
        found: dict[str, dict[str, Any]] = json.loads((self.folder / "components.json").read_text())
        return found

    def kubectl(self, *arguments: str, check: bool = True, stdin: str | None = None) -> str:
        """Run kubectl as the administrator and return its stdout."""
        done = subprocess.run(
            ["kubectl", *arguments],
            env={**os.environ, "KUBECONFIG": str(self.admin)},
            input=stdin or "",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def running(folder: Path, settings: LabSettings = STOCK) -> Iterator[Plane]:
    """A control plane of this block's own."""
    releases = [settings.api_server_release]
    need_programs(balancer=settings.has_balancer, topology=settings.topology, releases=releases)
    with contextlib.ExitStack() as ending:
        plane = Plane(folder, settings)
        ending.callback(plane.end)
        yield plane
