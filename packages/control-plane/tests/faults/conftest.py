"""An embedded API server with the load's namespace, and a host that reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.host.base import ApiServer
from tests.host.fake import FakeHost
from tests.kubesim.processes import ApiServer as Program

LOAD = "/api/v1/namespaces/gameday-load"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    running = Program(tmp_path_factory.mktemp("apiserver"))
    make_namespace(running)
    yield running
    running.end()


@pytest.fixture
def host(server: Program, tmp_path: Path) -> Iterator[FakeHost]:
    yield host_of(server, tmp_path)
    with server.http() as http:
        for plural in ("secrets", "configmaps"):
            http.delete(f"{LOAD}/{plural}")


def make_namespace(server: Program) -> None:
    """Make the namespace of the load's objects."""
    with server.http() as http:
        http.post("/api/v1/namespaces", json={"metadata": {"name": "gameday-load"}}).raise_for_status()


def host_of(server: Program, folder: Path) -> FakeHost:
    """Return a host whose agent may do everything at the server; the token is kept in the folder."""
    (folder / "token").write_text(server.token())
    host = FakeHost()
    host.api = ApiServer(url=server.url, ca_file=Path(server.ready["ca"]), token_file=folder / "token")
    return host
