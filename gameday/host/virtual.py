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
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from gameday.errors import HostBusyError, HostError, LinkError
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
BUSY_STATUS = 408
"""The HTTP status of a program that did not end in time."""
_LOOPBACK = "127.0.0.1"
_MAX_BODY_BYTES = 32 * 1024 * 1024
"""A ring buffer of 16 MiB, the kernel's largest default, and the same again for JSON's quoting."""

T = TypeVar("T")


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
        self._post("write_kernel_log", record=encode_record(record).decode())

    def read_kernel_log(self) -> list[str]:
        return self._call(list[str], "read_kernel_log")

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        # The model's versions of long programs are short, so `ended` has nothing to end.
        return self._call(ProgramResult, "run", timeout_s, argv=list(argv), timeout_s=timeout_s)

    def read_file(self, path: str) -> str:
        return self._call(str, "read_file", path=path)

    def write_file(self, path: str, content: str) -> None:
        self._post("write_file", path=path, content=content)

    def boot_id(self) -> str:
        return self._call(str, "boot_id")

    def gpus(self) -> list[GpuSample]:
        self._require_driver()
        return sorted(self._call(list[GpuSample], "gpus"), key=lambda gpu: gpu.index)

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        return self._call(tuple[str, ...], "pod_gpus", namespace=namespace, pod=pod)

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        self._require_driver()
        return self._call(LoadResult, "measure_load", seconds, gpu=gpu, seconds=seconds)

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        self._require_driver()
        return self._works.start(gpu, lambda: self._start(gpu, order))

    def steer_work(self, gpu: int, utilization: float) -> None:
        self._works.steer(gpu, utilization)

    def work_report(self, gpu: int) -> WorkReport | None:
        return self._works.report(gpu)

    def end_work(self, gpu: int) -> WorkReport | None:
        last = self._works.end(gpu)
        self._post("end_work", gpu=gpu)
        return last

    def has_work(self, gpu: int) -> bool:
        return self._call(bool, "has_work", gpu=gpu)

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        self._require_driver()
        return self._call(tuple[GpuUser, ...], "gpu_users", gpu=gpu)

    def own_address(self) -> str:
        return _LOOPBACK  # agents' pods are processes of one machine

    def listen(self, interface: str) -> Listener:
        address = self._call(str, "listen", interface=interface)
        listening = socket.create_server((_LOOPBACK, 0))
        return Listener(listening, address, listening.getsockname()[1])

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        """Connect by way of the model, which passes bytes on as the interface's queue allows."""
        way = self._call(int, "connect", timeout_s, interface=interface, address=address, port=port)
        try:
            return socket.create_connection((_LOOPBACK, way), timeout_s)
        except OSError as error:
            raise LinkError(f"{interface} to {address}: {error.strerror or error}") from None

    def dcgm_engines(self) -> DcgmEngines:
        return self._call(DcgmEngines, "dcgm_engines")

    def _require_driver(self) -> None:
        if self._environment.get(NO_DRIVER_VARIABLE):
            raise HostError(f"NVML not found: {NO_LIBRARY_HINT}")

    def api_server(self) -> ApiServer:
        from gameday.host.api_account import on_virtual_node  # noqa: PLC0415 - few roles use the API

        return on_virtual_node(self._environment)

    def _start(self, gpu: int, order: WorkOrder) -> Work:
        """Start work on a GPU. Raises HostError."""
        method = "start_work"
        connection = HTTPConnection(self._host, self._port, timeout=FIRST_REPORT_TIMEOUT_S)
        try:
            connection.connect()
        except OSError as error:
            raise self._unreachable(method, error) from None
        connected_socket = connection.sock
        answer = self._request(connection, method, {"gpu": gpu, "order": order.model_dump()})
        if answer.status >= 400:
            raise _refusal(method, answer.status, answer.read(_MAX_BODY_BYTES))

        def cut_off() -> None:
            # close() would break the thread that is reading the answer.
            with suppress(OSError):
                connected_socket.shutdown(socket.SHUT_RDWR)

        def steer(utilization: float) -> None:
            self._post("steer_work", gpu=gpu, utilization=utilization)

        return Work(_lines(connection, answer), cut_off, steer)

    def _call(self, returns: type[T], method: str, work_s: float = 0, **arguments: Any) -> T:
        """Return what a method of the host returns; raises HostError."""
        raw = self._post(method, work_s, **arguments)
        try:
            return TypeAdapter(returns).validate_json(raw)
        except ValidationError as error:
            raise HostError(f"virtual host {method}: unexpected answer: {error.errors()[0]['msg']}") from None

    def _post(self, method: str, work_s: float = 0, **arguments: Any) -> bytes:
        """Return the body of a 2xx answer; `work_s` is the time in seconds that the host may need before it answers."""
        connection = HTTPConnection(self._host, self._port, timeout=work_s + _ANSWER_TIMEOUT_S)
        try:
            answer = self._request(connection, method, arguments)
            raw = answer.read(_MAX_BODY_BYTES)
        except (OSError, HTTPException) as error:
            raise self._unreachable(method, error) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise _refusal(method, answer.status, raw)
        return raw

    def _request(self, connection: HTTPConnection, method: str, arguments: Mapping[str, Any]) -> HTTPResponse:
        """Return the answer with its body unread. Raises HostError."""
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", f"{self._path}/call/{method}", json.dumps(arguments), headers)
            return connection.getresponse()
        except (OSError, HTTPException, UnicodeError) as error:
            connection.close()
            raise self._unreachable(method, error) from None

    def _unreachable(self, method: str, error: Exception) -> HostError:
        return HostError(f"virtual host {self._host}:{self._port} {method}: {error or type(error).__name__}")


def _refusal(method: str, status: int, raw: bytes) -> HostError:
    """Return the error of an answer."""
    if status == LINK_STATUS:
        return LinkError(_reason(raw))
    kind = HostBusyError if status == BUSY_STATUS else HostError
    return kind(f"virtual host {method}: HTTP {status}: {_reason(raw)}")


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
