from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import (
    PREFECT_LOGGING_LEVEL,
    PREFECT_LOGGING_TO_API_ENABLED,
    PREFECT_SERVER_ANALYTICS_ENABLED,
    temporary_settings,
)
from ruamel.yaml import YAML

from gameday import cli
from gameday.checks.outcome import RunResult
from gameday.cluster.gpu_pods import gpu_pod
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.history.events import PrometheusFellBehind, Record, StepStarted, WaitStarted
from gameday.history.journal import History, read_history
from gameday.host.virtual import VirtualHost
from gameday.values.nodes import GFD_TIMESTAMP_LABEL
from gameday.values.results import Step
from gameday_health.model import REASON
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from kubesim.controllers.taints import UNSCHEDULABLE
from tests.rehearsal.processes import until
from tests.support.plans import QUICK, changed
from tests.support.prefect_api import client_settings

QUIET = {
    PREFECT_LOGGING_LEVEL: "CRITICAL",
    PREFECT_LOGGING_TO_API_ENABLED: False,
    PREFECT_SERVER_ANALYTICS_ENABLED: False,
}
PATIENCE_S = 600.0
"""Ends a test whose condition never comes, on a machine however busy; pytest's own limit is three times as long."""

# A rule that exists and stays silent, so that the wait is still on when the blow comes. The fault's own alert may have
# fired by then, and is allowed: a busy machine must not make a cut-off run a failed one.
SILENT = changed(QUICK, "expect.alerts", [{"name": "GPUTemperatureHigh", "within": "30s", "resolves_within": "1s"}])
SILENT = changed(SILENT, "expect.allow_other_alerts", True)

SHORT_HOLD = "25s"
"""Shorter than a reaper watches a dead run's lease, and longer than any run overlooks that its injector is Ready."""

# Bounds of plans that something must keep which takes no longer than the machine makes it.
_BOUNDS = frozenset(
    f"{what}within" for what in ("", "log_path_", "resolves_", "returns_", "resubmitted_", "resumes_", "ends_")
)


def patient(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with two minutes in place of each bound, for machines and clusters that are slow and do it all the same.

    Two minutes are what a starved machine keeps, and what a control plane needs whose parts restart, with its clients'
    back-off. A plan that is to break has short bounds instead: what never comes comes no sooner on a slow machine.
    Other alerts are allowed: where Prometheus falls behind, nobody knows that there were none.
    """
    plan = changed(_with_bounds(plan, "2m"), "expect.allow_other_alerts", True)
    return changed(changed(plan, "guardrails.max_duration", "20m"), "fault.hold", "10m")


def _with_bounds(part: Any, bound: str) -> Any:
    if isinstance(part, list):
        return [_with_bounds(one, bound) for one in part]
    if isinstance(part, dict):
        return {key: bound if key in _BOUNDS else _with_bounds(value, bound) for key, value in part.items()}
    return part


@dataclass
class Played:
    """One `gameday run` that has ended."""

    exit_code: int
    output: str
    folder: Path | None

    @property
    def history(self) -> History:
        assert self.folder is not None, self.output
        return read_history(self.folder / "history.jsonl")

    @property
    def result(self) -> RunResult:
        from gameday.report.run_folder import load_run_folder

        assert self.folder is not None, self.output
        return load_run_folder(self.folder).result

    def verdicts(self) -> dict[str, str]:
        assert self.folder is not None, self.output
        return {v["check"]: v["status"] for v in json.loads((self.folder / "verdicts.json").read_text())}

    def broken(self) -> set[str]:
        """Return the checks that are broken.

        The absence of an alert is one of them also where Prometheus fell behind, as on a starved machine, and says so.
        """
        print(self.output)
        verdicts = self.verdicts()
        found = {check for check, status in verdicts.items() if status == "broken"}
        if self.history.of(PrometheusFellBehind) and verdicts.get("alert-fires") == "unknown":
            found.add("alert-fires")
        return found


class Arena:
    """The rehearsal cluster of a folder's tests, and game-days played on it as a person would."""

    def __init__(self, cluster: RehearsalCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.core = client.CoreV1Api(config.new_client_from_config(str(cluster.admin_kubeconfig)))
        self.coordination = client.CoordinationV1Api(self.core.api_client)
        self._plans = 0

    def _written(self, plan: dict[str, Any]) -> tuple[Path, Path]:
        self._plans += 1
        home = self.folder / f"play-{self._plans}"
        home.mkdir()
        path = home / "plan.yaml"
        YAML(typ="safe", pure=True).dump(plan, path)
        return path, home / "reports"

    def start(self, plan: dict[str, Any], *arguments: str, **popen: Any) -> tuple[subprocess.Popen[str], Path]:
        path, reports = self._written(plan)
        argv = [sys.executable, "-m", "gameday.cli", "run", str(path), "--profile", str(self.cluster.profile)]
        environment = {**os.environ, **self.cluster.prefect_client, "COLUMNS": "200"}
        process = subprocess.Popen(
            [*argv, "--reports", str(reports), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
            **popen,
        )
        return process, reports

    def finish(self, process: subprocess.Popen[str], reports: Path, timeout_s: float = PATIENCE_S) -> Played:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            pytest.fail(f"the run did not end within {timeout_s:g} s:\n{output}")
        return Played(process.returncode, output, _only_run(reports))

    def play(self, plan: dict[str, Any]) -> Played:
        """Run the command line in this process, which spares a start of Python; signals need `start`."""
        path, reports = self._written(plan)
        settings = {**client_settings(self.cluster.prefect_client), **QUIET}
        said = io.StringIO()
        with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = cli.run(["run", str(path), "--profile", str(self.cluster.profile), "--reports", str(reports)])
        return Played(code, said.getvalue(), _only_run(reports))

    def play_and_when(
        self, plan: dict[str, Any], reached: Callable[[Record], bool], blow: Callable[[subprocess.Popen[str]], None]
    ) -> Played:
        """Strike once, as soon as the run's history holds a record that `reached` accepts."""
        process, reports = self.start(plan)
        deadline = time.monotonic() + PATIENCE_S
        while not any(reached(record) for record in _records(reports)):
            if process.poll() is not None or time.monotonic() > deadline:
                played = self.finish(process, reports, 10)
                pytest.fail(f"the run ended before it got there:\n{played.output}")
            time.sleep(0.05)
        blow(process)
        return self.finish(process, reports)

    def nodes(self) -> dict[str, Any]:
        """Return the parts of the nodes that a game-day may not change.

        A cordon's taint is left out. It follows the cordon, and in the lab later: its controller comes back to an API
        server that was killed only after a back-off of its own.
        """
        return {
            node.metadata.name: (
                sorted((t.key, t.value, t.effect) for t in node.spec.taints or [] if t.key != UNSCHEDULABLE),
                bool(node.spec.unschedulable),
                {k: v for k, v in (node.metadata.labels or {}).items() if k != GFD_TIMESTAMP_LABEL},
                {k: v for k, v in (node.metadata.annotations or {}).items() if k.startswith("gameday.dev/")},
            )
            for node in self.core.list_node().items
        }

    def settle(self) -> None:
        """Wait until a game-day finds what it takes for granted, whatever the one before did to the cluster."""
        # A game-day is refused while its alert fires. Alerts of events that are no quarantine fire for minutes, and
        # refuse nobody.
        (alert,) = (expected["name"] for expected in QUICK["expect"]["alerts"])
        until(lambda: not self._is_active(alert), PATIENCE_S, f"{alert} resolved")
        # A job waits twice as long for each failed pod of its own before it makes a new one.
        for pod in self.core.list_namespaced_pod("training", field_selector="status.phase=Failed").items:
            self.core.delete_namespaced_pod(pod.metadata.name, "training", grace_period_seconds=0)
        until(self.is_training, PATIENCE_S, "every pod of the training to run")

    def _is_active(self, alert: str) -> bool:
        """Return True if an alert is pending or firing, for any node. Its series may outlive it by minutes."""
        answer = httpx.get(f"{self.cluster.urls['prometheus']}/api/v1/alerts", trust_env=False).raise_for_status()
        return alert in {one["labels"]["alertname"] for one in answer.json()["data"]["alerts"]}

    def is_training(self) -> bool:
        """Return True if there is training, and none of its pods is pending or ending."""
        pods = self.core.list_namespaced_pod("training").items
        going = [pod for pod in pods if pod.status.phase == "Pending" or pod.metadata.deletion_timestamp]
        return bool(pods) and not going

    def free_gpus(self) -> dict[str, int]:
        """Return how many GPUs of each node no pod has, running or about to."""
        free = {node.metadata.name: int(node.status.allocatable[GPU_RESOURCE]) for node in self.core.list_node().items}
        for pod in self.core.list_pod_for_all_namespaces().items:
            if pod.spec.node_name and pod.status.phase in ("Pending", "Running"):
                free[pod.spec.node_name] -= gpu_pod(pod).gpus
        return free

    def hosts(self) -> dict[str, VirtualHost]:
        """Return each node's host."""
        url = self.cluster.child("nodes").ready["hosts"]
        return {node: VirtualHost(f"{url}/{node}") for node in self.nodes()}

    def leftovers(self) -> list[str]:
        """Objects of ours that still stand in the cluster."""
        pods = [f"pod/{pod.metadata.name}" for pod in self.core.list_namespaced_pod("gameday").items]
        maps = self.core.list_namespaced_config_map("gameday", label_selector="gameday.dev/ledger=true").items
        leases = self.coordination.list_namespaced_lease("gameday").items
        return pods + [f"ledger/{m.metadata.name}" for m in maps] + [f"lease/{one.metadata.name}" for one in leases]

    def heal(self) -> None:
        """Put right what a failed test left, so that it fails alone."""
        for pod in self.core.list_namespaced_pod("gameday").items:
            self.core.delete_namespaced_pod(pod.metadata.name, "gameday", grace_period_seconds=0)
        for held in self.core.list_namespaced_config_map("gameday", label_selector="gameday.dev/ledger=true").items:
            self.core.delete_namespaced_config_map(held.metadata.name, "gameday")
        for lease in self.coordination.list_namespaced_lease("gameday").items:
            self.coordination.delete_namespaced_lease(lease.metadata.name, "gameday")
        held_out = [node for node, (taints, cordoned, *_) in self.nodes().items() if taints or cordoned]
        for node in held_out:
            self.core.patch_node(node, {"spec": {"taints": None, "unschedulable": None}})
        if held_out:
            until(self._has_no_reason, PATIENCE_S, "the health controller to take its reasons off the nodes")

    def _has_no_reason(self) -> bool:
        return not any(REASON in annotations for _, _, _, annotations in self.nodes().values())


def _only_run(reports: Path) -> Path | None:
    runs = [path for path in reports.iterdir() if path.is_dir()] if reports.is_dir() else []
    return runs[0] if runs else None


def _records(reports: Path) -> list[Record]:
    found = list(reports.glob("*/history.jsonl"))
    return list(read_history(found[0]).records) if found else []


def step_started(step: Step) -> Callable[[Record], bool]:
    return lambda record: isinstance(record.event, StepStarted) and record.event.step is step


def waits_for(what: str) -> Callable[[Record], bool]:
    """Return True if a record begins a wait for something, by the first words of what is waited for."""
    return lambda record: isinstance(record.event, WaitStarted) and record.event.what.startswith(what)


def send(*signals: signal.Signals, pause_s: float = 0.3) -> Callable[[subprocess.Popen[str]], None]:
    def blow(process: subprocess.Popen[str]) -> None:
        for number, which in enumerate(signals):
            if number:
                time.sleep(pause_s)
            process.send_signal(which)

    return blow


def drain_prefect() -> None:
    """Send the events and log lines that wait, before their server ends.

    Prefect keeps one sender of each a process, for the first server it met. Left alone it would try that one for
    minutes at the process's end, once for each event of the next arena's game-days.
    """
    EventsWorker.drain_all()
    APILogWorker.drain_all()


@contextlib.contextmanager
def arena_in(folder: Path, size: Size, detector: Detector = Detector.DEFAULT, **choices: Any) -> Iterator[Arena]:
    """A cluster for game-days for the length of a block; `choices` are those of `Blueprint`."""
    with RehearsalCluster(Blueprint(folder / "cluster", size, detector, **choices)) as cluster:
        yield Arena(cluster, folder)
        drain_prefect()


@pytest.fixture(scope="package")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """A cluster with a spare node: a resubmitted job finds a place elsewhere, whatever earlier game-days moved.

    It ends with the last game-day: its servers take a fifth of a processor while they wait.
    """
    with arena_in(tmp_path_factory.mktemp("arena"), Size(nodes=4, gpus=4, spare=1)) as started:
        yield started


@pytest.fixture
def clean_arena(arena: Arena) -> Iterator[Arena]:
    """Holds every game-day to the promise: the cluster afterwards is the cluster before."""
    arena.settle()
    before = arena.nodes()
    yield arena
    left, after = arena.leftovers(), arena.nodes()
    arena.heal()
    assert left == []
    assert after == before
