"""A client of a Prefect server's API for tests that look at it from outside."""

from __future__ import annotations

import httpx
from prefect.client.base import PrefectHttpxSyncClient


def prefect_api(server: str) -> httpx.Client:
    """Return Prefect's own HTTP client of `server`/api, which asks again where a locked SQLite answers 503."""
    return PrefectHttpxSyncClient(base_url=f"{server}/api", timeout=30, trust_env=False, raise_on_all_errors=False)
