"""The rehearsal's host, reached by HTTP: the same agent, acting on a model of eight GPUs.

Only the standard library's http.client: a rehearsal starts one agent process
per pod, and a richer client would cost more than the agent itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError

from gameday.host.base import GpuSample, HostError, LoadResult, ProgramResult
from gameday.host.kernel_log import encode_record

_ANSWER_WITHIN_S = 10.0
"""A model of a host answers at once; more than this is a dead rehearsal."""
_MAX_BODY_BYTES = 32 * 1024 * 1024
"""A ring buffer of 16 MiB, the kernel's largest default, twice over for JSON's quoting."""

M = TypeVar("M", bound=BaseModel)


class _Lines(BaseModel):
    lines: list[str]


class _Content(BaseModel):
    content: str


class _BootId(BaseModel):
    boot_id: str


class _Gpus(BaseModel):
    gpus: list[GpuSample]


class VirtualHost:
    """A client of one virtual host; safe to use from several threads, as every call is a connection of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise HostError(f"GAMEDAY_VIRTUAL_HOST is {url!r}; expected a URL like http://127.0.0.1:PORT/hosts/NODE")
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")

    def write_kernel_log(self, record: str) -> None:
        self._call("POST", "/kernel-log", {"record": encode_record(record).decode()})

    def read_kernel_log(self) -> list[str]:
        return self._read(_Lines, "GET", "/kernel-log").lines

    def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
        body = {"argv": list(argv), "timeout_s": timeout_s}
        return self._read(ProgramResult, "POST", "/run", body, timeout_s)

    def read_file(self, path: str) -> str:
        return self._read(_Content, "GET", f"/file?path={quote(path, safe='/')}").content

    def write_file(self, path: str, content: str) -> None:
        self._call("PUT", "/file", {"path": path, "content": content})

    def boot_id(self) -> str:
        return self._read(_BootId, "GET", "/boot-id").boot_id

    def gpus(self) -> list[GpuSample]:
        return sorted(self._read(_Gpus, "GET", "/gpus").gpus, key=lambda gpu: gpu.index)

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        return self._read(LoadResult, "POST", "/load", {"gpu": gpu, "seconds": seconds}, seconds)

    def _read(self, model: type[M], method: str, path: str, body: dict[str, Any] | None = None, work_s: float = 0) -> M:
        raw = self._call(method, path, body, work_s)
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            raise HostError(f"virtual host {method} {path}: unexpected answer: {error.errors()[0]['msg']}") from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, work_s: float = 0) -> bytes:
        """The body of a 2xx answer. `work_s`: seconds the host itself may need before it answers."""
        connection = HTTPConnection(self._host, self._port, timeout=work_s + _ANSWER_WITHIN_S)
        try:
            connection.request(
                method,
                self._path + path,
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"} if body is not None else {},
            )
            answer = connection.getresponse()
            raw = answer.read(_MAX_BODY_BYTES)
        except (OSError, HTTPException, UnicodeError) as error:
            raise HostError(
                f"virtual host {self._host}:{self._port} {method} {path}: {error or type(error).__name__}"
            ) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise HostError(f"virtual host {method} {path}: HTTP {answer.status}: {_reason(raw)}")
        return raw


def _reason(raw: bytes) -> str:
    """The `error` of a JSON error body, or the body itself, bounded."""
    try:
        return str(json.loads(raw)["error"])[:500]
    except (ValueError, KeyError, TypeError):
        return raw[:500].decode("utf-8", "replace") or "no reason given"
