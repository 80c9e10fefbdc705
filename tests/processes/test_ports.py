from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gameday.errors import ChildError, StartError
from gameday.processes.children import Child
from gameday.processes.ports import PORT_TAKEN, HeldPorts, start_on_free_ports
from gameday.processes.prefect_server import await_prefect, server_argv
from gameday_rehearsal.observability import alertmanager_program, prometheus_program
from tests.rehearsal.processes import listening, until


def test_a_held_port_serves_only_a_program_that_was_given_its_number() -> None:
    with HeldPorts(1) as held:
        (port,) = held.numbers
        with socket.socket() as stranger, pytest.raises(OSError, match="Address already in use"):
            stranger.bind(("127.0.0.1", port))
        with listening(port):
            socket.create_connection(("127.0.0.1", port)).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with listening(port):  # as after a crash
            socket.create_connection(("127.0.0.1", port)).close()


def test_two_commands_that_want_the_same_port_hold_different_ones() -> None:
    """Linux alone would give it to both: neither listens yet."""
    with HeldPorts(1) as other:
        (wanted,) = other.numbers
    with HeldPorts(1, wanted) as first, HeldPorts(1, wanted) as second:
        assert first.numbers == (wanted,)
        assert second.numbers != (wanted,)
    with HeldPorts(1, wanted) as again:
        assert again.numbers == (wanted,)


def test_released_ports_are_free_again() -> None:
    with HeldPorts(2) as held:
        first, second = held.numbers
        assert first != second
    with socket.socket() as anybody:
        anybody.bind(("127.0.0.1", first))


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EADDRINUSE, r"\(Address already in use\): `ss -tanp` .* `sudo sysctl net.ipv4.ip_local_port_range"),
        (errno.EMFILE, r"\(Too many open files\): .* `ulimit -n 4096`"),
        (errno.EPERM, r"\(Operation not permitted\): see whether this process may open sockets"),
    ],
)
def test_where_no_port_can_be_had_each_cause_has_its_remedy(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(StartError, match=rf"^no port of 127.0.0.1 can be had {said}"):
        HeldPorts(1)


def test_a_port_that_a_stranger_listens_on_is_not_claimed() -> None:
    with HeldPorts(1) as other:
        (wanted,) = other.numbers
    with ExitStack() as stranger:
        stranger.enter_context(listening(wanted))
        with HeldPorts(1, wanted) as held:
            assert held.numbers != (wanted,)
            stranger.close()
            with HeldPorts(1, wanted) as second:
                assert second.numbers == (wanted,)


def test_another_clusters_prefect_on_our_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    """It answers while ours has not yet found out that its port is lost."""

    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_theirs = self.headers["Authorization"] == f"Basic {b64encode(b'gameday:theirs').decode()}"
            self.send_response(200 if is_theirs or self.path == "/api/health" else 401)
            self.end_headers()

    ours = Child("prefect", ["sleep", "0.3"], tmp_path / "log", says_ready=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever).start()
        ours.start()
        with pytest.raises(ChildError, match="prefect ended before it was ready"):
            await_prefect(ours, f"http://127.0.0.1:{server.server_port}", "gameday:ours")
        server.shutdown()


def _prometheus(folder: Path, port: int) -> Child:
    program = prometheus_program(folder, port=port, nodes=1, jobs=(), alertmanager_port=9)
    return Child("prometheus", program.argv, folder / "log", says_ready=False)


def _alertmanager(folder: Path, port: int) -> Child:
    program = alertmanager_program(folder, port=port)
    return Child("alertmanager", program.argv, folder / "log", says_ready=False)


def _prefect(folder: Path, port: int) -> Child:
    """Prefect's own application imports and migrates for seconds before uvicorn looks at the port."""
    argv = ["builtins:object" if ":create_app" in word else word for word in server_argv(port)]
    return Child("prefect", argv, folder / "log", says_ready=False)


def _node_health(folder: Path, port: int) -> Child:
    argv = [sys.executable, "-c", f"import prometheus_client as p; p.start_http_server({port}, '127.0.0.1')"]
    return Child("metrics", argv, folder / "log", says_ready=False)


def _apiserver(folder: Path, port: int) -> Child:
    argv = [sys.executable, "-m", "kubesim.apiserver", "--port", str(port), "--data-dir", str(folder / "data")]
    return Child("apiserver", argv, folder / "log", says_ready=False)


def _logstore(folder: Path, port: int) -> Child:
    argv = [sys.executable, "-m", "gameday_rehearsal.logstore", "--port", str(port)]
    return Child("logstore", argv, folder / "log", says_ready=False)


@pytest.mark.slow
@pytest.mark.parametrize("make", [_prometheus, _alertmanager, _prefect, _node_health, _apiserver, _logstore])
def test_each_program_says_that_its_port_is_taken(make: Callable[[Path, int], Child], tmp_path: Path) -> None:
    with HeldPorts(1) as held, listening(held.numbers[0]):
        child = make(tmp_path, held.numbers[0])
        child.start()
        try:
            until(lambda: not child.alive, 110, "it ends")
            assert child.wrote(PORT_TAKEN), child.log.read_text()
        finally:
            child.end()


class Starts:
    """Starts that fail a given number of times."""

    def __init__(self, failures: int, log: str) -> None:
        self.calls: list[str] = []
        self._failures = failures
        self._log = log

    def start(self) -> None:
        self.calls.append("start")
        if self.calls.count("start") <= self._failures:
            raise ChildError("prometheus ended before it was ready")

    def wrote(self, words: str) -> bool:
        return words in self._log

    def end(self) -> None:
        self.calls.append("end")


TAKEN = "listen tcp 127.0.0.1:4711: bind: address already in use"


def test_a_taken_port_leads_to_a_new_start() -> None:
    starts = Starts(2, TAKEN)
    start_on_free_ports(starts.start, starts.wrote, starts.end)
    assert starts.calls == ["start", "end", "start", "end", "start"]


def test_the_third_taken_port_is_an_error() -> None:
    starts = Starts(3, TAKEN)
    with pytest.raises(ChildError):
        start_on_free_ports(starts.start, starts.wrote, starts.end)
    assert starts.calls == ["start", "end", "start", "end", "start"]


def test_another_failure_is_an_error_the_first_time() -> None:
    starts = Starts(1, "no such file")
    with pytest.raises(ChildError):
        start_on_free_ports(starts.start, starts.wrote, starts.end)
    assert starts.calls == ["start"]
