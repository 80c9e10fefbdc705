"""Pauses that a server asks for are kept, up to the longest that an API server itself asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cluster.servers.conftest import Answer, Stub
from tests.support.world import plain_adapter

NODE = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}).encode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server() -> Iterator[Stub]:
    stub = Stub()
    yield stub
    stub.close()


@pytest.mark.parametrize(("asked", "kept"), [("7", 7), ("3600", 32)])
def test_a_retry_after_is_kept_up_to_32_seconds(
    server: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, kept: int
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(sleep=slept.append, time=time.time))
    server.answers = [Answer(429, headers={"Retry-After": asked}), Answer(200, NODE, JSON)]
    with plain_adapter(tmp_path, server.url) as kubernetes:
        assert kubernetes.node("gpu-1").metadata.name == "gpu-1"
    assert slept == [kept]
