"""One API server for each session and worker. Tests that restart a server start one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from kubernetes import client

from tests.kubesim.processes import ApiServer, wipe


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    running = ApiServer(tmp_path_factory.mktemp("apiserver"))
    yield running
    assert running.end() == 0


@pytest.fixture(scope="module")
def server(shared_server: ApiServer) -> Iterator[ApiServer]:
    """The shared server; what a module made on it is gone before the next one begins."""
    yield shared_server
    with shared_server.http() as http:
        wipe(http)


@pytest.fixture(scope="module")
def http(server: ApiServer) -> Iterator[httpx.Client]:
    with server.http() as found:
        yield found


@pytest.fixture(scope="module")
def core(server: ApiServer) -> client.CoreV1Api:
    return client.CoreV1Api(server.api())
