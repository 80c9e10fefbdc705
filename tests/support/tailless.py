"""A proxy before a log store that serves queries and not the tail, in the ways in which proxies fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx


class Proxy(ThreadingHTTPServer):
    """Queries go through to `upstream`; a tail is answered with `status`, or cut off where that is None."""

    daemon_threads = True
    upstream: str
    status: int | None = 502
    body = b"<html>Sign in</html>"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        if not self.path.startswith("/loki/api/v1/tail"):
            answer = httpx.get(self.server.upstream + self.path)
            self._answer(answer.status_code, answer.content)
        elif self.server.status is not None:
            self._answer(self.server.status, self.server.body)
        self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def tailless(upstream: str, status: int | None) -> Iterator[Proxy]:
    """Run a proxy before a log store."""
    proxy = Proxy(("127.0.0.1", 0), _Handler)
    proxy.upstream, proxy.status = upstream, status
    thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
