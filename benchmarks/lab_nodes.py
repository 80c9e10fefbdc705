"""Virtual GPU nodes beside kwok on one real control plane, and beside themselves on the embedded API server.

For each size and kind, one after the other: nodes from the first one created to the last one Ready; pods, bound to
nodes beforehand, from the first one created to the last one Running; and what keeping the nodes costs when nothing
happens. kwok's nodes are created by this program; its stages are those of its release that kwokctl takes by default
("fast", and heartbeats with Leases), read from the Go module that it was built from.
It models no GPUs, no logs, no containers that end, no agent processes, and records no events; ours do all of that.
Beyond 1,000 nodes all Leases last longer (`lease_duration_s`), kwok's as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.concurrent_calls import await_all
from benchmarks.processes import resident
from gameday.processes.children import Child, cpu_seconds
from gameday_rehearsal.lab.settings import STOCK
from gameday_rehearsal.lease_duration import lease_duration_s, monitor_grace_s
from gameday_rehearsal.programs import TOOLS
from kubesim.client import ApiClient, Object, Reflector, key_of
from kubesim.errors import ApiError
from kubesim.kubeconfig import Kubeconfig

_PLAYERS = ("ours", "kwok", "embedded")
_PHASE_WITHIN_S = 300.0
_SETTLE_S = 15.0  # for 40 s of a Lease's duration, one and a half renewals: the work of starting up has ended
_KWOK_NODE = "kwok.x-k8s.io/node"
_KWOK_MODULE = Path(__file__).parents[1] / "lab" / "kwok"
_KWOK_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
_NOT_READY = "node.kubernetes.io/not-ready"
_REQUESTS = re.compile(r"^apiserver_request_total\{.*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Server:
    """An API server to measure on: its folder of kubeconfigs, and the processes whose time is its cost."""

    folder: Path
    processes: Mapping[str, int]

    def client(self) -> ApiClient:
        return ApiClient(Kubeconfig.load(self.folder / "admin.kubeconfig"), "benchmark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 500])
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--pods-on", type=int, default=100, help="over how many of the nodes")
    parser.add_argument("--steady", type=float, default=60.0, help="seconds of rest that are measured")
    parser.add_argument("--rounds", type=int, default=2, help="each on a fresh server, who begins taking turns")
    parser.add_argument("--players", nargs="+", default=_PLAYERS, choices=_PLAYERS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gameday-benchmark-") as folder:
        for nodes in options.nodes:
            rows: dict[str, list[dict[str, float]]] = {}
            for number in range(options.rounds):
                for kind, row in _round(Path(folder) / f"{nodes}-{number}", nodes, options, number):
                    rows.setdefault(kind, []).append(row)
                    _print_table(nodes, rows)  # printed each time, so that a later kind's error loses nothing


def _round(
    folder: Path, nodes: int, options: argparse.Namespace, number: int
) -> Iterator[tuple[str, dict[str, float]]]:
    players = [one for one in (("ours", _ours), ("kwok", _kwok)) if one[0] in options.players]
    if players:
        with _lab(folder / "lab", nodes) as server:
            for kind, play in players[::-1] if number % 2 else players:
                yield kind, asyncio.run(_measure(server, play(server, nodes, folder), nodes, options))
    if "embedded" in options.players:
        with _embedded(folder / "embedded", nodes) as server:
            yield "embedded", asyncio.run(_measure(server, _ours(server, nodes, folder), nodes, options))


def _print_table(nodes: int, rows: dict[str, list[dict[str, float]]]) -> None:
    """Means over the rounds: with two of them in both orders, what the order does cancels out."""
    print(f"\n{f'{nodes} nodes':<48}{'ours':>10}{'kwok':>10}{'ours/kwok':>11}{'embedded':>10}")
    for name in dict.fromkeys(name for row in rows.values() for one in row for name in one):
        ours, kwok, embedded = (_mean(rows.get(kind, []), name) for kind in ("ours", "kwok", "embedded"))
        print(
            f"{name:<48}{ours:>10.2f}{kwok:>10.2f}{ours / (kwok or float('nan')):>11.2f}{embedded:>10.2f}", flush=True
        )


def _mean(rows: list[dict[str, float]], name: str) -> float:
    values = [row[name] for row in rows if name in row]
    return statistics.fmean(values) if values else float("nan")


# The players


@contextmanager
def _running(child: Child, *, says_ready: bool = False) -> Iterator[Child]:
    child.start()
    try:
        if says_ready:
            child.await_ready_line()
        yield child
    finally:
        child.end()


@contextmanager
def _lab(folder: Path, nodes: int) -> Iterator[Server]:
    folder.mkdir(parents=True)
    settings = STOCK.for_nodes(nodes).model_dump_json(exclude_defaults=True)
    argv = [sys.executable, "-m", "gameday_rehearsal.lab", "--data-dir", str(folder), "--settings", settings]
    with _running(Child("lab", argv, folder / "lab.log"), says_ready=True):
        components = json.loads((folder / "components.json").read_text())
        yield Server(folder, {name: one["pid"] for name, one in components.items()})


@contextmanager
def _embedded(folder: Path, nodes: int) -> Iterator[Server]:
    folder.mkdir(parents=True)
    argv = [sys.executable, "-m", "kubesim.apiserver", "--data-dir", str(folder)]
    controllers = [sys.executable, "-m", "kubesim.controllers", "--node-monitor-grace", str(monitor_grace_s(nodes))]
    for name in ("scheduler", "controllers"):
        controllers += [f"--kubeconfig-{name}", str(folder / f"{name}.kubeconfig")]
    with (
        _running(Child("apiserver", argv, folder / "apiserver.log"), says_ready=True) as child,
        _running(Child("controllers", controllers, folder / "controllers.log"), says_ready=True) as other,
    ):
        assert child.process and other.process
        yield Server(folder, {"kube-apiserver": child.process.pid, "kube-controller-manager": other.process.pid})


@dataclass(frozen=True)
class Player:
    """The process that plays the nodes; `objects` are the Nodes to create for it if it creates none."""

    child: Child
    objects: Sequence[Object] = ()


def _ours(server: Server, nodes: int, folder: Path) -> Player:
    argv = [sys.executable, "-m", "gameday_rehearsal.nodes", "--nodes", str(nodes), "--name-prefix", "node"]
    argv += ["--kubeconfig", str(server.folder / "nodes.kubeconfig"), "--tls-folder", str(server.folder)]
    return Player(Child("ours", argv, folder / "ours.log", says_ready=False))


def _kwok(server: Server, nodes: int, folder: Path) -> Player:
    argv = [str(TOOLS / "bin" / "kwok"), "--kubeconfig", str(server.folder / "admin.kubeconfig")]
    argv += ["--manage-nodes-with-annotation-selector", f"{_KWOK_NODE}=fake"]
    argv += ["--node-lease-duration-seconds", str(lease_duration_s(nodes))]
    module = ["go", "-C", str(_KWOK_MODULE), "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]
    stages = Path(subprocess.run(module, check=True, capture_output=True, text=True).stdout.strip())
    argv += [f"--config={stages / 'kustomize' / 'stage' / stage}" for stage in _KWOK_STAGES]

    names = [f"node-{number}" for number in range(1, nodes + 1)]
    meta = {"annotations": {_KWOK_NODE: "fake"}, "labels": {"type": "kwok"}}
    objects = [{"metadata": {"name": name, **meta}} for name in names]
    return Player(Child("kwok", argv, folder / "kwok.log", says_ready=False), objects)


# The measurements


async def _measure(server: Server, player: Player, nodes: int, options: argparse.Namespace) -> dict[str, float]:
    async with server.client() as api, _Following(api, "/api/v1/nodes") as following:
        player.child.start()
        try:
            row = await _registration(api, player, following, nodes)
            row |= await _pods(api, nodes, options)
            row |= await _rest(api, server, player.child, following, nodes, options.steady)
        finally:
            player.child.end()
            await _clear(api, following)
    return row


class _Following:
    """A collection as the server sends it, with the times of its events."""

    def __init__(self, api: ApiClient, path: str) -> None:
        self._reflector = Reflector(api, path)
        self.store = self._reflector.store
        self.first_added: float | None = None
        self.not_ready: set[str] = set()
        """Names of the objects that were seen without being Ready."""
        self._changed = asyncio.Event()
        self._reflector.on(self._event, lambda _, obj: self._event(obj), self._event)

    async def __aenter__(self) -> _Following:
        self._task = asyncio.create_task(self._reflector.run())
        await self._reflector.synced.wait()
        self.first_added = None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def _event(self, seen: Object) -> None:
        if not _is_ready(seen):
            self.not_ready.add(seen["metadata"]["name"])
        self.first_added = self.first_added or time.monotonic()
        self._changed.set()

    async def until(self, condition: Callable[[], bool], what: str) -> float:
        """Wait until the condition holds, and return that time in monotonic seconds."""
        try:
            async with asyncio.timeout(_PHASE_WITHIN_S):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            sys.exit(f"not within {_PHASE_WITHIN_S:.0f} s: {what}")
        return time.monotonic()


async def _registration(api: ApiClient, player: Player, following: _Following, nodes: int) -> dict[str, float]:
    if player.objects:
        await asyncio.sleep(_SETTLE_S / 3)  # its informers are up; ours is measured from its first Node, too
        await await_all(api.post("/api/v1/nodes", node) for node in player.objects)

    def all_are(condition: Callable[[Object], bool]) -> bool:
        return len(following.store) == nodes and all(map(condition, following.store.values()))

    ready = await following.until(lambda: all_are(_is_ready), f"{nodes} nodes Ready")
    begun = following.first_added
    assert begun is not None
    # Node lifecycle takes the taint of a new node away at its own client's rate: 20 requests a second by default.
    untainted = await following.until(lambda: all_are(_is_schedulable), f"{nodes} nodes without their first taint")
    return {
        "nodes Ready per second": nodes / (ready - begun),
        "nodes schedulable per second": nodes / (untainted - begun),
    }


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return bool([c for c in conditions if c["type"] == "Ready" and c["status"] == "True"])


def _is_schedulable(node: Object) -> bool:
    return _NOT_READY not in [taint["key"] for taint in node["spec"].get("taints") or ()]


async def _pods(api: ApiClient, nodes: int, options: argparse.Namespace) -> dict[str, float]:
    collection = "/api/v1/namespaces/default/pods"

    def pod(number: int) -> Object:
        spec = {
            "nodeName": f"node-{number % min(nodes, options.pods_on) + 1}",
            "containers": [{"name": "main", "image": "registry.example/train:1"}],
            "tolerations": [{"operator": "Exists"}],
        }
        return {"metadata": {"name": f"pod-{number}"}, "spec": spec}

    async with _Following(api, collection) as following:
        begun = time.monotonic()
        await await_all(api.post(collection, pod(number)) for number in range(options.pods))

        def all_run() -> bool:
            running = [pod for pod in following.store.values() if pod["status"].get("phase") == "Running"]
            return len(running) == int(options.pods)

        created = time.monotonic()
        running = await following.until(all_run, f"{options.pods} pods Running")
        await asyncio.sleep(_SETTLE_S / 3)
        deleting = time.monotonic()
        await await_all(api.delete(f"{collection}/pod-{number}") for number in range(options.pods))
        gone = await following.until(lambda: not following.store, "pods gone")
    return {
        "pods created per second (limit)": options.pods / (created - begun),
        "pods Running per second": options.pods / (running - begun),
        "pods deleted per second": options.pods / (gone - deleting),
    }


async def _rest(
    api: ApiClient, server: Server, child: Child, following: _Following, nodes: int, seconds: float
) -> dict[str, float]:
    await asyncio.sleep(_SETTLE_S * lease_duration_s(nodes) / lease_duration_s(1))
    assert child.process
    processes = {"nodes": child.process.pid, **server.processes}
    began, requests = time.monotonic(), await _requests(api, server)
    before = {name: cpu_seconds(pid) for name, pid in processes.items()}
    following.not_ready.clear()
    await asyncio.sleep(seconds)
    after = {name: cpu_seconds(pid) for name, pid in processes.items()}
    lasted = time.monotonic() - began
    made = await _requests(api, server) - requests
    cpu = {f"at rest: {name}, % of a core": 100 * (after[name] - before[name]) / lasted for name in processes}
    memory = {f"{name}, RSS in MiB": resident(pid) / 2**20 for name, pid in processes.items()}
    return {
        "at rest: requests per second": made / lasted,
        "at rest: nodes that were not Ready": len(following.not_ready),
        **cpu,
        "at rest: all, % of a core": sum(cpu.values()),
        **memory,
        "all, RSS in MiB": sum(memory.values()),
    }


async def _requests(api: ApiClient, server: Server) -> float:
    """Return the number of requests that the API server has answered; it counts a watch when it ends."""
    config = Kubeconfig.load(server.folder / "admin.kubeconfig")
    headers = {"Authorization": f"Bearer {config.token}"} if config.token else {}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=config.tls or True), headers=headers) as session,
        session.get(f"{config.server}/metrics") as answer,
    ):
        return float(sum(map(float, _REQUESTS.findall(await answer.text()))))


async def _clear(api: ApiClient, following: _Following) -> None:
    """Take every Node away, and the Leases that the garbage collector would take in its time."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    found = [f"/api/v1/nodes/{key_of(node)}" for node in following.store.values()]
    found += [f"{leases}/{lease['metadata']['name']}" for lease in (await api.get(leases))["items"]]

    async def delete(path: str) -> None:
        with contextlib.suppress(ApiError):
            await api.delete(path)

    await await_all(map(delete, found))
    await following.until(lambda: not following.store, "nodes gone")


if __name__ == "__main__":
    main()
