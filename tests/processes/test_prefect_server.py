from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from prefect.settings import Settings

from gameday.processes.prefect_server import begin_with_template, keep_template, server_environment


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def _server_home(folder: Path) -> Path:
    """As a server leaves it while it runs: written, and not yet out of the write-ahead log."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / "prefect.db")) as database:
        database.execute("PRAGMA journal_mode=wal")
        database.execute("CREATE TABLE flow (name TEXT)")
        database.execute("INSERT INTO flow VALUES ('game-day')")
        database.commit()
    return folder


def _names(home: Path) -> list[tuple[str]]:
    with closing(sqlite3.connect(home / "prefect.db")) as database:
        return database.execute("SELECT name FROM flow").fetchall()


def test_the_first_start_has_none_and_the_second_has_the_firsts(tmp_path: Path) -> None:
    assert not begin_with_template(tmp_path / "one")
    keep_template(_server_home(tmp_path / "first"))
    assert begin_with_template(tmp_path / "two")
    assert _names(tmp_path / "two") == [("game-day",)]


def test_a_home_that_has_a_database_keeps_it(tmp_path: Path) -> None:
    home = _server_home(tmp_path / "home")
    assert begin_with_template(home)
    assert _names(home) == [("game-day",)]


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\xff" * 5000, b"nonsense" * 1000])
def test_a_damaged_template_is_thrown_away(tmp_path: Path, cache: Path, content: bytes) -> None:
    keep_template(_server_home(tmp_path / "first"))
    (template,) = (cache / "gpu-gameday").iterdir()
    template.write_bytes(content)
    if begin_with_template(tmp_path / "two"):
        assert content == b"", "an empty file is an empty database, which the server fills"
    else:
        assert not template.exists()
        assert not (tmp_path / "two" / "prefect.db").exists()


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, cache: Path) -> None:
    cache.write_text("a file, no folder")
    keep_template(_server_home(tmp_path / "first"))
    assert not begin_with_template(tmp_path / "two")


def test_the_servers_pages_ask_the_server_they_came_from(tmp_path: Path) -> None:
    environment = server_environment(4711, "gameday:secret", tmp_path)
    assert environment["PREFECT_SERVER_UI_API_URL"] == "http://127.0.0.1:4711/api"
    assert environment["PREFECT_SERVER_ANALYTICS_ENABLED"] == "false"


def test_no_other_servers_pages_may_ask_it_and_nobody_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the user opens another server to everybody, in his own environment."""
    for name in ("PREFECT_SERVER_CORS_ALLOWED_ORIGINS", "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"):
        monkeypatch.setenv(name, "*")
    for key, value in server_environment(4711, "gameday:secret", tmp_path).items():
        monkeypatch.setenv(key, value)
    api = Settings().server.api
    assert api.cors_allowed_origins == "http://127.0.0.1:4711,http://localhost:4711"
    assert api.auth_string is not None
    assert api.auth_string.get_secret_value() == "gameday:secret"


@pytest.mark.parametrize("name", ["PREFECT_SERVER_DATABASE_CONNECTION_URL", "PREFECT_API_DATABASE_CONNECTION_URL"])
def test_a_database_of_the_users_environment_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "postgresql+asyncpg://me@db/prefect")
    for key, value in server_environment(4711, "gameday:secret", tmp_path).items():
        monkeypatch.setenv(key, value)
    url = Settings().server.database.connection_url
    assert url is not None
    assert url.get_secret_value() == f"sqlite+aiosqlite:///{tmp_path}/prefect.db"
