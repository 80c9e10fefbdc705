"""Prefect servers for tests, and clients of their API by the environment that a client of such a server has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.client.base import PrefectHttpxSyncClient
from prefect.client.orchestration import SyncPrefectClient

from gameday.cli.prefect_client import client_of
from gameday.processes.temporary_prefect import TemporaryPrefect


@contextmanager
def prefect_of_settings(folder: Path, *, whole: bool = False) -> Iterator[None]:
    """Run a Prefect server on a database of its own in the folder, and let this process's settings name it."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PREFECT_HOME", str(folder))
        with TemporaryPrefect(folder / "server.log", whole=whole) as server, client_of(server.client):
            yield


@pytest.fixture(scope="module")
def whole_prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A whole Prefect server, for the tests of one file."""
    with prefect_of_settings(tmp_path_factory.mktemp("prefect"), whole=True):
        yield


def prefect_api(client: Mapping[str, str]) -> httpx.Client:
    """Return Prefect's own HTTP client, from outside, which asks again where a locked SQLite answers 503."""
    user, _, password = client.get("PREFECT_API_AUTH_STRING", "").partition(":")
    return PrefectHttpxSyncClient(
        base_url=client["PREFECT_API_URL"],
        auth=(user, password),
        timeout=30,
        trust_env=False,
        raise_on_all_errors=False,
    )


def prefect_client(client: Mapping[str, str]) -> SyncPrefectClient:
    """Return Prefect's own client, in whatever settings this process has."""
    return SyncPrefectClient(client["PREFECT_API_URL"], auth_string=client["PREFECT_API_AUTH_STRING"])


def client_settings(client: Mapping[str, str]) -> dict[Any, str]:
    """Return the client's environment as Prefect's settings, for `temporary_settings`."""
    return {"api.url": client["PREFECT_API_URL"], "api.auth_string": client["PREFECT_API_AUTH_STRING"]}
