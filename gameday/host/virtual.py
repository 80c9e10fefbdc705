"""The rehearsal's host: a model of a GPU node, reached by HTTP.

It uses the standard library's http.client, because a rehearsal starts an agent process for each pod, and a larger
client would cost more than the agent itself.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ValidationError

from gameday.errors import HostError, LinkError
from gameday.host.base import (
    ApiServer,
    DcgmEngines,
    GpuSample,
    GpuUser,
    Listener,
    LoadResult,
    ProgramResult,
    WorkOrder,
    WorkReport,
)
from gameday.host.kernel_log import encode_record
from gameday.host.nvml_missing import NO_LIBRARY_HINT
from gameday.host.work import FIRST_REPORT_TIMEOUT_S, Work, WorkByGpu

NO_DRIVER_VARIABLE = "GAMEDAY_VIRTUAL_NO_DRIVER"
"""The environment variable that says that no runtime has put the driver's libraries into this container."""
_ANSWER_TIMEOUT_S = 10.0
"""A model of a host answers immediately; if it takes longer, its rehearsal is dead."""
LINK_STATUS = 504
"""The HTTP status of a connection that the model of the network does not let through."""
_LOOPBACK = "127.0.0.1"
_MAX_BODY_BYTES = 32 * 1024 * 1024
"""A ring buffer of 16 MiB, the kernel's largest default, and the same again for JSON's quoting."""

M = TypeVar("M", bound=BaseModel)


class _Lines(BaseModel):
    lines: list[str]


class _Content(BaseModel):
    content: str


class _BootId(BaseModel):
    boot_id: str


class _Gpus(BaseModel):
    gpus: list[GpuSample]


class _Users(BaseModel):
    users: tuple[GpuUser, ...]


class _DeviceIds(BaseModel):
    ids: tuple[str, ...]


class _Address(BaseModel):
    address: str


class _Way(BaseModel):
    port: int


class _Runs(BaseModel):
    runs: bool


class VirtualHost:
    """A client of one virtual host. Every call has its own connection, so several threads may call.

    Work is an answer that continues. It ends with its connection, and so with the agent.
    """

    is_virtual = True

    def __init__(self, url: str, environment: Mapping[str, str] = MappingProxyType({})) -> None:
        """Reach the host at `url`; `environment` is the container's, which names the API account if there is one."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise HostError(f"GAMEDAY_VIRTUAL_HOST is {url!r}; expected a URL like http://127.0.0.1:PORT/hosts/NODE")
        self._host = parts.hostname
        self._port = parts.port
        self._path = parts.path.rstrip("/")
        self._environment = environment
        self._works = WorkByGpu()

    def write_kernel_log(self, record: str) -> None:
        self._call("POST", "/kernel-log", {"record": encode_record(record).decode()})

    def read_kernel_log(self) -> list[str]:
        return self._read(_Lines, "GET", "/kernel-log").lines

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        # The model's versions of long programs are short, so `ended` has nothing to end.
        body = {"argv": list(argv), "timeout_s": timeout_s}
        return self._read(ProgramResult, "POST", "/run", body, timeout_s)

    def read_file(self, path: str) -> str:
        return self._read(_Content, "GET", f"/file?path={quote(path, safe='/')}").content

    def write_file(self, path: str, content: str) -> None:
        self._call("PUT", "/file", {"path": path, "content": content})

    def boot_id(self) -> str:
        return self._read(_BootId, "GET", "/boot-id").boot_id

    def gpus(self) -> list[GpuSample]:
        self._require_driver()
        return sorted(self._read(_Gpus, "GET", "/gpus").gpus, key=lambda gpu: gpu.index)

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        path = f"/pod-gpus?namespace={quote(namespace, safe='')}&pod={quote(pod, safe='')}"
        return self._read(_DeviceIds, "GET", path).ids

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        self._require_driver()
        return self._read(LoadResult, "POST", "/load", {"gpu": gpu, "seconds": seconds}, seconds)

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        self._require_driver()
        return self._works.start(gpu, lambda: self._start(gpu, order))

    def steer_work(self, gpu: int, utilization: float) -> None:
        self._works.steer(gpu, utilization)

    def work_report(self, gpu: int) -> WorkReport | None:
        return self._works.report(gpu)

    def end_work(self, gpu: int) -> WorkReport | None:
        last = self._works.end(gpu)
        self._call("DELETE", f"/work?gpu={gpu}")
        return last

    def has_work(self, gpu: int) -> bool:
        return self._read(_Runs, "GET", f"/work?gpu={gpu}").runs

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        self._require_driver()
        return self._read(_Users, "GET", f"/gpu-users?gpu={gpu}").users

    def own_address(self) -> str:
        return _LOOPBACK  # agents' pods are processes of one machine

    def listen(self, interface: str) -> Listener:
        address = self._read(_Address, "GET", f"/address?interface={quote(interface, safe='')}").address
        listening = socket.create_server((_LOOPBACK, 0))
        return Listener(listening, address, listening.getsockname()[1])

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        """Connect by way of the model, which passes bytes on as the interface's queue allows."""
        body = {"interface": interface, "address": address, "port": port}
        way = self._read(_Way, "POST", "/ways", body, timeout_s)
        try:
            return socket.create_connection((_LOOPBACK, way.port), timeout_s)
        except OSError as error:
            raise LinkError(f"{interface} to {address}: {error.strerror or error}") from None

    def dcgm_engines(self) -> DcgmEngines:
        return self._read(DcgmEngines, "GET", "/dcgm-engines")

    def _require_driver(self) -> None:
        if self._environment.get(NO_DRIVER_VARIABLE):
            raise HostError(f"NVML not found: {NO_LIBRARY_HINT}")

    def api_server(self) -> ApiServer:
        from gameday.host.api_account import on_virtual_node  # noqa: PLC0415 - few roles use the API

        return on_virtual_node(self._environment)

    def _start(self, gpu: int, order: WorkOrder) -> Work:
        """Start work on a GPU. Raises HostError."""
        connection = HTTPConnection(self._host, self._port, timeout=FIRST_REPORT_TIMEOUT_S)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable("POST", "/work", error) from None
        connected_socket = connection.sock
        answer = self._request(connection, "POST", "/work", {"gpu": gpu, "order": order.model_dump()})
        if answer.status >= 400:
            raise HostError(f"virtual host POST /work: HTTP {answer.status}: {_reason(answer.read(_MAX_BODY_BYTES))}")

        def cut_off() -> None:
            # close() would break the thread that is reading the answer.
            with suppress(OSError):
                connected_socket.shutdown(socket.SHUT_RDWR)

        def steer(utilization: float) -> None:
            self._call("PUT", "/work", {"gpu": gpu, "utilization": utilization})

        return Work(_lines(connection, answer), cut_off, steer)

    def _read(self, model: type[M], method: str, path: str, body: dict[str, Any] | None = None, work_s: float = 0) -> M:
        raw = self._call(method, path, body, work_s)
        try:
            return model.model_validate_json(raw)
        except ValidationError as error:
            raise HostError(f"virtual host {method} {path}: unexpected answer: {error.errors()[0]['msg']}") from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None, work_s: float = 0) -> bytes:
        """Return the body of a 2xx answer; `work_s` is the time in seconds that the host may need before it answers."""
        connection = HTTPConnection(self._host, self._port, timeout=work_s + _ANSWER_TIMEOUT_S)
        try:
            answer = self._request(connection, method, path, body)
            raw = answer.read(_MAX_BODY_BYTES)
        except (OSError, HTTPException) as error:
            raise self._unreachable(method, path, error) from None
        finally:
            connection.close()
        if answer.status == LINK_STATUS:
            raise LinkError(_reason(raw))
        if answer.status >= 400:
            raise HostError(f"virtual host {method} {path}: HTTP {answer.status}: {_reason(raw)}")
        return raw

    def _request(
        self, connection: HTTPConnection, method: str, path: str, body: dict[str, Any] | None = None
    ) -> HTTPResponse:
        """Return the answer with its body unread. Raises HostError."""
        try:
            connection.request(
                method,
                self._path + path,
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": "application/json"} if body is not None else {},
            )
            return connection.getresponse()
        except (OSError, HTTPException, UnicodeError) as error:
            connection.close()
            raise self._unreachable(method, path, error) from None

    def _unreachable(self, method: str, path: str, error: Exception) -> HostError:
        return HostError(f"virtual host {self._host}:{self._port} {method} {path}: {error or type(error).__name__}")


def _lines(connection: HTTPConnection, answer: HTTPResponse) -> Iterator[bytes]:
    """Yield the answer's lines. Raises OSError, and ValueError if the answer breaks off within a chunk."""
    try:
        yield from answer
    except HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from None
    finally:
        connection.close()


def _reason(raw: bytes) -> str:
    """Return the `error` of a JSON error body, or the body itself, at most 500 characters."""
    try:
        return str(json.loads(raw)["error"])[:500]
    except (ValueError, KeyError, TypeError):
        return raw[:500].decode("utf-8", "replace") or "no reason given"
