"""Prefect's client in a process that a person waits for: quiet, and quick to give up a server that is gone.

With Prefect's own patience such a server held a run's result back for 150 s after the run was over and clean. What
Prefect waits for, the states of its flow run and their events, is not the evidence: that is in the history.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.cli.temporary import temporary_folder
from gameday.errors import ChildError, CommandError
from gameday.exit_codes import ExitCode
from gameday.processes.children import Child
from gameday.processes.prefect_server import QUIET
from gameday.processes.temporary_prefect import TemporaryPrefect

if TYPE_CHECKING:
    from rich.console import Console

_API_URL = "PREFECT_API_URL"
_OWN_SERVER: ContextVar[Child | None] = ContextVar("own_server", default=None)
_DEFAULTS = {**QUIET, "PREFECT_CLIENT_MAX_RETRIES": "3", "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500"}
"""20 s of attempts for each request. Prefect's own five retries take 75 s, and the end of a run has two requests.

Prefect's server answers 500 while its PostgreSQL refuses connections, and its client by itself does not retry that.
"""
_WITHOUT_A_PAUSE = 3
"""Attempts to reconnect after which Prefect's client of events sleeps a second before each further one."""
_NO_PREFECT = "Failed to reach API"
"""The words of Prefect 3.8's flow engine."""


def set_defaults() -> None:
    """Set the environment's defaults. Prefect reads them when it is imported."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    # Prefect starts no server of its own. `prefect_server` starts ours, which dies with the command.
    os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"


def require_server() -> None:
    """Refuse to go on if Prefect's settings name no server. Raises CommandError."""
    from prefect.settings import PREFECT_API_URL

    if not PREFECT_API_URL.value():
        raise CommandError(
            "no Prefect server is named: `export PREFECT_API_URL=http://HOST:4200/api`, or run `gameday up`",
            ExitCode.REFUSED,
        )


def give_events_up_at_once() -> None:
    """Give an event up at once if the server refuses connections, not after 8 s; the next event sends it again.

    Otherwise Prefect would start its own server for an event after the end of ours; no setting forbids that.
    """
    from prefect.events.clients import PrefectEventsClient
    from prefect.events.worker import (
        EventsWorker,
        emit_events_to_cloud,
        should_emit_events_to_running_server,
    )

    if should_emit_events_to_running_server() and not emit_events_to_cloud():
        EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=_WITHOUT_A_PAUSE)


@contextmanager
def prefect_server(out: Console, *, whole: bool = False) -> Iterator[Path | None]:
    """Provide the Prefect server of Prefect's settings, or start one for the block.

    A started server has a temporary database unless the settings name one. Yields the file with the password for the
    pages of a started server; None if it has no pages or is not ours.

    Args:
        out: The terminal of the person who waits.
        whole: Start the server with pages and a scheduler, on the database of Prefect's settings, so that its pages
            show earlier runs.

    Raises:
        CommandError: No server starts.
    """
    from prefect.settings import get_current_settings

    settings = get_current_settings()
    if settings.api.url:
        yield None
        return
    folder = temporary_folder("gameday-prefect-")
    url = settings.server.database.connection_url
    is_default = url is None or url.get_secret_value() == f"sqlite+aiosqlite:///{settings.home}/prefect.db"
    home = folder / "home" if is_default and not whole else None
    with ExitStack() as stack:
        try:
            with out.status("Prefect starts"):
                server = stack.enter_context(TemporaryPrefect(folder / "prefect.log", home, whole=whole))
        except (ChildError, OSError) as error:
            raise CommandError(
                f"{error}; start a server yourself with `prefect server start`, and set PREFECT_API_URL to its API",
                ExitCode.REFUSED,
            ) from None
        stack.enter_context(client_of(server.client))
        stack.enter_context(own_server(server.child))
        yield server.password_file if whole else None
        if server.child.alive:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def client_of(server: Mapping[str, str]) -> Iterator[None]:
    """Set the environment of this server's clients for the block, even if Prefect has read its settings before."""
    from prefect.context import refresh_global_settings_context

    before = {name: os.environ[name] for name in server if name in os.environ}
    os.environ.update(server)
    refresh_global_settings_context()
    try:
        yield
    finally:
        for name in server:
            del os.environ[name]
        os.environ.update(before)
        refresh_global_settings_context()


@contextmanager
def own_server(child: Child) -> Iterator[None]:
    """Name the server process that this command started, for `gone_message`."""
    token = _OWN_SERVER.set(child)
    try:
        yield
    finally:
        _OWN_SERVER.reset(token)


def gone_message(error: BaseException) -> str:
    """Return what to do if Prefect's server or database did not answer, or asks for a password; else empty."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        url, status = error.request.url, error.response.status_code
        server = f"the Prefect server {url.scheme}://{url.netloc.decode()}"
        if error.response.is_server_error:
            return f"{server} answers with {status}; look at its log, and whether its database answers"
        if status == httpx.codes.UNAUTHORIZED:
            return (
                f"{server} asks for a password: set PREFECT_API_AUTH_STRING to it; where `gameday up` or "
                "`gameday rehearsal up` started the server, it prints which file holds it"
            )
    if isinstance(error, httpx.TransportError) or _NO_PREFECT in str(error):
        return _no_server()
    return ""


def _no_server() -> str:
    from prefect.settings import PREFECT_API_URL

    if own := _OWN_SERVER.get():
        if not own.alive:
            return f"{own.error('died')}; start the command again"
        return "the Prefect server that this command has started does not answer; start the command again"
    if url := os.environ.get(_API_URL):
        return f"the Prefect server {url} does not answer; start it, or `unset {_API_URL}` for one that lasts a run"
    if url := PREFECT_API_URL.value():
        unset = f"`prefect config unset {_API_URL}`"
        return f"the Prefect server {url} of your Prefect profile does not answer; start it, or {unset}"
    return f"no Prefect server answers; start one with `prefect server start`, and set {_API_URL} to its API"
