"""A real Prefect process worker for one game-day: what cancels, and what is gone when the worker goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.prefect_api import prefect_api
from tests.torture.lanes import ROOT, Lane

_ENDS_WITHIN_S = 180.0


class Worker:
    """A worker of its own pool, with a deployment of the game-day flow; a context manager."""

    def __init__(self, lane: Lane, home: Path) -> None:
        self._lane = lane
        self._home = home
        self._api = prefect_api(lane.environment())
        self._pool = f"{lane.name}-{home.name}"
        self._run = ""
        self._begun = False

    def __enter__(self) -> Self:
        self._post("/work_pools/", {"name": self._pool, "type": "process"})
        environment = {**self._lane.environment(), "PREFECT_WORKER_QUERY_SECONDS": "1"}
        argv = [sys.executable, "-m", "prefect", "worker", "start", "--pool", self._pool, "--type", "process"]
        with (self._home / "worker.txt").open("w") as log:
            self._process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the worker once its flow's process has ended, which may outlive it."""
        deadline = time.monotonic() + _ENDS_WITHIN_S
        while (self.flows() or not self._begun) and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in (*self.flows(), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(20)
        self._api.close()

    def flows(self) -> list[int]:
        """Processes that carry the flow run, or a hook of it: the worker names it in the environment."""
        mark = f"PREFECT__FLOW_RUN_ID={self._run}".encode()
        found = [pid for pid in pids() if mark in environment_of(pid).split(b"\0")]
        self._begun = self._begun or bool(found)
        return found

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def begin(self, plan: Path, reports: Path) -> str:
        asked = {"plan": str(plan), "reports": str(reports), "approved_by": "ada"}
        return self.begin_flow("game-day", "flows/game_day.py:game_day", asked)

    def begin_flow(self, name: str, entrypoint: str, parameters: dict[str, Any]) -> str:
        """The id of a run of a flow on the lane's cluster."""
        flow = self._post("/flows/", {"name": name})["id"]
        deployment = self._post(
            "/deployments/",
            {
                "name": self._home.name,
                "flow_id": flow,
                "entrypoint": entrypoint,
                "pull_steps": [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}],
                "work_pool_name": self._pool,
                "enforce_parameter_schema": False,
            },
        )["id"]
        given = {"parameters": {**parameters, "profile": str(self._lane.profile)}}
        self._run = self._post(f"/deployments/{deployment}/create_flow_run", given)["id"]
        return self._run

    def state(self) -> str:
        """Return the flow run's state as Prefect's server has it, such as RUNNING or CRASHED."""
        return str(self.flow_run()["state_type"])

    def flow_run(self) -> dict[str, Any]:
        found: dict[str, Any] = self._api.get(f"/flow_runs/{self._run}").raise_for_status().json()
        return found

    def logs(self) -> list[dict[str, Any]]:
        """Return the flow run's log as its page shows it, oldest line first."""
        body = {"logs": {"flow_run_id": {"any_": [self._run]}}, "sort": "TIMESTAMP_ASC"}
        found: list[dict[str, Any]] = self._api.post("/logs/filter", json=body).raise_for_status().json()
        return found

    def cancel(self, run: str) -> None:
        self._post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": False})

    def suspend(self, run: str) -> None:
        state = {"type": "PAUSED", "name": "Suspended", "state_details": {"pause_reschedule": True}}
        assert self._post(f"/flow_runs/{run}/set_state", {"state": state})["status"] == "ACCEPT"

    def retry(self, run: str) -> None:
        state = {"type": "SCHEDULED", "name": "AwaitingRetry"}
        assert self._post(f"/flow_runs/{run}/set_state", {"state": state})["status"] == "ACCEPT"

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._api.post(path, json=body)
        assert answer.is_success, f"{path}: {answer.status_code} {answer.text[:300]}"
        found: dict[str, Any] = answer.json()
        return found


def pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def environment_of(pid: int) -> bytes:
    """Empty for a process that is gone, or not ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""
