"""The default rehearsal's wall time by step, Prefect's own share of it, and the memory of every process.

Prints medians over the runs, and with two control planes (`--cluster embedded
lab`) both, run by turns, and how many times the first the second is. Prefect's share is what passes between one step's
last event and the next one's first, plus what the flow takes before the first
event and after the last: time in which no code of ours runs.
"cluster up" is another start, of everything but Prefect, until all nodes are Ready and training is submitted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.processes import resident, tree
from gameday.history.events import StepEnded, StepStarted
from gameday.history.journal import read_history
from gameday.values.results import Step
from gameday_rehearsal.blueprint import Blueprint, ControlPlane, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--cluster", nargs="+", default=["embedded"], choices=["embedded", "lab"])
    options = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = {}
    for _ in range(options.runs):
        for cluster in options.cluster:
            up_s = _start(options.nodes, ControlPlane(cluster))
            for name, value in {"cluster up (s)": up_s, **_one_run(options.nodes, cluster)}.items():
                rows.setdefault(name, {}).setdefault(cluster, []).append(value)
    print(f"{'':<28}" + "".join(f"{cluster:>10} {'min':>8} {'max':>8}" for cluster in options.cluster))
    for name, columns in rows.items():
        print(f"{name:<28}" + "".join(map(_cells, columns.values())) + _ratio(list(columns.values())))


def _cells(values: list[float]) -> str:
    return f"{statistics.median(values):10.2f} {min(values):8.2f} {max(values):8.2f}"


def _ratio(columns: list[list[float]]) -> str:
    medians = [statistics.median(values) for values in columns]
    return f"   x {medians[-1] / medians[0]:.2f}" if len(medians) > 1 and medians[0] else ""


def _start(nodes: int, control_plane: ControlPlane) -> float:
    """Start a cluster without Prefect and end it; return the seconds that its start took."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = RehearsalCluster(
            Blueprint(
                Path(folder) / "cluster", Size(nodes), Detector.DEFAULT, control_plane=control_plane, prefect=False
            )
        )
        started = time.monotonic()
        with cluster:
            return time.monotonic() - started


def _one_run(nodes: int, cluster: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as reports:
        argv = [sys.executable, "-m", "gameday.cli", "rehearse", "--reports", reports, "--nodes", str(nodes)]
        argv += ["--cluster", cluster]
        started = time.monotonic()
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        memory = _Memory(process.pid)
        output, _ = process.communicate()
        wall = time.monotonic() - started
        if process.returncode != 0:
            sys.exit(f"the rehearsal ended with {process.returncode}:\n{output}")
        history = read_history(next(Path(reports).glob("*/history.jsonl")))
    begun = {event.step: record.monotonic for record, event in history.with_times(StepStarted)}
    ended = {event.step: record.monotonic for record, event in history.with_times(StepEnded)}
    steps = {f"{step} (s)": ended[step] - begun[step] for step in Step}
    between = sum(begun[after] - ended[before] for before, after in zip(Step, list(Step)[1:], strict=False))
    first, last = history.records[0].monotonic, history.records[-1].monotonic
    return {
        "wall (s)": wall,
        "before the first event (s)": first - started,
        **steps,
        "Prefect between steps (s)": between,
        "after the last event (s)": started + wall - last,
        **memory.peaks(),
    }


class _Memory:
    """Peak resident memory, MB, of a process and of all its descendants together; sampled twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._own = 0
        self._all = 0
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while Path(f"/proc/{self._pid}").exists():
            sizes = {pid: resident(pid) for pid in tree(self._pid)}
            self._own = max(self._own, sizes.get(self._pid, 0))
            self._all = max(self._all, sum(sizes.values()))
            time.sleep(0.5)

    def peaks(self) -> dict[str, float]:
        return {"game-day process (MB)": self._own / 1e6, "all processes (MB)": self._all / 1e6}


if __name__ == "__main__":
    main()
