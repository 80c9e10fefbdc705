"""Clients of a Prefect server's API for tests, by the environment that a client of that server has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
from prefect.client.base import PrefectHttpxSyncClient
from prefect.client.orchestration import SyncPrefectClient


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
