"""The rehearsal's Prefect server: the real one, with an SQLite file of its own.

A fresh server spends two thirds of its start on some hundred migrations of an empty database (7 of 13 CPU seconds
with Prefect 3.8). They always end the same way. So the first server's migrated, still empty database is kept in the
user's cache, named after Prefect's version, and later rehearsals begin with a copy. The server checks it like any
older one.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import sys
import tempfile
from contextlib import closing, suppress
from importlib.metadata import version
from pathlib import Path

from gameday.processes.children import Child

_DATABASE = "prefect.db"
AUTH_FILE = "prefect-password"
"""File with the password of the running server, for the person who started it. Only that person can read it."""


QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
    "PREFECT_INTERNAL_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "DO_NOT_TRACK": "1",
}
"""Settings without telemetry, and without log lines or tracebacks that a run's own history already has."""


def new_password() -> str:
    """Return a password for one server's lifetime, in the form of Prefect's auth strings: `user:secret`."""
    return f"gameday:{secrets.token_urlsafe(32)}"


def client_environment(url: str, password: str) -> dict[str, str]:
    """Return the environment for a client of the server at this URL, such as a worker or a flow."""
    return {"PREFECT_API_URL": f"{url}/api", "PREFECT_API_AUTH_STRING": password}


def await_prefect(server: Child, url: str, password: str) -> None:
    """Wait until the server at this URL answers to its own password: on a port that it lost, another one answers.

    Raises:
        ChildError: It ended, or hung.
    """
    user, _, secret = password.partition(":")
    # Prefect answers /health to everybody.
    server.await_url(f"{url}/api/admin/version", auth=(user, secret))


def prefect_environment(home: Path) -> dict[str, str]:
    """Return the environment of a quiet Prefect with its home in `home`."""
    return {"PREFECT_HOME": str(home), **QUIET}


def server_argv(port: int) -> list[str]:
    argv = [sys.executable, "-m", "uvicorn", "--factory", "gameday.processes.prefect_app:create_app"]
    # An open browser tab or event stream must not keep the server from ending.
    return [
        *argv,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--log-level",
        "error",
        "--timeout-graceful-shutdown",
        "1",
    ]


def server_environment(port: int, password: str, home: Path | None) -> dict[str, str]:
    """Return the environment of the server itself.

    Args:
        port: Its port. Its pages must know where its API is, and no other server's pages may use it.
        password: The password that it asks every client for.
        home: Folder of its database; None for the database that Prefect's settings name.
    """
    # Prefect prefers this one of the setting's names: under another one, a user's own PostgreSQL in the environment
    # would win.
    own = {
        "PREFECT_SERVER_UI_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_API_AUTH_STRING": password,
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": f"http://127.0.0.1:{port},http://localhost:{port}",
    }
    if home is None:
        return {**QUIET, **own}
    database = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / _DATABASE}"}
    return {**prefect_environment(home), **own, **database}


def begin_with_template(home: Path) -> bool:
    """Copy the migrated database of an earlier first start into `home`, unless `home` has a database.

    Returns False if the server will have to migrate an empty one.
    """
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    if (home / _DATABASE).exists():
        return True
    template = _template()
    if not template.is_file():
        return False
    try:
        _copy(template, home / _DATABASE)
    except sqlite3.Error:
        (home / _DATABASE).unlink(missing_ok=True)
        with suppress(OSError):
            template.unlink()
        return False
    return True


def keep_template(home: Path) -> None:
    """Keep the database of a server that has just become ready, before it has anybody's runs.

    If the cache cannot be written, the next start just takes longer.
    """
    with suppress(OSError, sqlite3.Error):
        template = _template()
        template.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=template.parent) as beside:
            _copy(home / _DATABASE, Path(beside) / _DATABASE)
            (Path(beside) / _DATABASE).replace(template)


def _template() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "gpu-gameday" / f"prefect-{version('prefect')}.db"


def _copy(source: Path, target: Path) -> None:
    """Copy the database consistently, even while `source` is being written. Raises sqlite3.Error."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        sound = new.execute("PRAGMA quick_check").fetchone()
        if sound != ("ok",):
            raise sqlite3.DatabaseError(f"{source} is damaged")
