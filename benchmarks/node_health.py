"""The quick part of the node-health controller: from a line in the log store to the taint on the node.

Three processes of their own: the simulated API server, the rehearsal's log store, and the controller with its default
policy, whose brake is set aside. A taint counts when a watch in this process shows it, so that watching and all three
servers share the machine. Rounds:

* faults: one after the other, each on a node of its own;
* storm: one line for each of many nodes, pushed in one request;
* losses: a storm in which the controller is killed, one in which the log store is, and faults under noise;
* flood: very many lines of one node at once, and then a fault of another one;
* leaders: two controllers, and lines at a steady rate, while the leader is killed and while it is stopped;
* idle: memory and CPU of a controller that has nothing to do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import resident
from benchmarks.seeded_nodes import seed_nodes
from benchmarks.storm_policy import write_storm_policy
from gameday.cluster.watch import Follower
from gameday.health.api import MERGE_PATCH, Api
from gameday.health.claim import CLAIM_DURATION
from gameday.health.model import REASON
from gameday.rehearsal.children import cpu_seconds
from gameday.rehearsal.ports import HeldPorts
from gameday.xid.lines import format_xid

_KERNEL_LOG = {"k8s_namespace_name": "dmesg-logging", "k8s_daemonset_name": "dmesg"}
_PCI = "0000:4e:00"
_ORDINARY = "usb 1-1: new high-speed USB device number 4 using xhci_hcd"
_NOISE_BATCH = 500
_FLOOD_BATCH = 2000  # as deploy's collectors and the rehearsal's shipper send at most
_TIMEOUT_S = 120.0
_STATUS_EVERY_S = 300.0  # the kubelet's nodeStatusReportFrequency


class Process:
    """A server that prints one JSON line when it is ready."""

    def __init__(self, module: str, *arguments: object) -> None:
        self.command = [sys.executable, "-m", module, *map(str, arguments)]
        self.ready: dict[str, Any] = {}

    def start(self) -> None:
        self.running = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        assert self.running.stdout
        self.ready = json.loads(self.running.stdout.readline())

    def kill(self) -> None:
        self.running.kill()
        self._await_end()

    def stop(self) -> None:
        self.running.terminate()
        self._await_end()

    @property
    def cpu_s(self) -> float:
        """The processor time that it has used."""
        return cpu_seconds(self.running.pid)

    @property
    def resident_mib(self) -> float:
        """Its resident memory, in MiB."""
        return resident(self.running.pid) / 2**20

    def _await_end(self) -> None:
        self.running.wait()
        assert self.running.stdout
        self.running.stdout.close()


class Bench:
    """The three processes, and a watch that dates each node's taint."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Start the servers; the API server has these nodes from the beginning."""
        seed_nodes(folder / "api", names)
        self._ports = HeldPorts(2)
        api_port, log_port = self._ports.numbers
        self.apiserver = Process("kubesim.apiserver", "--port", api_port, "--data-dir", folder / "api")
        self.logs = Process("gameday.rehearsal.logstore", "--port", log_port, "--data-dir", folder / "logs")
        self.loki = f"http://127.0.0.1:{log_port}"
        self.apiserver.start()
        self.logs.start()
        kubeconfig = Path(self.apiserver.ready["kubeconfig"])
        self.api = Api(kubeconfig)
        self.http = httpx.Client(trust_env=False, timeout=60)
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": "gameday"}})
        policy = write_storm_policy(folder, at_once=1)  # no repairer reads how many
        options = ("--kubeconfig", kubeconfig, "--loki-url", self.loki, "--policy", policy)
        self.health = Process("gameday.health", *options)
        self.candidates = [Process("gameday.health", *options, "--leader-election") for _ in range(2)]
        self.tainted: dict[str, float] = {}
        self._watch = Follower(self.api.list_node, self._changed, _name_if_tainted)
        self._watch.__enter__()
        self._watch.require_synced(_TIMEOUT_S)

    def close(self) -> None:
        self._watch.stop()
        for process in (self.health, *self.candidates, self.logs, self.apiserver):
            if process.ready:
                process.kill()
        self._ports.release()

    def _changed(self, kind: str, name: str) -> None:
        if name:
            self.tainted.setdefault(name, time.monotonic())

    def untaint(self, name: str) -> None:
        self.api.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, None, MERGE_PATCH)

    def node(self, name: str) -> dict[str, Any]:
        return self.api.request("GET", f"/api/v1/nodes/{name}")

    def push(self, lines: Sequence[tuple[str, str]]) -> None:
        """Push (node, line) pairs in one request."""
        now = time.time_ns()
        streams = [
            {"stream": _KERNEL_LOG | {"k8s_node_name": node}, "values": [[str(now + index), line]]}
            for index, (node, line) in enumerate(lines)
        ]
        self.http.post(f"{self.loki}/loki/api/v1/push", json={"streams": streams}).raise_for_status()

    def await_tainted(self, names: Sequence[str]) -> list[str]:
        """Wait until all of these are tainted; return those that are not in time."""
        deadline = time.monotonic() + _TIMEOUT_S
        while (missing := [name for name in names if name not in self.tainted]) and time.monotonic() < deadline:
            time.sleep(0.005)
        return missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--storm", type=int, default=750)
    parser.add_argument("--of", type=int, help="nodes of the storm's cluster; none: as many as it strikes")
    parser.add_argument("--noise", type=int, default=10_000, help="lines per second")
    parser.add_argument("--flood", type=int, default=48_000, help="lines of one node")
    parser.add_argument("--lines", type=int, default=10, help="per second, while the leader changes")
    parser.add_argument("--idle", type=int, default=5000, help="nodes")
    parser.add_argument("--rounds", nargs="+", default=["faults", "storm", "losses", "flood", "leaders", "idle"])
    arguments = parser.parse_args()
    rounds: dict[str, Callable[[], None]] = {
        "faults": lambda: _faults(arguments.faults),
        "storm": lambda: print(storm(arguments.storm, arguments.of or arguments.storm)),
        "losses": lambda: _losses(arguments.noise),
        "flood": lambda: print(*flood(arguments.flood), sep="\n"),
        "leaders": lambda: _leaders(arguments.lines),
        "idle": lambda: print(*idle(arguments.idle), sep="\n"),
    }
    for name in arguments.rounds:
        rounds[name]()


@contextmanager
def _bench(names: Sequence[str]) -> Iterator[Bench]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        bench = Bench(Path(folder), names)
        stack.callback(bench.close)
        yield bench


def _numbered(count: int, prefix: str = "node") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def _faults(count: int) -> None:
    names = _numbered(max(count, 50))
    with _bench(names) as bench:
        bench.health.start()
        print(f"one fault at a time: {_latency(_one_by_one(bench, names[:count]))}")


def _one_by_one(bench: Bench, names: Sequence[str]) -> list[float]:
    took: list[float] = []
    for name in names:
        began = time.monotonic()
        bench.push([(name, _lost())])
        if bench.await_tainted([name]):
            print(f"  {name}: not tainted within {_TIMEOUT_S:g} s")
        took.append(bench.tainted.get(name, time.monotonic()) - began)
        time.sleep(0.05)
    return took


def storm(count: int, nodes: int) -> str:
    """Return how long it takes to taint so many nodes of a cluster at once."""
    names = _numbered(nodes)
    with _bench(names) as bench:
        struck = names[:count]
        bench.health.start()
        before = bench.health.cpu_s
        began = time.monotonic()
        bench.push([(name, _lost()) for name in struck])
        missing = bench.await_tainted(struck)
        took = [bench.tainted[name] - began for name in struck if name in bench.tainted]
        cpu = bench.health.cpu_s - before
        memory = bench.health.resident_mib
    said = f"storm of {count} of {nodes}: all in {max(took):.2f} s, {len(missing)} missing"
    return f"{said}; controller {cpu:.1f} s of CPU, {memory:.0f} MiB resident; {_latency(took)}"


def _losses(per_second: int) -> None:
    killed, away, noisy = (_numbered(100, kind) for kind in ("killed", "away", "noisy"))
    with _bench([*killed, *away, *noisy]) as bench:
        _kill_controller(bench, killed)
        bench.logs.kill()
        time.sleep(2)
        bench.logs.start()
        bench.push([(name, _lost()) for name in away])
        print(f"log store killed: {len(bench.await_tainted(away))} lost")
        _find_in_noise(bench, noisy, per_second)


def _kill_controller(bench: Bench, names: Sequence[str]) -> None:
    bench.health.start()
    bench.push([(name, _lost()) for name in names])
    while not bench.tainted:
        time.sleep(0.001)
    bench.health.kill()
    before = len(bench.tainted)
    bench.health.start()
    lost = len(bench.await_tainted(names))
    print(f"controller killed after {before} of {len(names)} taints: {lost} lost")


def _find_in_noise(bench: Bench, names: Sequence[str], per_second: int) -> None:
    stop = threading.Event()
    sent: list[int] = []
    sender = threading.Thread(target=_make_noise, args=(bench, per_second, stop, sent))
    began = time.monotonic()
    sender.start()
    time.sleep(2)
    took = _one_by_one(bench, names)
    stop.set()
    sender.join()
    rate = sum(sent) / (time.monotonic() - began)
    lost = len(bench.await_tainted(names))
    print(f"under {rate:.0f} lines of noise a second: {lost} of {len(names)} lost; {_latency(took)}")


def flood(count: int) -> Iterator[str]:
    """Yield how long a flood of one node delays another node's fault after it, and its own."""
    for kind, texts in (("one text", [""]), ("no two alike", [f"error {number:x}" for number in range(count)])):
        lines = [f"[{n:12.6f}] {format_xid(13, _PCI, text=texts[n % len(texts)])}" for n in range(count)]
        with _bench(["loud", "quiet"]) as bench:
            bench.health.start()
            cpu, began = bench.health.cpu_s, time.monotonic()
            for first in range(0, count, _FLOOD_BATCH):
                bench.push([("loud", line) for line in lines[first : first + _FLOOD_BATCH]])
            pushed = time.monotonic()
            bench.push([("quiet", _lost()), ("loud", f"[{count:12.6f}] {format_xid(79, _PCI)}")])
            missing = bench.await_tainted(["quiet", "loud"])
            took = {name: f"{at - pushed:.2f} s" for name, at in bench.tainted.items()}
            yield f"flood of {count} lines, {kind}, in {pushed - began:.1f} s: {len(missing)} missing, {took}"
            yield f"  controller {bench.health.cpu_s - cpu:.1f} s of CPU, {bench.health.resident_mib:.0f} MiB resident"


def _leaders(per_second: int) -> None:
    ends = (("killed", Process.kill), ("stopped", Process.stop))
    with _bench([name for how, _ in ends for names in _of_change(how, per_second) for name in names]) as bench:
        leader, standby = bench.candidates
        leader.start()
        for how, end in ends:
            standby.start()
            _change_leader(bench, how, partial(end, leader), per_second)
            leader, standby = standby, leader


def _of_change(how: str, per_second: int) -> tuple[list[str], list[str]]:
    """Return the nodes of a change of the leader: those that are returned before it, and those that fail meanwhile."""
    claim_s = CLAIM_DURATION.total_seconds()
    return _numbered(20, f"{how}-returned"), _numbered(round(2 * claim_s * per_second), how)


def _change_leader(bench: Bench, how: str, end_leader: Callable[[], None], per_second: int) -> None:
    """End the leader while lines are written, some of them of nodes that were returned before."""
    claim_s = CLAIM_DURATION.total_seconds()
    returned, faulty = _of_change(how, per_second)
    bench.push([(name, _lost()) for name in returned])
    missing = bench.await_tainted(returned)
    for name in returned:
        bench.untaint(name)
    while any(REASON in (bench.node(name)["metadata"].get("annotations") or {}) for name in returned):
        time.sleep(0.05)
    pushed: dict[str, float] = {}
    writer = threading.Thread(target=_push_steadily, args=(bench, faulty, per_second, pushed))
    writer.start()
    bench.await_tainted(faulty[: 5 * per_second])
    began = time.monotonic()
    end_leader()
    ended = time.monotonic()
    writer.join()
    missing += bench.await_tainted(faulty)
    gap = min(bench.tainted[name] for name, at in pushed.items() if at > ended and name in bench.tainted) - began
    doubled = sum(bool(_name_if_tainted(bench.node(name))) for name in returned)
    print(
        f"leader {how} under {per_second} lines a second: ended within {ended - began:.1f} s; next leader's first taint"
    )
    print(f"  after {gap:.1f} s, {gap / claim_s:.2f} of the claim; {len(missing)} lost, {doubled} of 20 doubled")


def _push_steadily(bench: Bench, names: Sequence[str], per_second: int, pushed: dict[str, float]) -> None:
    due = time.monotonic()
    for name in names:
        bench.push([(name, _lost())])
        pushed[name] = time.monotonic()
        due += 1 / per_second
        time.sleep(max(0.0, due - time.monotonic()))


def _make_noise(bench: Bench, per_second: int, stop: threading.Event, sent: list[int]) -> None:
    """Push ordinary lines of the kernel, and one application's Xid in a hundred."""
    client = httpx.Client(trust_env=False, timeout=60)
    due = time.monotonic()
    while not stop.is_set():
        due += _NOISE_BATCH / per_second
        now = time.time_ns()
        values = [
            [str(now + index), format_xid(13, _PCI) if index % 100 == 0 else _ORDINARY] for index in range(_NOISE_BATCH)
        ]
        stream = _KERNEL_LOG | {"k8s_node_name": "killed-0"}
        client.post(f"{bench.loki}/loki/api/v1/push", json={"streams": [{"stream": stream, "values": values}]})
        sent.append(_NOISE_BATCH)
        stop.wait(max(0.0, due - time.monotonic()))


def idle(count: int, seconds: float = 30.0) -> Iterator[str]:
    """Yield what a controller's start costs, and one that has nothing to do, without and with updates of status."""
    with _bench(_numbered(count)) as bench:
        began = time.monotonic()
        bench.health.start()
        yield f"started with {count} nodes in {time.monotonic() - began:.1f} s, {bench.health.cpu_s:.1f} s of CPU"
        time.sleep(5)
        for per_second in (0.0, count / _STATUS_EVERY_S):
            before, began = bench.health.cpu_s, time.monotonic()
            sent = _update_steadily(bench, count, per_second, seconds)
            lasted = time.monotonic() - began
            share = (bench.health.cpu_s - before) / lasted
            used = f"{bench.health.resident_mib:.0f} MiB resident, {share:.1%} of a core"
            yield f"idle with {count} nodes, {sent / lasted:.0f} status updates a second: {used}"


def _update_steadily(bench: Bench, nodes: int, per_second: float, seconds: float) -> int:
    """Update one node's status after the other at a rate; return how many were."""
    if not per_second:
        time.sleep(seconds)
        return 0
    total = round(seconds * per_second)
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        for sent in range(total):
            pool.submit(_update_status, bench, f"node-{sent % nodes}", sent)
            time.sleep(max(0.0, began + sent / per_second - time.monotonic()))
    return total


def _update_status(bench: Bench, name: str, number: int) -> None:
    """Write a node's status as a kubelet does, with fifty images."""
    images = [{"names": [f"registry.example/image-{index}:{number}"], "sizeBytes": number} for index in range(50)]
    path = f"/api/v1/nodes/{name}/status"
    bench.api.request("PATCH", path, {"status": {"images": images}}, None, "application/merge-patch+json")


def _lost() -> str:
    return f"[{time.monotonic():12.6f}] {format_xid(79, _PCI)}"


def _latency(took: Sequence[float]) -> str:
    p99 = statistics.quantiles(took, n=100)[98]
    return f"p50 {statistics.median(took):.3f} s, p99 {p99:.3f} s, worst {max(took):.3f} s"


def _name_if_tainted(node: dict[str, Any]) -> str:
    taints = node["spec"].get("taints") or []
    is_ours = any(taint["key"] == "trainy.konduktor.ai/faulty" for taint in taints)
    return str(node["metadata"]["name"]) if is_ours else ""


if __name__ == "__main__":
    main()
