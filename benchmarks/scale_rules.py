"""Our alert rules over made-up series in a real Prometheus: what it takes for a few thousand GPUs, to be extrapolated.

Each GPU has one series of every counter that the rules for GPU nodes read, as dcgm-exporter labels it, and all are 0:
nothing fires. Series of kube-state-metrics, node_exporter and our controller are not there.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
from ruamel.yaml import YAML

from benchmarks.scale_figures import Figure
from gameday.rehearsal.observability import RULES
from gameday.rehearsal.ports import HeldPorts
from gameday.rehearsal.programs import TOOLS

_GPUS = (2000, 4000, 8000)
_GPUS_PER_NODE = 8
_EVERY_S = 15
_SCRAPES = 7
_COUNTER = re.compile(r"\bDCGM_[A-Z]+_\w+")
_MEASURED = {
    "series": "sum(prometheus_tsdb_head_series)",
    "memory": "process_resident_memory_bytes",
    "rules": "sum(prometheus_rule_group_last_duration_seconds)",
    "scrape": 'max(scrape_duration_seconds{job="gpus"})',
    "cpu": "rate(process_cpu_seconds_total[1m])",
}


def rule_figures(nodes: int) -> Iterator[Figure]:
    """Yield what Prometheus takes for some thousand GPUs, and what the largest of them makes of so many nodes."""
    counters = sorted(set(_COUNTER.findall(RULES.read_text(encoding="utf-8"))))
    found = {gpus: _measure(counters, gpus) for gpus in _GPUS}
    for gpus, values in found.items():
        yield Figure(f"rules over {gpus} GPUs, {len(counters)} counters each", "", _said(values))
    (fewer, less), (more, most) = list(found.items())[-2:]
    steps = (nodes * _GPUS_PER_NODE - more) / (more - fewer)
    values = {name: most[name] + steps * (most[name] - less[name]) for name in most}
    yield Figure(f"the same for {nodes} nodes, extrapolated from the last two", "", _said(values))


def _said(found: dict[str, float]) -> str:
    return (
        f"{found['series']:,.0f} series, {found['memory'] / 2**30:.2f} GiB; all rules once in {found['rules']:.2f} s; "
        f"a scrape in {found['scrape']:.1f} s; {found['cpu']:.0%} of a core at one scrape in {_EVERY_S} s"
    )


def _measure(counters: list[str], gpus: int) -> dict[str, float]:
    """Let Prometheus scrape a page of so many GPUs and evaluate the rules; return the last values of `_MEASURED`."""
    with tempfile.TemporaryDirectory(prefix="gameday-scale-") as folder, _served(_page(counters, gpus)) as page:
        held = HeldPorts(1)
        address = f"127.0.0.1:{held.numbers[0]}"
        config = Path(folder) / "prometheus.yaml"
        with config.open("w") as out:
            YAML(typ="safe", pure=True).dump(_config(page, address), out)
        argv = [TOOLS / "bin" / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
        running = subprocess.Popen([*argv, f"--web.listen-address={address}", "--log.level=error"])
        try:
            time.sleep(_EVERY_S * (_SCRAPES + 0.5))
            return {name: _value(address, query) for name, query in _MEASURED.items()}
        finally:
            running.terminate()
            running.wait()
            held.release()


def _config(page: str, own: str) -> dict[str, object]:
    interval = f"{_EVERY_S}s"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "gpus", "static_configs": [{"targets": [page]}]},
            {"job_name": "prometheus", "static_configs": [{"targets": [own]}]},
        ],
    }


def _page(counters: list[str], gpus: int) -> bytes:
    lines = []
    for counter in counters:
        lines.append(f"# TYPE {counter} gauge")
        for number in range(gpus):
            node, gpu = divmod(number, _GPUS_PER_NODE)
            labels = (
                f'gpu="{gpu}",UUID="GPU-00000000-0000-0000-0000-{number:012d}",pci_bus_id="00000000:{gpu:02X}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-{node:05d}"'
            )
            lines.append(f"{counter}{{{labels}}} 0")
    return "\n".join([*lines, ""]).encode()


@contextmanager
def _served(page: bytes) -> Iterator[str]:
    """Serve the page under every path until the block ends; yield the server's address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            """Say nothing of each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _value(address: str, query: str) -> float:
    answer = httpx.get(f"http://{address}/api/v1/query", params={"query": query}, trust_env=False).raise_for_status()
    return float(answer.json()["data"]["result"][0]["value"][1])
