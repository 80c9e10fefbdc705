"""A stand-in of the rehearsal's page `/guests`: programs and output as a test sets them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_PAGE_BYTES = 64


class GuestServer:
    """The guest's programs; a test changes them while the server answers."""

    def __init__(self) -> None:
        self.programs: dict[str, dict[str, Any]] = {}
        self.output: dict[str, str] = {}
        self.url = ""

    def runs(self, instance: str, started: datetime, **changes: Any) -> None:
        """Let a program run, or be as `changes` say."""
        running: dict[str, Any] = {"state": "running", "pid": 1, "started": started.isoformat(), "starts": 1}
        rest = {"ended_by_itself": 0, "last_exit": None, "flooded": False, "rss_bytes": 1, "cpu_s": 0.1, "log": "x"}
        self.programs[instance] = {**running, **rest, **changes}

    def says(self, instance: str, at: datetime, line: str) -> None:
        """Let a program write a line."""
        self.output[instance] = self.output.get(instance, "") + f"{at.isoformat()} {line}\n"

    def answer(self, path: str) -> tuple[bytes, int] | None:
        """Return the body and the next byte for a path; None where there is nothing."""
        where, query = urlsplit(path).path.strip("/").split("/"), parse_qs(urlsplit(path).query)
        if where == ["guests"]:
            return json.dumps({"name": "npd", "version": "v1", "instances": self.programs}).encode(), 0
        if len(where) == 3 and where[1] in self.programs and where[2] == "output":
            start = int(query["from"][0])
            page = self.output.get(where[1], "").encode()[start : start + _PAGE_BYTES]
            return page, start + len(page)
        return None


@contextmanager
def guest_server() -> Iterator[GuestServer]:
    """Serve a guest without programs until the block ends."""
    guest = GuestServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = guest.answer(self.path)
            self.send_response(200 if answer else 404)
            if answer:
                self.send_header("X-Next", str(answer[1]))
            self.end_headers()
            self.wfile.write(answer[0] if answer else b"nothing here")

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    guest.url = f"http://127.0.0.1:{server.server_address[1]}/guests"
    try:
        yield guest
    finally:
        server.shutdown()
        server.server_close()
