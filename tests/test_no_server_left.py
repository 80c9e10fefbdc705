"""The guard of the whole suite: Prefect starts no server of its own unnoticed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.conftest import pytest_runtest_teardown


def test_a_client_without_an_address_is_an_error_and_starts_nothing() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(ValueError, match="No Prefect API URL"):
        get_client(sync_client=True)


def test_a_server_that_an_event_started_is_ended_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    server = SimpleNamespace(stop=lambda: ended.append("the server"))
    module = SimpleNamespace(SubprocessASGIServer=SimpleNamespace(_instances={None: server}))
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "prefect.server.api.server", module)  # seconds to import
        with pytest.raises(AssertionError, match="started a server of its own"):
            pytest_runtest_teardown()
    assert ended == ["the server"]
