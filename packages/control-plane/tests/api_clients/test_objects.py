"""The pages of a load's objects as a real API server writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gameday.host.base import ApiServer
from gameday_control_plane.api_clients import objects
from gameday_control_plane.api_clients.ask import Answered
from gameday_control_plane.api_clients.objects import Counted, LoadObjects


def test_a_last_page_of_null_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-apiserver pages over what a selector leaves out, and writes `"items": null` for a page without a match."""
    pages = iter(
        [
            {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [{}, {}]},
            {"metadata": {"resourceVersion": "7"}, "items": None},
            {"metadata": {"resourceVersion": "7"}, "items": None},
        ]
    )

    async def ask(*_: object, **__: Any) -> Answered:
        body = orjson.dumps(next(pages))
        return Answered(200, body, len(body))

    monkeypatch.setattr(objects, "ask", ask)
    monkeypatch.setattr(objects, "open_connection", lambda *_: httpx.AsyncClient())
    server = ApiServer(url="https://127.0.0.1:1", ca_file=tmp_path / "ca", token_file=tmp_path / "token")
    load = LoadObjects(server, "configmaps", "a-load")
    assert load.count() == Counted(2, "7")
    assert not load.exist()


def test_a_configmap_has_its_bytes_where_configmaps_have_them() -> None:
    made = orjson.loads(objects.load_object("configmaps", "a-load", 3, 10))
    assert (made["kind"], made["metadata"]["name"], list(made["binaryData"])) == (
        "ConfigMap",
        "a-load-00003",
        ["payload"],
    )
    assert objects.load_object("configmaps", "a-load", 3, 10, 1) != objects.load_object("configmaps", "a-load", 3, 10)
