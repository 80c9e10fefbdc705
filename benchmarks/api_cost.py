"""The cost of a game-day to API servers of clusters of different sizes: requests, bytes, our own CPU time and memory.

The budget is our own: at most 40 requests and 1 MB for a one-node game-day,
and no more than 1.2 times its own cost at 100 nodes. With `--pods` each cluster
of more than 100 nodes gets so many pods that are bound to its nodes, beside
those of its training. What the cluster itself takes is printed as well, by process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from benchmarks.concurrent_calls import await_all
from benchmarks.processes import resident, tree
from gameday.history.events import ApiCost, OwnCost
from gameday.history.journal import History, read_history
from gameday.rehearsal.blueprint import Blueprint, Detector, Size
from gameday.rehearsal.children import cpu_seconds
from gameday.rehearsal.cluster import RehearsalCluster
from kubesim.client import ApiClient, Object
from kubesim.kubeconfig import Kubeconfig

_SMALL = 100
"""Nodes of the cluster that others are compared with; it gets no further pods."""
_PLAN = "gpu-fell-off-the-bus"
_GPUS = 8
_PODS = "/api/v1/namespaces/default/pods"
_LOOK_EVERY_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[_SMALL, 1000])
    parser.add_argument("--pods", type=int, default=0, help="pods of clusters of more than 100 nodes, besides training")
    options = parser.parse_args()
    for nodes in options.nodes:
        _measure(nodes, options.pods if nodes > _SMALL else 0)


def _measure(nodes: int, pods: int) -> None:
    with tempfile.TemporaryDirectory(prefix="gameday-benchmark-") as folder:
        started = time.monotonic()
        with RehearsalCluster(Blueprint(Path(folder) / "cluster", Size(nodes, _GPUS), Detector.DEFAULT)) as cluster:
            up = time.monotonic()
            if pods:
                asyncio.run(_add_pods(cluster, nodes, pods))
            print(f"{nodes} nodes: up in {up - started:.0f} s, {pods} more pods in {time.monotonic() - up:.0f} s")
            before, began = _cpu_s_of_parts(), time.monotonic()
            code = _play(cluster, Path(folder) / "reports")
            _print_cluster(before, time.monotonic() - began)
        history = read_history(next((Path(folder) / "reports").glob("*/history.jsonl")))
    print(f"  the game-day: exit {code}")
    _print_requests(history)
    _print_own(history)


async def _add_pods(cluster: RehearsalCluster, nodes: int, pods: int) -> None:
    """Create pods that are bound already, and wait until all of them run."""
    async with ApiClient(Kubeconfig.load(cluster.admin_kubeconfig), "benchmark") as api:
        await await_all(api.post(_PODS, _pod(number, f"gpu-node-{number % nodes + 1}")) for number in range(pods))
        while len((await api.get(f"{_PODS}?fieldSelector=status.phase!=Running&limit=1"))["items"]):
            await asyncio.sleep(_LOOK_EVERY_S)


def _pod(number: int, node: str) -> Object:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "registry.example/web:1"}]}
    return {"metadata": {"name": f"web-{number}", "labels": {"app": "web"}}, "spec": spec}


def _play(cluster: RehearsalCluster, reports: Path) -> int:
    argv = [sys.executable, "-m", "gameday.cli", "run", _PLAN]
    argv += ["--profile", str(cluster.profile), "--reports", str(reports)]
    environment = {**os.environ, **cluster.prefect_client}
    return subprocess.run(argv, capture_output=True, env=environment, check=False).returncode


def _cpu_s_of_parts() -> dict[int, float]:
    """Return the processor time of each process that this one has started, by its pid."""
    return {pid: cpu_seconds(pid) for pid in tree(os.getpid()) - {os.getpid()}}


def _print_cluster(before: Mapping[int, float], seconds: float) -> None:
    """Print the cores that the cluster's processes took since `before`, and the memory that they hold now."""
    memory: defaultdict[str, int] = defaultdict(int)
    cores: defaultdict[str, float] = defaultdict(float)
    for pid, cpu_s in _cpu_s_of_parts().items():
        if pid in before:
            memory[_part(pid)] += resident(pid)
            cores[_part(pid)] += (cpu_s - before[pid]) / seconds
    print(f"  the cluster: {sum(memory.values()) / 1e6:.0f} MB, {sum(cores.values()):.2f} cores under the game-day")
    for part in sorted(memory, key=lambda part: -memory[part]):
        print(f"      {memory[part] / 1e6:5.0f} MB {cores[part]:5.2f} cores  {part}")


def _part(pid: int) -> str:
    """Return the module of a process of Python, and the program of another one."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    return words[words.index("-m") + 1] if "-m" in words else Path(words[0]).name


def _print_requests(history: History) -> None:
    for cost in history.of(ApiCost):
        print(f"  {cost.server:<13} {cost.requests:5} requests {cost.bytes_received:10} B in {cost.bytes_sent:9} B out")
        if cost.server == "kubernetes":
            for call, count in sorted(cost.by_call.items(), key=lambda item: -item[1]):
                print(f"      {count:4}  {call}")


def _print_own(history: History) -> None:
    """The length is from the first event to the last: without the cluster's start, and without the report."""
    length_s = history.records[-1].monotonic - history.records[0].monotonic
    if own := history.last(OwnCost):
        memory = own.peak_rss_bytes / 1e6
        print(f"  length {length_s:.1f} s; own {own.cpu_s:.1f} s of processor, {memory:.0f} MB at most", flush=True)


if __name__ == "__main__":
    main()
