"""A server that plays what a test gives it: one answer after the other, and the last one again and again."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from gameday.host.base import ApiServer
from kubesim.certificates import Authority

Play = Callable[[BaseHTTPRequestHandler], None]


def ok(body: bytes = b"{}", **headers: str) -> Play:
    """Answer 200 in two chunks."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in (body[: len(body) // 2], body[len(body) // 2 :]):
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n" if part else b"")
        handler.wfile.write(b"0\r\n\r\n")

    return play


def refuse(status: int, **headers: str) -> Play:
    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": "4"}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(b"busy")

    return play


def cut(announced: int, sent: bytes) -> Play:
    """Announce more bytes than are sent, and close the connection."""

    def play(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(announced))
        handler.end_headers()
        handler.wfile.write(sent)
        handler.close_connection = True

    return play


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


class Server:
    """The server; `asked` are its requests as (method, path, headers)."""

    def __init__(self, plays: list[Play], folder: Path) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.released = threading.Event()
        self._plays = plays
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        authority = Authority(folder, "authority")
        pair = authority.server("server")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        # In the handler's thread: a handshake in the accepting one would hold up every other client.
        self._http.socket = tls.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        token = folder / "token"
        token.write_text("first\n")
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()
        self.reached_as = ApiServer(
            url=f"https://127.0.0.1:{self._http.server_address[1]}",
            ca_file=authority.certificate,
            token_file=token,
        )

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        with self._lock:
            self.asked.append((handler.command, handler.path, dict(handler.headers)))
            self.bodies.append(body)
            play = self._plays.pop(0) if len(self._plays) > 1 else self._plays[0]
        play(handler)

    def hold(self, handler: BaseHTTPRequestHandler) -> None:
        """Begin an answer, and end it only with the test."""
        handler.send_response(200)
        handler.send_header("Content-Length", "9")
        handler.end_headers()
        handler.wfile.write(b"begun")
        handler.wfile.flush()
        self.released.wait(60)

    def play(self, *plays: Play) -> None:
        with self._lock:
            self._plays = list(plays)

    def close(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@contextmanager
def serving(folder: Path, *plays: Play) -> Iterator[Server]:
    server = Server(list(plays) or [ok()], folder)
    try:
        yield server
    finally:
        server.close()
