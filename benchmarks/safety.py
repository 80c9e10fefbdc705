"""The delay of signals, the cost of the reaper where there is nothing to reap, and the ledger's requests.

One rehearsal cluster; game-days on it are interrupted while they wait for
their alert, as a person's Ctrl-C or a cancelling worker would.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ruamel.yaml import YAML

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.history.events import ApiCost, FaultUndone, RunEnded, StepEnded, StepStarted
from gameday.history.journal import History, read_history
from gameday.reaper.reap import reap
from gameday.rehearsal.blueprint import Blueprint, Detector, Size
from gameday.rehearsal.cluster import RehearsalCluster
from gameday.values.results import Step

_LEDGER = ("configmaps", "leases")
_PATIENCE_S = 120.0
# What is waited for never comes, so that the signal always finds the run waiting.
_PLAN = {
    "apiVersion": "gameday/v1",
    "name": "interrupted",
    "title": "A game-day that is interrupted",
    "hypothesis": "The undo begins at once.",
    "fault": {"type": "xid", "xid": 95, "hold": "2m"},
    "baseline": {"window": "1s", "log_path_within": "10s"},
    "expect": {
        "alerts": [{"name": "GPUTemperatureHigh", "within": "90s", "resolves_within": "1s"}],
        "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "20s"}],
        "workloads": {"running_pods": "any"},
        "allow_other_alerts": True,
    },
    "recover": {"remediation": "none", "within": "30s"},
    "qa": {"within": "30s", "burn_in": None},
    "guardrails": {"max_duration": "5m"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with RehearsalCluster(Blueprint(folder / "cluster", Size(nodes=4, gpus=4), Detector.DEFAULT)) as cluster:
            _nothing_to_reap(cluster)
            found = [_interrupted(cluster, folder / f"run-{number}") for number in range(runs)]
    for what, column in zip(
        ("SIGINT -> undo begun", "SIGINT -> fault out", "SIGINT -> clean", "SIGINT -> ended"),
        zip(*found, strict=True),
        strict=True,
    ):
        print(f"{what:<26} median {statistics.median(column):5.2f} s   max {max(column):5.2f} s   ({runs} runs)")


def _nothing_to_reap(cluster: RehearsalCluster) -> None:
    kubernetes = Kubernetes(load_profile(cluster.profile))
    reap(kubernetes)  # opens the connection
    before, started = kubernetes.counter.cost(), time.monotonic()
    reap(kubernetes)
    took, after = time.monotonic() - started, kubernetes.counter.cost()
    kubernetes.close()
    print(
        f"nothing to reap: {after.requests - before.requests} requests, "
        f"{after.bytes_received - before.bytes_received} bytes, {took * 1000:.0f} ms"
    )


def _interrupted(cluster: RehearsalCluster, home: Path) -> tuple[float, ...]:
    """Return the seconds from the signal to four later moments.

    They are the end of the interrupted step (the undo comes next), the fault's undo read back, the end of the history,
    and the end of the process.
    """
    home.mkdir()
    with (home / "plan.yaml").open("w") as out:
        YAML(typ="safe", pure=True).dump(_PLAN, out)
    argv = [sys.executable, "-m", "gameday.cli", "run", str(home / "plan.yaml"), "--profile", str(cluster.profile)]
    process = subprocess.Popen(
        [*argv, "--reports", str(home / "reports")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **cluster.prefect_client},
    )
    while not _waits(home):
        time.sleep(0.05)
    signalled, started = time.time(), time.monotonic()
    process.send_signal(signal.SIGINT)
    process.wait(_PATIENCE_S)
    ended = time.monotonic() - started
    history = _history(home)
    undone = [
        r.at.timestamp() for r in history.records if isinstance(r.event, FaultUndone) and r.event.intent == "inject"
    ]
    clean = [r.at.timestamp() for r in history.records if isinstance(r.event, RunEnded)]
    print(f"  exit {process.returncode}; ledger and leases: {_asked(history)}")
    left = [
        r.at.timestamp() for r in history.records if isinstance(r.event, StepEnded) and r.event.outcome == "aborted"
    ]
    return left[0] - signalled, undone[0] - signalled, clean[0] - signalled, ended


def _history(home: Path) -> History:
    return read_history(next((home / "reports").glob("*/history.jsonl")))


def _waits(home: Path) -> bool:
    found = list((home / "reports").glob("*/history.jsonl"))
    return bool(found) and any(e.step is Step.AWAIT_ALERT for e in read_history(found[0]).of(StepStarted))


def _asked(history: History) -> str:
    (cost,) = [cost for cost in history.of(ApiCost) if cost.server == "kubernetes"]
    calls = {call: count for call, count in cost.by_call.items() if call.split()[-1] in _LEDGER}
    return f"{sum(calls.values())} of {cost.requests} requests: " + ", ".join(
        f"{n} {c}" for c, n in sorted(calls.items())
    )


if __name__ == "__main__":
    main()
