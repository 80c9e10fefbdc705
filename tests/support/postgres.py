"""A PostgreSQL server of the tests' own: this machine's program, else the one that `scripts/setup.py` fetches."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg
import pytest

from gameday_rehearsal.programs import TOOLS
from tests.rehearsal.processes import until
from tests.support.ports import free_ports

_USER = "prefect"
_NOBODY = 65534
"""Debian's user without rights: PostgreSQL refuses to run as root."""
_STARTS_WITHIN_S = 60.0


def postgres_programs() -> Path:
    """Return the folder of `initdb` and `postgres`; skips the test where there is none."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: float(folder.parent.name))
    on_path = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    fetched = TOOLS / "postgres/pgserver/pginstall/bin"
    for folder in (*on_path, *reversed(debian), fetched):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    pytest.skip("no PostgreSQL server on this machine; `python3 scripts/setup.py postgres` fetches one for most")


class PostgreSQL:
    """Listens on loopback, asks for a password, and is gone with its data after the block."""

    def __init__(self) -> None:
        self._programs = postgres_programs()
        (self._port,) = free_ports(1)
        self.password = secrets.token_hex(16)
        self.version = ""

    @property
    def url(self) -> str:
        """The address for SQLAlchemy, with the password."""
        return f"postgresql+asyncpg://{_USER}:{self.password}@127.0.0.1:{self._port}/postgres"

    def __enter__(self) -> Self:
        # Not below pytest's folders, which only their owner may enter.
        self._home = Path(tempfile.mkdtemp(prefix="gameday-postgres-"))
        self._own: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        secret = self._home / "password"
        secret.write_text(self.password)
        if self._own:
            for path in (self._home, secret):
                os.chown(path, _NOBODY, _NOBODY)
        try:
            self._initialize(secret)
            self.start()
        except BaseException:
            shutil.rmtree(self._home, ignore_errors=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        shutil.rmtree(self._home)

    def _initialize(self, secret: Path) -> None:
        argv = [str(self._programs / "initdb"), "-D", str(self._home / "data"), "-U", _USER, "-A", "scram-sha-256"]
        argv += ["--pwfile", str(secret), "--encoding", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", **self._own)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        argv = [str(self._programs / "postgres"), "-D", str(self._home / "data"), "-p", str(self._port)]
        argv += ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._home}", "-c", "fsync=off"]
        self._log = (self._home / "log.txt").open("ab")
        self._process = subprocess.Popen(
            argv, stdout=self._log, stderr=self._log, stdin=subprocess.DEVNULL, cwd="/", **self._own
        )
        until(self._answers, _STARTS_WITHIN_S, "PostgreSQL answers")

    def end(self) -> None:
        """Stop it as an administrator does who does not wait: every session is cut off."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_STARTS_WITHIN_S)
        self._log.close()

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return asyncio.run(self._query(sql))

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._home / "log.txt").read_text()
        try:
            ((self.version,),) = self.query("show server_version")
        except (OSError, asyncpg.PostgresError):
            return False
        return True

    async def _query(self, sql: str) -> list[tuple[Any, ...]]:
        where = {"host": "127.0.0.1", "port": self._port, "user": _USER, "database": "postgres"}
        connection = await asyncpg.connect(password=self.password, **where)
        try:
            return [tuple(row) for row in await connection.fetch(sql)]
        finally:
            await connection.close()
