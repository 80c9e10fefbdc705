"""Prefect's hooks under a real server and a real worker: what a killed flow left is out before any reaper comes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected, RunEnded, StepStarted
from gameday.history.journal import read_history
from gameday.values.results import Step
from tests.game_days.conftest import SILENT, changed
from tests.torture.lanes import Lane
from tests.torture.matrix import PLANS
from tests.torture.prefect_worker import Worker

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(600)]
PATIENCE_S = 240.0


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(0.1)


def lasting(name: str) -> dict[str, Any]:
    """A plan of the matrix that waits with its fault in, until a busy machine has killed it."""
    return changed(PLANS[name], "expect.alerts", SILENT["expect"]["alerts"])


class Flow:
    """A game-day under a worker, with its fault in."""

    def __init__(self, worker: Worker, lane: Lane, home: Path) -> None:
        self.worker = worker
        self.lane = lane
        self.reports = home / "reports"
        plan = home / "plan.yaml"
        with plan.open("w", encoding="utf-8") as out:
            content = {**lasting("compound"), "targets": {"names": [lane.node]}}
            YAML(typ="safe", pure=True).dump(content, out)
        self.before = lane.snapshot()
        self.run = worker.begin(plan, self.reports)
        until(lambda: broken(self.reports), "the fault to be in")
        self.process = max(worker.flows())

    @property
    def ended(self) -> bool:
        """By itself: a run that was killed never writes its end."""
        return any(read_history(path).of(RunEnded) for path in self.reports.glob("*/history.jsonl"))


@pytest.fixture
def flow(lane: Lane, tmp_path: Path) -> Iterator[Flow]:
    with Worker(lane, tmp_path) as worker:
        yield Flow(worker, lane, tmp_path)


def test_what_a_killed_flow_left_is_undone_by_its_worker(flow: Flow) -> None:
    os.kill(flow.process, signal.SIGKILL)
    until(
        lambda: flow.worker.state() == "CRASHED" and not objects(flow.lane),
        "the worker to notice, and its hook to undo",
    )
    assert flow.lane.settled(flow.before) == []
    assert not flow.ended


def test_what_a_flow_left_that_ignores_its_cancel_is_undone_by_its_worker(flow: Flow) -> None:
    """A stopped process handles no SIGTERM; Prefect kills it after its 30 s."""
    os.kill(flow.process, signal.SIGSTOP)
    flow.worker.cancel(flow.run)
    until(lambda: flow.worker.state() == "CANCELLED" and not objects(flow.lane), "the kill, and the hook to undo")
    assert flow.lane.settled(flow.before) == []
    assert not flow.ended


def test_a_cancelled_flow_undoes_itself_and_its_hook_finds_nothing(flow: Flow) -> None:
    flow.worker.cancel(flow.run)
    until(lambda: flow.worker.state() == "CANCELLED", "the cancel")
    assert flow.ended
    assert flow.lane.settled(flow.before) == []
    assert {"outcome:aborted", "cluster:clean"} <= set(flow.worker.flow_run()["tags"])
    first, *others = [line["message"] for line in flow.worker.logs()]
    assert first.startswith("Aborted, cluster clean. Aborted by operator")
    assert not [line for line in others if re.search("Traceback|exited with status code|UnfinishedRun", line)]


def test_a_suspended_flow_undoes_itself_at_once_and_a_retry_breaks_nothing(flow: Flow) -> None:
    flow.worker.suspend(flow.run)
    until(lambda: flow.worker.state() == "FAILED", "the suspended run to end")
    assert flow.ended
    assert flow.lane.settled(flow.before) == []
    ended = flow.worker.flow_run()
    assert "a person suspended the flow run" in ended["state"]["message"]
    assert {"outcome:aborted", "cluster:clean"} <= set(ended["tags"])
    until(lambda: not flow.worker.flows(), "its process to end")
    flow.worker.retry(flow.run)
    until(lambda: flow.worker.flow_run()["run_count"] > ended["run_count"], "the second attempt")
    until(lambda: flow.worker.state() == "FAILED", "the second attempt to end")
    again = flow.worker.flow_run()
    assert "nothing was broken again: this flow run has played " in again["state"]["message"]
    assert "a person suspended the flow run" in again["state"]["message"]
    assert again["tags"] == ended["tags"]
    assert len(list(flow.reports.glob("*/history.jsonl"))) == 1


def test_the_runs_of_a_killed_season_are_undone_by_its_worker(lane: Lane, tmp_path: Path) -> None:
    plans = [tmp_path / "power_cap.yaml", tmp_path / "nccl_conf.yaml"]
    for plan in plans:
        with plan.open("w", encoding="utf-8") as out:
            YAML(typ="safe", pure=True).dump({**lasting(plan.stem), "name": plan.stem.replace("_", "-")}, out)
    reports = tmp_path / "reports"
    before = hosts(lane)
    with Worker(lane, tmp_path) as worker:
        given = {"plans": [str(plan) for plan in plans], "reports": str(reports), "at_once": 2, "approved_by": "ada"}
        worker.begin_flow("season", "flows/season.py:season", given)
        until(lambda: broken(reports) == 2, "both faults to be in")
        os.kill(max(worker.flows()), signal.SIGKILL)
        until(lambda: worker.state() == "CRASHED" and not objects(lane), "its hook to undo")
    assert hosts(lane) == before


def broken(reports: Path) -> int:
    """Count the game-days whose fault is in, and that have not begun to take it out."""
    histories = [read_history(path) for path in reports.glob("*/history.jsonl")]
    started = [{event.step for event in one.of(StepStarted)} for one in histories if one.of(FaultInjected)]
    return sum(Step.RECOVER not in steps for steps in started)


def objects(lane: Lane) -> list[str]:
    """Pods, jobs and ledgers of the lane."""
    return [one for one in lane.snapshot()["objects"] if not one.startswith("lease/")]


def hosts(lane: Lane) -> dict[str, Any]:
    """What is in every node's host."""
    names = [node.metadata.name for node in lane.core.list_node().items]
    return {name: httpx.get(f"{lane.hosts}/{name}/snapshot", timeout=20).json() for name in names}
