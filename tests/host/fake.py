"""A host in memory, and the same host behind the virtual host's HTTP protocol."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pydantic_core import to_json

from gameday.errors import HostError, LinkError
from gameday.host.base import (
    AllReduce,
    ApiServer,
    Burn,
    CopyToGpu,
    DcgmEngines,
    GpuSample,
    GpuUser,
    Listener,
    LoadResult,
    ProgramResult,
    ProveMemory,
    WorkOrder,
    WorkReport,
)


def healthy_gpu(index: int, **changes: Any) -> GpuSample:
    """Return the sample of an idle, healthy H100, with some fields changed."""
    fields: dict[str, Any] = {
        "index": index,
        "uuid": f"GPU-0000-{index}",
        "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": f"0000:{0x1A + index:02x}:00",
        "temperature_c": 40.0,
        "sm_clock_mhz": 1980.0,
        "sm_clock_max_mhz": 1980.0,
        "utilization_pct": 0.0,
        "clocks_event_reasons": 1,
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "memory_used_bytes": 4 << 20,
        "memory_total_bytes": 81559 << 20,
        "ecc_mode": True,
        "ecc_mode_pending": True,
        "persistence_mode": True,
        "ecc_dbe_volatile": 0,
        "remapped_rows_uncorrectable": 0,
        "row_remap_pending": False,
        "row_remap_failure": False,
        "nvlinks_active": 18,
        "nvlinks_supported": 18,
        "nvlink_mbps": 26_562,
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "cpu_affinity": "0-7",
    }
    return GpuSample.model_validate(fields | changes)


class FakeHost:
    """A Host in memory whose attributes tests may change. `refuse`: by method, the HostError's message."""

    is_virtual = True

    def __init__(self, gpus: int = 2) -> None:
        self.samples = [healthy_gpu(index) for index in range(gpus)]
        self.log: list[str] = []
        self.files: dict[str, str] = {}
        self.boot = "boot-1"
        self.refuse: dict[str, str] = {}
        self.programs: Callable[[Sequence[str]], ProgramResult] = result
        self.ran: list[tuple[str, ...]] = []
        self.loads: dict[int, LoadResult] = {}
        self.works: dict[int, WorkOrder] = {}
        self.reports: Callable[[WorkOrder], WorkReport] = report
        self.steered: list[float] = []
        self.api: ApiServer | None = None
        self.pods: dict[str, tuple[str, ...]] = {}
        self.engines = DcgmEngines()
        self.users: dict[int, tuple[GpuUser, ...]] = {}

    def write_kernel_log(self, record: str) -> None:
        self._maybe_refuse("write_kernel_log")
        self.log.append(f"[{len(self.log):5d}.000000] {record.partition('>')[2].rstrip()}")

    def read_kernel_log(self) -> list[str]:
        self._maybe_refuse("read_kernel_log")
        return list(self.log)

    def run(self, argv: Sequence[str], timeout_s: float, ended: threading.Event | None = None) -> ProgramResult:
        self._maybe_refuse("run")
        self.ran.append(tuple(argv))
        return self.programs(argv)

    def read_file(self, path: str) -> str:
        self._maybe_refuse("read_file")
        if path not in self.files:
            raise HostError(f"cannot open {path}: No such file or directory")
        return self.files[path]

    def write_file(self, path: str, content: str) -> None:
        self._maybe_refuse("write_file")
        self.files[path] = content

    def boot_id(self) -> str:
        self._maybe_refuse("boot_id")
        return self.boot

    def gpus(self) -> list[GpuSample]:
        self._maybe_refuse("gpus")
        return list(self.samples)

    def pod_gpus(self, namespace: str, pod: str) -> tuple[str, ...]:
        self._maybe_refuse("pod_gpus")
        try:
            return self.pods[f"{namespace}/{pod}"]
        except KeyError:
            raise HostError(f"the kubelet lists no GPU of pod {namespace}/{pod}") from None

    def measure_load(self, gpu: int, seconds: float) -> LoadResult:
        self._maybe_refuse("measure_load")
        return self.loads.get(gpu) or LoadResult(gpu=gpu, gemm_tflops=700.0, memory_bandwidth_gbs=2800.0)

    def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
        self._maybe_refuse("start_work")
        self.works[gpu] = order
        return self.reports(order)

    def steer_work(self, gpu: int, utilization: float) -> None:
        self._maybe_refuse("steer_work")
        self.steered.append(utilization)

    def work_report(self, gpu: int) -> WorkReport | None:
        self._maybe_refuse("work_report")
        return self.reports(self.works[gpu]) if gpu in self.works else None

    def end_work(self, gpu: int) -> WorkReport | None:
        self._maybe_refuse("end_work")
        order = self.works.pop(gpu, None)
        return self.reports(order) if order else None

    def has_work(self, gpu: int) -> bool:
        self._maybe_refuse("has_work")
        return gpu in self.works

    def gpu_users(self, gpu: int) -> tuple[GpuUser, ...]:
        self._maybe_refuse("gpu_users")
        return self.users.get(gpu, ())

    def dcgm_engines(self) -> DcgmEngines:
        self._maybe_refuse("dcgm_engines")
        return self.engines

    def api_server(self) -> ApiServer:
        self._maybe_refuse("api_server")
        if self.api is None:
            raise HostError("this pod has no API account")
        return self.api

    def own_address(self) -> str:
        return "127.0.0.1"

    def listen(self, interface: str) -> Listener:
        self._maybe_refuse("listen")
        listening = socket.create_server(("127.0.0.1", 0))
        return Listener(listening, *listening.getsockname())

    def connect(self, interface: str, address: str, port: int, timeout_s: float) -> socket.socket:
        if "connect" in self.refuse:
            raise LinkError(self.refuse["connect"])
        return socket.create_connection((address, port), timeout_s)

    def _maybe_refuse(self, method: str) -> None:
        if method in self.refuse:
            raise HostError(self.refuse[method])


def report(order: WorkOrder) -> WorkReport:
    """Return what healthy work reports."""
    match order:
        case Burn():
            return WorkReport(seconds=1.0, tflops=700.0, products=10, digest="5eed")
        case CopyToGpu():
            return WorkReport(seconds=1.0, copy_gbs=54.0, memory_node=order.memory_node)
        case AllReduce():
            return WorkReport(seconds=1.0, bus_gbs=470.0)
        case ProveMemory():
            return WorkReport(seconds=1.0, proved_bytes=70 << 30)
    return WorkReport(seconds=1.0)


def result(argv: Sequence[str], exit_status: int = 0, stdout: str = "", stderr: str = "") -> ProgramResult:
    return ProgramResult(argv=tuple(argv), exit_status=exit_status, stdout=stdout, stderr=stderr)


class VirtualHostServer:
    """A FakeHost behind HTTP on a free port of 127.0.0.1, with the protocol of gameday.host.virtual."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(host))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hosts/node-1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(host: FakeHost) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                answer = getattr(host, self.path.removeprefix("/hosts/node-1/call/"))(**arguments)
            except HostError as error:
                self._send(503, {"error": str(error)})
            else:
                self._send(200, answer)

        def _send(self, status: int, answer: Any) -> None:
            raw = to_json(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
