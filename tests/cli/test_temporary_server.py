"""`gameday run` where nobody names a Prefect server: nothing is left, neither at its end nor after `kill -9`."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gameday.exit_codes import ExitCode
from tests.rehearsal.processes import until

pytestmark = pytest.mark.slow
_PATIENCE_S = 120.0
"""Ends a test whose condition never comes."""


@dataclass
class Started:
    """A `gameday run`, a user's empty home, and a cluster that takes connections and answers none."""

    process: subprocess.Popen[bytes]
    home: Path
    scratch: Path
    cluster: socket.socket

    def servers(self) -> list[int]:
        """Return the living processes with this run's environment, apart from the run."""
        mark = f"TMPDIR={self.scratch}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != self.process.pid:
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:  # it ended, or is somebody else's
                    continue
        return found

    def await_flow(self) -> None:
        """Wait until the flow asks the cluster: Prefect's server has answered by then."""

        def asked() -> bool:
            assert self.process.poll() is None, self.process.communicate()[1].decode()
            return bool(select.select([self.cluster], [], [], 0)[0])

        until(asked, _PATIENCE_S, "the run to ask its cluster")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    home, scratch = tmp_path / "home", tmp_path / "scratch"
    for folder in (home, scratch):
        folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        url = f"http://127.0.0.1:{cluster.getsockname()[1]}"
        (tmp_path / "kubeconfig").write_text(
            f"apiVersion: v1\nkind: Config\ncurrent-context: it\nclusters: [{{name: it, cluster: {{server: {url}}}}}]\n"
            "users: [{name: it, user: {token: t}}]\ncontexts: [{name: it, context: {cluster: it, user: it}}]\n"
        )
        (tmp_path / "profile.yaml").write_text(
            f"name: silent\nkubeconfig: {tmp_path}/kubeconfig\nprometheus: {{url: {url}}}\n"
            f"alertmanager: {{url: {url}}}\nloki: {{url: {url}}}\n"
        )
        # The migrated empty database of an earlier start is a cache, and no trace of this run.
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gameday.cli",
                "run",
                "xid-95-uncontained-ecc",
                "--profile",
                str(tmp_path / "profile.yaml"),
            ],
            cwd=tmp_path,
            env={**inherited, "HOME": str(home), "TMPDIR": str(scratch), "XDG_CACHE_HOME": cache},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            yield Started(process, home, scratch, cluster)
        finally:
            process.kill()
            process.communicate()


def files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if not path.is_dir()]


def test_a_run_that_ends_leaves_no_process_and_no_file(started: Started) -> None:
    started.await_flow()
    assert started.servers()
    started.cluster.close()  # the cluster refuses from now on
    _, said = started.process.communicate(timeout=_PATIENCE_S)
    assert started.process.returncode == ExitCode.REFUSED, said.decode()
    assert started.servers() == []
    assert files(started.home) == []
    assert list(started.scratch.iterdir()) == []


def test_a_run_that_is_killed_leaves_no_process_and_no_file(started: Started) -> None:
    started.await_flow()
    assert started.servers()
    started.process.send_signal(signal.SIGKILL)
    started.process.wait(_PATIENCE_S)
    until(lambda: not started.servers(), _PATIENCE_S, "Prefect's server to die with the run")
    assert files(started.home) == []
