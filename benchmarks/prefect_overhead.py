"""Prefect's part of a game-day's time, and what a season of many plans costs its server, under `gameday up`.

The parts come from one run, so nothing is compared with a run without Prefect, whose waits would differ by more than
Prefect takes. Prefect's states say when the worker took the run and when it ended; the run's history says when each
step began and ended; Prefect's task runs say how long the report was rendered and published. Whatever lies between
these is called Prefect's, though some of it is ours: the start of Python with all our imports, the plan, the leases.
So each share is an upper bound. The process that the worker starts for a run has a row of its own: a season starts one
for all its game-days. The wait until the worker asks for work is no part of it: its length is a setting.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
from ruamel.yaml import YAML

from benchmarks.processes import resident, tree
from gameday.history.events import StepEnded, StepStarted
from gameday.history.journal import read_history
from gameday.rehearsal.children import cpu_seconds
from gameday.shipped import shipped

_PLAN = "xid-95-uncontained-ecc"
_SERVER = b"gameday.rehearsal.prefect_app:create_app"
_EVERY_S = 0.5
_LOCKED = 503  # Prefect's answer while its SQLite is locked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="game-days by themselves")
    parser.add_argument("--season", type=int, default=30, help="plans of the season")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _up(Path(folder), options.nodes, options.season) as up:
        print(f"load average before: {os.getloadavg()[0]:.1f}")
        played = [up.play("game-day/game-day (breaks one GPU)", plan=_PLAN) for _ in range(options.runs)]
        _print("a game-day", [up.parts(one) for one in played])
        with _Server(up.server()) as server:
            began = time.monotonic()
            season = up.play("season/weekly (breaks GPUs)", plans=up.plans, at_once=options.at_once)
            wall = time.monotonic() - began
        runs = up.runs_of(season)
        _print(f"a game-day of a season of {len(runs)}, {options.at_once} at once", [up.parts(run) for run in runs])
        print(f"season: {up.state(season)['name']}, wall {wall:.0f} s, {wall / len(runs):.1f} s for each plan")
        for state in map(up.state, runs):
            if state["type"] != "COMPLETED":
                print(f"  {state['name']}: {state['message']}")
        print(f"server: {server.cpu_s:.1f} s of processor time ({server.cpu_s / wall:.0%} of a core), {server.growth}")


@dataclass(frozen=True)
class Parts:
    """A game-day's wall time, from when the worker or the season took it to its last state, and its parts; seconds."""

    process: float
    """The worker's start of a process, with its imports, until Prefect's state is Running; 0 in a season."""
    begin: float
    """The time from Running to the first record of the history: Prefect's engine, the plan."""
    between: float
    """The gaps between the steps."""
    end: float
    """The time from the last record to the last state; without the tasks that render and publish the report."""
    wall: float

    @property
    def engine(self) -> float:
        """Prefect's part at most, without the process's start."""
        return self.begin + self.between + self.end


def _print(title: str, parts: Sequence[Parts]) -> None:
    print(f"{title} ({len(parts)} runs)")
    rows = {
        "wall (s)": [one.wall for one in parts],
        "start of the process (s)": [one.process for one in parts],
        "until the first event (s)": [one.begin for one in parts],
        "between the steps (s)": [one.between for one in parts],
        "after the last event (s)": [one.end for one in parts],
        "Prefect at most (s)": [one.engine for one in parts],
        "its share (%)": [100 * one.engine / one.wall for one in parts],
        "with the process (%)": [100 * (one.engine + one.process) / one.wall for one in parts],
    }
    for name, values in rows.items():
        print(f"  {name:<28}{statistics.median(values):8.2f}  {min(values):.2f} to {max(values):.2f}")


class _Up:
    """Prefect's pages of a running `gameday up`."""

    def __init__(self, folder: Path, pages: str, pid: int, plans: Sequence[str]) -> None:
        self.plans = list(plans)
        self._folder = folder
        self._pid = pid
        self._api = httpx.Client(base_url=f"{pages}/api", timeout=60, trust_env=False)

    def play(self, deployment: str, **parameters: Any) -> str:
        """Play a deployment to its end, and return its flow run's id."""
        found = self._api.get(f"/deployments/name/{deployment}").raise_for_status().json()["id"]
        asked = {"approved_by": "benchmark", **parameters}
        run = str(self._post(f"/deployments/{found}/create_flow_run", {"parameters": asked})["id"])
        while self.state(run)["type"] not in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
            time.sleep(_EVERY_S)
        if self.state(run)["type"] != "COMPLETED":
            print(f"{deployment} ended {self.state(run)['name']}: {self.state(run)['message']}")
        return run

    def state(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self._api.get(f"/flow_runs/{run}").raise_for_status().json()["state"]
        return found

    def runs_of(self, season: str) -> list[str]:
        """Return the flow runs of a season's game-days."""
        filters = {"flow_runs": {"parent_flow_run_id": {"any_": [season]}}}
        return [str(run["id"]) for run in self._post("/flow_runs/filter", filters)]

    def parts(self, run: str) -> Parts:
        states = self._api.get("/flow_run_states/", params={"flow_run_id": run}).raise_for_status().json()
        at = {state["type"]: datetime.fromisoformat(state["timestamp"]) for state in states}
        flow_run = self._api.get(f"/flow_runs/{run}").raise_for_status().json()
        history = read_history(self._folder / "reports" / flow_run["name"].rpartition(", ")[2] / "history.jsonl")
        begun = {event.step: record.at for record, event in history.with_times(StepStarted)}
        ended = {event.step: record.at for record, event in history.with_times(StepEnded)}
        steps = list(begun)
        gaps = [(begun[after] - ended[before]).total_seconds() for before, after in pairwise(steps)]
        tasks = self._post("/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        own = sum(one["total_run_time"] for one in tasks if one["name"].startswith(("report", "publish")))
        first, last, end = history.records[0].at, history.records[-1].at, at[flow_run["state"]["type"]]
        return Parts(
            process=(at["RUNNING"] - at["PENDING"]).total_seconds(),
            begin=(first - at["RUNNING"]).total_seconds(),
            between=sum(gaps),
            end=(end - last).total_seconds() - own,
            wall=(end - at["PENDING"]).total_seconds(),
        )

    def server(self) -> int:
        """Return the process of Prefect's server."""
        return next(pid for pid in tree(self._pid) if _SERVER in Path(f"/proc/{pid}/cmdline").read_bytes())

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        while (answer := self._api.post(path, json=body)).status_code == _LOCKED:
            time.sleep(_EVERY_S)
        return answer.raise_for_status().json()


@contextmanager
def _up(folder: Path, nodes: int, plans: int) -> Iterator[_Up]:
    yaml = YAML(typ="safe", pure=True)
    shipped_plan = yaml.load(shipped("plans") / f"{_PLAN}.yaml")
    (folder / "plans").mkdir()
    paths = [folder / "plans" / f"plan-{number:02}.yaml" for number in range(1, plans + 1)]
    for path in paths:
        yaml.dump({**shipped_plan, "name": path.stem}, path)
    argv = [sys.executable, "-m", "gameday.cli", "up", "--nodes", str(nodes), "--folder", str(folder / "up")]
    with (folder / "said.txt").open("w") as said:
        process = subprocess.Popen(argv, cwd=folder, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        while "Ctrl-C ends all of it" not in (words := (folder / "said.txt").read_text(encoding="utf-8")):
            if process.poll() is not None:
                sys.exit(f"`gameday up` ended with {process.returncode}:\n{words}")
            time.sleep(_EVERY_S)
        pages = words.partition("Prefect's pages: ")[2].split()[0]
        yield _Up(folder, pages, process.pid, [str(path) for path in paths])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


class _Server:
    """The processor time and the memory of Prefect's server during a block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._sizes: list[int] = []
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> _Server:
        self._before_s = cpu_seconds(self._pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu_s = cpu_seconds(self._pid) - self._before_s
        self._ended.set()
        self._thread.join()

    @property
    def growth(self) -> str:
        return f"{self._sizes[0] / 1e6:.0f} MB before, {max(self._sizes) / 1e6:.0f} MB at most"

    def _sample(self) -> None:
        self._sizes.append(resident(self._pid))
        while not self._ended.wait(_EVERY_S):
            self._sizes.append(resident(self._pid))


if __name__ == "__main__":
    main()
