"""The agent's own requests: which answers are worth another try."""

from __future__ import annotations

import asyncio

import httpx
import orjson
import pytest

from gameday.errors import HostError
from gameday_control_plane.api_clients.ask import ask


def test_a_full_etcd_is_asked_once_and_its_error_says_what_helps() -> None:
    asked: list[httpx.Request] = []
    message = "etcdserver: mvcc: database space exceeded"

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(500, stream=httpx.ByteStream(orjson.dumps({"message": message})))

    async def post() -> None:
        async with httpx.AsyncClient(base_url="http://fake", transport=httpx.MockTransport(refuse)) as http:
            await ask(http, "POST", "/api/v1/secrets", content=b"{}")

    with pytest.raises(HostError, match="A full etcd"):
        asyncio.run(post())
    assert len(asked) == 1
