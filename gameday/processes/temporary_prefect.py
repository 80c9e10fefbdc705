"""A Prefect server that lasts one command, and dies with it.

Prefect itself starts such a server if no API URL is set (prefect.server.api.server.SubprocessASGIServer in Prefect
3.8). It gives it up after 20 s in any case, leaves it running and starts the next one: on a busy machine none of them
ever answers. It ends the server only if Python ends normally, so a killed process leaves it for good. And all of them
use the same SQLite file below ~/.prefect.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from gameday.processes.children import Child, private_files
from gameday.processes.ports import PREFECT_PORT, HeldPorts, start_on_free_ports
from gameday.processes.prefect_server import (
    AUTH_FILE,
    await_prefect,
    begin_with_template,
    client_environment,
    keep_template,
    new_password,
    server_argv,
    server_environment,
)

_SMALL = {"PREFECT_SERVER_UI_ENABLED": "false", "PREFECT__SERVER_EPHEMERAL": "1"}
"""Settings without pages, and with only those services that Prefect runs in a temporary server."""


class TemporaryPrefect:
    """A server that runs as long as its block."""

    def __init__(self, log: Path, home: Path | None = None, *, whole: bool = False) -> None:
        """Prepare the server.

        Args:
            log: File for its output.
            home: Folder of its database; None for the database that Prefect's settings name.
            whole: Start it with pages and a scheduler, on the port that people bookmark or the next free one.
        """
        self._log = log
        self._home = home
        self._whole = whole
        self._ports: HeldPorts | None = None
        self._child: Child | None = None
        self._password = new_password()
        self.url = ""

    def __enter__(self) -> Self:
        """Start the server and wait until it answers.

        Raises:
            ChildError: It ended or hung before it answered.
            OSError: The log cannot be written.
        """
        try:
            start_on_free_ports(self._start, self._wrote, self._end)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def password_file(self) -> Path:
        """File with the password for a person who opens the server's pages."""
        return self._log.with_name(AUTH_FILE)

    @property
    def client(self) -> dict[str, str]:
        """Environment for its clients."""
        return client_environment(self.url, self._password)

    @property
    def child(self) -> Child:
        """The server's process."""
        assert self._child is not None
        return self._child

    def _start(self) -> None:
        self._ports = HeldPorts(1, PREFECT_PORT if self._whole else 0)
        (port,) = self._ports.numbers
        self.url = f"http://127.0.0.1:{port}"
        is_migrated = self._home is None or begin_with_template(self._home)
        environment = server_environment(port, self._password, self._home) | ({} if self._whole else _SMALL)
        if self._whole:
            with private_files():
                self.password_file.write_text(self._password, encoding="ascii")
        self._child = Child("prefect", server_argv(port), self._log, environment, says_ready=False)
        self._child.start()
        await_prefect(self._child, self.url, self._password)
        if self._home and not is_migrated:
            keep_template(self._home)

    def _wrote(self, words: str) -> bool:
        return self.child.wrote(words)

    def _end(self) -> None:
        if self._child:
            self._child.end()
        if self._ports:
            self._ports.release()
