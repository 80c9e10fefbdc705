"""Play one combination: a game-day, the blow at its place, one reaper's visit; then nothing may be left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ruamel.yaml import YAML

from gameday.history.events import RunEnded, StepStarted
from gameday.history.journal import read_history
from gameday.report.render import render
from gameday.values.results import Cleanliness, Step
from tests.torture.lanes import Lane
from tests.torture.matrix import PLANS, UNDER_A_WORKER, Combination, stops_at
from tests.torture.prefect_worker import Worker, environment_of, pids
from tests.torture.proxy import Gate

# Two busy cores and several lanes: generous, because only a hang is meant to be found by it.
_REACHED_WITHIN_S = 240.0
_ENDS_WITHIN_S = 180.0
# A worker notices within seconds; then a process that imports Prefect, and the lease's duration.
_HOOK_WITHIN_S = 40.0
# Exit codes of a run that cannot say that the cluster is clean.
_DOUBTS = (2, 4)


@dataclass
class Result:
    """`leaks` is empty when nothing was left; `trouble` says what else is wrong with the run or with its playing."""

    combination: Combination
    leaks: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit_code: int | None = None
    reaped: int = 0

    @property
    def good(self) -> bool:
        return not self.leaks and not self.trouble


class Playing:
    """One combination on one lane."""

    def __init__(self, lane: Lane, combination: Combination, number: int) -> None:
        self.lane = lane
        self.combination = combination
        self.home = lane.folder / f"{number:04d}-{combination.plan}-{combination.blow}"
        self.home.mkdir()
        self.reports = self.home / "reports"
        self.plan = self.home / "plan.yaml"
        self.result = Result(combination)
        with self.plan.open("w", encoding="utf-8") as out:
            content = {**PLANS[combination.plan], "targets": {"names": [lane.node]}}
            YAML(typ="safe", pure=True).dump(content, out)

    def play(self) -> Result:
        started, lane = time.monotonic(), self.lane
        before = lane.snapshot()
        try:
            self._play()
            reaped = lane.reap()
            while reaped.alive and reaped.alive[0].holder.startswith("reaper-"):
                reaped = lane.reap()  # a hook of Prefect's was still at work
            self.result.reaped += len(reaped.reaped)
            if reaped.alive:
                self.result.trouble.append(f"the reaper takes a dead run for alive: {reaped.alive[0]}")
            if not reaped.is_clean:
                unclean = [f"{r.entry.act}: {r.cleanliness}: {r.evidence}" for r in reaped.reaped]
                self.result.trouble.append(f"the reaper's first visit was not clean: {unclean} {reaped.unreadable}")
                lane.reap()
            self.result.leaks = lane.settled(before)
            self._reports()
        finally:
            lane.proxy.arm(None)
        self.result.seconds = time.monotonic() - started
        return self.result

    def _play(self) -> None:
        if self.combination.blow in UNDER_A_WORKER:
            with Worker(self.lane, self.home) as worker:
                run = worker.begin(self.plan, self.reports)
                self._strike(worker, lambda: worker.cancel(run))
                if self.combination.blow == "flow-killed":
                    self._give_the_hook_time(worker)
                self.result.exit_code = None
            return
        process = self.lane.start(self.plan, self.reports)
        with (self.home / "output.txt").open("w") as log:
            try:
                self._strike(process, lambda: None)
                output, _ = process.communicate(timeout=_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self.result.trouble.append(f"the run did not end within {_ENDS_WITHIN_S:g} s of the blow")
                process.kill()
                output, _ = process.communicate()
            log.write(output)
        self.result.exit_code = process.returncode
        if self.combination.blow == "asleep" and process.returncode in _DOUBTS:
            self.result.trouble.append(f"reaped while it slept, and does not know it: {output[-800:]}")
        if process.returncode == 70 or "Traceback (most recent call last)" in output:
            self.result.trouble.append(f"exit {process.returncode}: {output[-1500:]}")

    def _strike(self, process: subprocess.Popen[str] | Worker, cancel: Callable[[], None]) -> None:
        """Wait for the place, let the blow fall, and let go of the request that was held there."""
        lane, place = self.lane, self.combination.place
        stop = stops_at(place)
        gate = Gate(*stop) if stop else None
        lane.proxy.arm(gate)
        deadline = time.monotonic() + _REACHED_WITHIN_S
        while not (gate.reached.is_set() if gate else self._began(place)):
            if process.poll() is not None or time.monotonic() > deadline:
                self.result.trouble.append("its place was not reached")
                return
            time.sleep(0.02)
        self._blow(process, cancel, gate)

    def _blow(self, process: subprocess.Popen[str] | Worker, cancel: Callable[[], None], gate: Gate | None) -> None:
        lane, blow = self.lane, self.combination.blow

        def go_on() -> None:
            if gate:
                lane.proxy.open(gate)

        match blow:
            case "SIGINT" | "SIGTERM" | "SIGHUP" | "SIGKILL":
                os.kill(process.pid, signal.Signals[blow])
            case "SIGINT-twice":
                os.kill(process.pid, signal.SIGINT)
                go_on()
                time.sleep(0.5)  # a person's second Ctrl-C; when exactly it falls is not the point
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGINT)
            case "prefect-gone" | "prefect-cancel" | "worker-gone" | "flow-killed":
                self._prefect_blow(process, cancel, go_on)
            case "api-restart":
                restart = lane.cluster.child("apiserver")
                restart.end()
                restart.start()
                restart.await_ready_line()
            case "agent-killed":
                self._kill_agent()
            case "asleep" | "asleep-killed":
                os.kill(process.pid, signal.SIGSTOP)
                self.result.reaped += len(lane.reap().reaped)
                os.kill(process.pid, signal.SIGKILL if blow == "asleep-killed" else signal.SIGCONT)
        go_on()

    def _prefect_blow(
        self, process: subprocess.Popen[str] | Worker, cancel: Callable[[], None], go_on: Callable[[], None]
    ) -> None:
        match self.combination.blow:
            case "prefect-cancel":
                cancel()
            case "worker-gone":
                os.kill(process.pid, signal.SIGKILL)
            case "flow-killed":
                assert isinstance(process, Worker)
                for pid in process.flows():
                    os.kill(pid, signal.SIGKILL)
            case "prefect-gone":
                assert isinstance(process, subprocess.Popen)
                self.lane.prefect.cut()
                go_on()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDS_WITHIN_S)
                self.lane.prefect.mend()

    def _give_the_hook_time(self, worker: Worker) -> None:
        """It finds the ledger, where one was written before the blow; what it does not undo is the reaper's."""
        deadline = time.monotonic() + _HOOK_WITHIN_S
        while time.monotonic() < deadline:
            left = [one for one in self.lane.snapshot()["objects"] if not one.startswith("lease/")]
            if worker.state() == "CRASHED" and not left:
                return
            time.sleep(0.2)

    def _kill_agent(self) -> None:
        """The newest agent on our node, as the kernel's out-of-memory killer would."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = [pid for pid in pids() if _is_agent_of(pid, self.lane.node)]
            if found:
                os.kill(max(found), signal.SIGKILL)
                return
            time.sleep(0.02)
        self.result.trouble.append("there was no agent to kill")

    def _began(self, place: str) -> bool:
        step = Step[place.removeprefix("step:").upper()]
        found = list(self.reports.glob("*/history.jsonl"))
        if not found:
            return False
        return any(event.step is step for event in read_history(found[0]).of(StepStarted))

    def _reports(self) -> None:
        """The report of a run that crashed renders, and never says what is not so."""
        for history in self.reports.glob("*/history.jsonl"):
            rendered = render(history.parent, datetime.now(UTC))
            ended = read_history(history).of(RunEnded)
            if not rendered.html.is_file():
                self.result.trouble.append("the report was not rendered")
            if ended and ended[0].cleanliness is Cleanliness.CLEAN and self.result.leaks:
                self.result.trouble.append("the run calls itself clean and is not")
            if not ended and rendered.result.exit_code == 0:
                self.result.trouble.append("a run that never ended is called passed")


def _is_agent_of(pid: int, node: str) -> bool:
    variables = environment_of(pid).split(b"\0")
    return any(v.startswith(b"GAMEDAY_VIRTUAL_HOST=") and v.endswith(f"/hosts/{node}".encode()) for v in variables)


def heal(lane: Lane) -> None:
    """Put right what a leak left, so that the next run on this lane is judged by its own deeds."""
    core = lane.core
    for pod in core.list_namespaced_pod(lane.name).items:
        core.delete_namespaced_pod(pod.metadata.name, lane.name, grace_period_seconds=0)
    for found in core.list_namespaced_config_map(lane.name, label_selector="gameday.dev/ledger=true").items:
        core.delete_namespaced_config_map(found.metadata.name, lane.name)
    core.patch_node(lane.node, {"spec": {"taints": None, "unschedulable": None}})
    lane.reap()
    boot = lane.core.read_node(lane.node).status.node_info.boot_id
    lane.on_host("systemctl", "reboot")
    while (now := lane.core.read_node(lane.node)).status.node_info.boot_id == boot or not lane.ready(now):
        time.sleep(0.3)
    lane.begin()
