"""Serve a reports folder's pages on loopback, for links from Prefect's pages: a browser opens no file from a page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from gameday.cluster.quiet_http import QuietHandler, QuietServer
from gameday.processes.ports import REPORTS_PORT, first_free, no_port

_LOOPBACK = "127.0.0.1"


@contextmanager
def served_pages(reports: Path) -> Iterator[str]:
    """Serve the HTML files below a folder to this machine for the block, read-only, and yield their base URL.

    The port is always the same unless it is taken, so that links of older runs work again. Histories, plans, frames
    and lists of folders are not served.

    Args:
        reports: The folder; it need not exist yet.

    Raises:
        StartError: No port is free.
    """
    root = reports.resolve()
    try:
        pages = partial(_Pages, directory=str(root))
        listening, claimed = first_free(REPORTS_PORT, lambda number: _Server((_LOOPBACK, number), pages))
    except OSError as error:
        raise no_port(error) from None
    with claimed, listening as server:
        threading.Thread(target=server.serve_forever, name="pages", daemon=True).start()
        try:
            yield f"http://{_LOOPBACK}:{server.server_port}/"
        finally:
            server.shutdown()


class _Server(QuietServer):
    block_on_close = False  # a browser keeps connections open; each is a thread


class _Pages(QuietHandler, SimpleHTTPRequestHandler):
    server: _Server

    def send_head(self) -> BytesIO | BinaryIO | None:
        page = Path(self.translate_path(self.path)).resolve()
        is_below = page.is_relative_to(Path(self.directory)) and page.suffix == ".html" and page.is_file()
        # A foreign web page that makes its name lead to this machine must not read reports.
        if not is_below or self.headers.get("Host") != f"{_LOOPBACK}:{self.server.server_port}":
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()
