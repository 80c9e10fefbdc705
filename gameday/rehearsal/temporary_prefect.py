"""A Prefect server that lasts one command, on the Prefect database of the settings.

Prefect itself starts such a server where no API URL is set. It gives it up after 20 s, whatever the server does, lets
it go on and starts the next one: on a busy machine none of them ever answers
(prefect.server.api.server.SubprocessASGIServer in Prefect 3.8).
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from gameday.rehearsal.children import Child
from gameday.rehearsal.ports import HeldPorts, start_on_free_ports
from gameday.rehearsal.prefect_server import QUIET, server_argv

_SMALL = {"PREFECT_SERVER_UI_ENABLED": "false", "PREFECT__SERVER_EPHEMERAL": "1"}
"""No pages, and of the services only those that Prefect runs in a temporary server."""


class TemporaryPrefect:
    """Serves for as long as its block runs."""

    def __init__(self, log: Path, *, whole: bool = False) -> None:
        """Prepare the server; `whole`: with its pages and its scheduler."""
        self._log = log
        self._whole = whole
        self._ports: HeldPorts | None = None
        self._child: Child | None = None
        self.api_url = ""

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
    def child(self) -> Child:
        """The server's process."""
        assert self._child is not None
        return self._child

    def _start(self) -> None:
        self._ports = HeldPorts(1)
        (port,) = self._ports.numbers
        self.api_url = f"http://127.0.0.1:{port}/api"
        environment = QUIET | ({"PREFECT_SERVER_UI_API_URL": self.api_url} if self._whole else _SMALL)
        self._child = Child("prefect", server_argv(port), self._log, environment, says_ready=False)
        self._child.start()
        self._child.await_url(f"{self.api_url}/health")

    def _wrote(self, words: str) -> bool:
        return self.child.wrote(words)

    def _end(self) -> None:
        if self._child:
            self._child.end()
        if self._ports:
            self._ports.release()
