"""A receiver of OpenTelemetry traces on loopback, which keeps what it was sent and answers as it was told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Receiver:
    """Gives the queued answers in turn, the last of them for ever."""

    url: str = ""
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, b"")])
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)


@pytest.fixture
def trace_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            made.paths.append(self.path)
            made.headers.append({name.lower(): value for name, value in self.headers.items()})
            made.requests.append(
                ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            )
            status, body = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            self.send_response(status)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield made
    server.shutdown()
    server.server_close()
    thread.join(60)
