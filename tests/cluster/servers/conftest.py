"""Real Prometheus and Alertmanager on free loopback ports, in front of a metrics endpoint the tests set."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from gameday_rehearsal.observability import (
    Program,
    ScrapeJob,
    alertmanager_program,
    prometheus_program,
)
from tests.support.ports import free_ports

T = TypeVar("T")

RULES = """\
groups:
  - name: test
    interval: 200ms
    rules:
      - alert: Broken
        expr: label_replace(max_over_time(broken[1s]) > 0, "node", "$1", "Hostname", "(.+)")
        for: 1s
        labels: {severity: critical}
        annotations: {summary: "{{ $labels.node }} is broken"}
      - alert: Quiet
        expr: broken > 1000
"""


def eventually(read: Callable[[], T], wanted: Callable[[T], bool], within_s: float = 60) -> T:
    """Return the first reading that is as wanted; fail with the last one when there is none in time."""
    end = time.monotonic() + within_s
    while True:
        value = read()
        if wanted(value):
            return value
        assert time.monotonic() < end, f"not so within {within_s} s; last seen: {value!r}"
        time.sleep(0.05)


@dataclass
class Answer:
    """An answer of the stub server."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    delay: threading.Event | None = None
    """Time before the head is sent."""
    hangs_up: bool = False
    """The connection ends after `body`, whatever Content-Length `headers` promised."""


class Stub:
    """A server that gives the queued answers in turn, the last of them for ever, and records the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = [Answer()]
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                stub.requests.append((self.command, self.path, dict(self.headers)))
                answer = stub.answers.pop(0) if len(stub.answers) > 1 else stub.answers[0]
                if answer.delay:
                    answer.delay.wait(30)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if "Content-Length" not in answer.headers:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                with suppress(BrokenPipeError):  # a test may have given up on it
                    self.wfile.write(answer.body)
                self.close_connection = answer.hangs_up

            do_POST = do_GET

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        self.url = f"http://{self.address}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(60)


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.close()


@pytest.fixture(scope="module")
def exporter() -> Iterator[Stub]:
    """The server that Prometheus scrapes."""
    server = Stub()
    yield server
    server.close()


@dataclass(frozen=True)
class Observability:
    prometheus_url: str
    alertmanager_url: str


@pytest.fixture(scope="module")
def observability(exporter: Stub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observability]:
    folder = tmp_path_factory.mktemp("observability")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    ports = free_ports(2)
    programs = (
        alertmanager_program(folder, port=ports[1]),
        prometheus_program(
            folder,
            port=ports[0],
            nodes=1,
            jobs=[ScrapeJob("dcgm-exporter", exporter.address, 0.2)],
            alertmanager_port=ports[1],
            rule_files=[rules],
        ),
    )
    running: list[subprocess.Popen[bytes]] = []
    try:
        for program in programs:
            running.append(_start(program))
        yield Observability(f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}")
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


def _start(program: Program) -> subprocess.Popen[bytes]:
    with Path(program.log_file).open("wb") as log:
        process = subprocess.Popen(program.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def ready() -> bool:
        assert process.poll() is None, program.log_file.read_text()
        try:
            return httpx.get(program.ready_url, trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    eventually(ready, bool)
    return process
