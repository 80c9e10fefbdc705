"""Which Prefect server a command has, and what it says of one that is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prefect.client.orchestration import get_client
from prefect.context import refresh_global_settings_context
from prefect.events import emit_event
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL

from gameday.cli.console import console
from gameday.cli.prefect_client import (
    client_of,
    give_events_up_at_once,
    gone_message,
    own_server,
    prefect_server,
    set_defaults,
)
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.processes import temporary_prefect
from gameday.processes.children import Child
from gameday.processes.prefect_server import client_environment

GONE_SERVER = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
GONE = RuntimeError("Failed to reach API at http://127.0.0.1:9/api/")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user who has set nothing."""
    with monkeypatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        patch.setenv("PREFECT_HOME", str(tmp_path / "home"))
        refresh_global_settings_context()
        yield tmp_path / "home"
    refresh_global_settings_context()


def test_without_a_url_no_variable_is_to_be_unset() -> None:
    message = gone_message(GONE)
    assert (
        message
        == "no Prefect server answers; start one with `prefect server start`, and set PREFECT_API_URL to its API"
    )


def test_the_url_of_the_environment_is_to_be_unset() -> None:
    with client_of(GONE_SERVER):
        assert gone_message(httpx.ConnectError("refused")) == (
            "the Prefect server http://127.0.0.1:9/api does not answer; "
            "start it, or `unset PREFECT_API_URL` for one that lasts a run"
        )


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_without_its_database_is_no_error_of_ours(status: int) -> None:
    assert gone_message(_answered(status)) == (
        f"the Prefect server http://127.0.0.1:9 answers with {status}; "
        "look at its log, and whether its database answers"
    )
    assert not gone_message(_answered(404))


def test_a_server_that_wants_a_password_is_named_with_the_variable_that_holds_it() -> None:
    said = gone_message(_answered(401))
    assert said.startswith("the Prefect server http://127.0.0.1:9 asks for a password: set PREFECT_API_AUTH_STRING")


def _answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1:9/api/flow_runs/1/set_state")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


def test_the_url_of_a_prefect_profile_is_named_as_such(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "profiles.toml").write_text(
        'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n'
    )
    refresh_global_settings_context()
    assert gone_message(GONE) == (
        "the Prefect server http://127.0.0.1:9/api of your Prefect profile does not answer; "
        "start it, or `prefect config unset PREFECT_API_URL`"
    )


def test_a_server_of_the_commands_own_is_not_the_users_to_start(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "raise SystemExit('the reason')"]
    child = Child("prefect", argv, tmp_path / "log", says_ready=False)
    child.start()
    assert child.process is not None
    child.process.wait()
    with client_of(GONE_SERVER), own_server(child):
        assert gone_message(GONE) == (
            f"prefect died (exit status 1): the reason; its log is {tmp_path / 'log'}; start the command again"
        )


def test_other_errors_are_not_prefects() -> None:
    assert gone_message(KeyError("ours")) == ""


def test_a_server_is_used_although_prefect_has_read_its_settings_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "of the user's other server")
    refresh_global_settings_context()
    with client_of(client_environment("http://127.0.0.1:4711", "gameday:secret")):
        assert PREFECT_API_URL.value() == "http://127.0.0.1:4711/api"
        assert PREFECT_API_AUTH_STRING.value() == "gameday:secret"
    assert PREFECT_API_URL.value() is None
    assert PREFECT_API_AUTH_STRING.value() == os.environ["PREFECT_API_AUTH_STRING"] == "of the user's other server"
    assert "PREFECT_API_URL" not in os.environ


def test_a_server_that_is_set_is_used() -> None:
    with client_of(GONE_SERVER), prefect_server(console()):
        assert PREFECT_API_URL.value() == "http://127.0.0.1:9/api"


def test_a_server_that_does_not_start_is_a_refusal_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-c", "raise SystemExit('no')"]
    monkeypatch.setattr(temporary_prefect, "server_argv", lambda _: argv)
    ended = r"prefect ended before it was ready \(exit status 1\): no; its log is .*prefect server start"
    with pytest.raises(CommandError, match=ended) as said, prefect_server(console()):
        pass
    assert said.value.code == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("named", "whole", "is_temporary"),
    [("", False, True), ("sqlite+aiosqlite:////srv/prefect.db", False, False), ("", True, False)],
)
def test_the_database_is_a_temporary_one_unless_somebody_wants_another(
    named: str, whole: bool, is_temporary: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named:
        monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", named)
        refresh_global_settings_context()
    environments: list[dict[str, str]] = []
    modes: list[int] = []

    def server(name: str, argv: list[str], log: Path, environment: dict[str, str], **_: object) -> Child:
        environments.append({**os.environ, **environment})
        modes.extend(path.stat().st_mode & 0o777 for path in log.parent.glob("prefect-password"))
        return Child(name, [sys.executable, "-c", "raise SystemExit('no')"], log, environment, says_ready=False)

    monkeypatch.setattr(temporary_prefect, "Child", server)
    with pytest.raises(CommandError), prefect_server(console(), whole=whole):
        pass
    url = environments[0].get("PREFECT_SERVER_DATABASE_CONNECTION_URL", "")
    assert ("gameday-prefect-" in url) is is_temporary
    assert is_temporary or url == named
    assert modes == ([0o600] if whole else []), "a person needs the password of a server with pages"


def test_an_event_after_the_end_of_a_server_starts_none() -> None:
    """Prefect asks no setting before it starts a server for an event."""
    with client_of(GONE_SERVER):
        give_events_up_at_once()
    try:
        emit_event("too.late", {"prefect.resource.id": "a.run"})
        assert PREFECT_API_URL.value() is None
        assert "prefect.server.api.server" not in sys.modules or not _servers()
    finally:
        EventsWorker.set_client_override(None)
        EventsWorker.drain_all()


def _servers() -> list[object]:
    from prefect.server.api.server import SubprocessASGIServer

    return list(SubprocessASGIServer._instances.values())


def test_prefect_itself_is_to_start_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a user's Prefect profile says, and under whichever of its two names."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "true")
    monkeypatch.setenv("PREFECT_SERVER_EPHEMERAL_ENABLED", "true")
    set_defaults()
    refresh_global_settings_context()
    with pytest.raises(ValueError, match="No Prefect API URL"):
        get_client(sync_client=True)
