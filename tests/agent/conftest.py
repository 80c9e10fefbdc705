"""Start the agent as the kubelet does: a process with a state folder, a termination log and a virtual host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.task import AgentResult
from gameday.agent.termination_message import MAX_BYTES
from tests.host.fake import FakeHost, VirtualHostServer
from tests.support.mock_nvml import MockNvml


class Agent:
    """An agent process with its log, its state folder and its termination log."""

    def __init__(self, process: subprocess.Popen[str], state: Path, log: Path) -> None:
        self.process = process
        self.state = state
        self.log = log
        self.lines: list[dict[str, Any]] = []
        self.printed_or_ended = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(json.loads(line))
            self.printed_or_ended.set()
        self.printed_or_ended.set()

    def wait_line(self) -> dict[str, Any]:
        assert self.printed_or_ended.wait(20), "the agent printed nothing"
        assert self.lines, self.stderr()
        return self.lines[0]

    def wait_ready(self) -> None:
        """Wait for the first note, and for the readiness file that follows it."""
        self.wait_line()
        pause = threading.Event()
        while not (self.state / "ready").exists():
            assert self.process.poll() is None, self.stderr()
            pause.wait(0.01)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, AgentResult]:
        status = self.process.wait(20)
        self._reader.join()
        raw = self.log.read_bytes()
        assert len(raw) <= MAX_BYTES
        return status, AgentResult.model_validate_json(raw)

    def stderr(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read()


def environment(
    task: dict[str, Any] | str | bytes, state: Path, log: Path, server: VirtualHostServer
) -> dict[str, str]:
    """Return the variables that the agent's container is given."""
    return {
        "GAMEDAY_TASK": json.dumps(task) if isinstance(task, dict) else os.fsdecode(task),
        "GAMEDAY_STATE_DIR": str(state),
        "GAMEDAY_TERMINATION_LOG": str(log),
        "GAMEDAY_VIRTUAL_HOST": server.url,
    }


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


@pytest.fixture
def start(host: FakeHost, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Return a function that runs the agent with a task; every process ends with the test.

    It runs on `host`, or with a mock of NVML on the real host: this machine, whose library is then the mock.
    """
    server = VirtualHostServer(host)
    agents: list[Agent] = []

    def run(task: dict[str, Any], nvml: MockNvml | None = None) -> Agent:
        state, log = tmp_path / "state", tmp_path / f"termination-log-{len(agents)}"
        variables = {"PATH": os.environ["PATH"]} | environment(task, state, log, server)
        if nvml:
            del variables["GAMEDAY_VIRTUAL_HOST"]
            variables |= nvml.environment
        process = subprocess.Popen(
            [sys.executable, "-m", "gameday.agent"],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        agents.append(Agent(process, state, log))
        return agents[-1]

    yield run
    for agent in agents:
        if agent.process.poll() is None:
            agent.process.kill()
        agent.process.wait()
        agent._reader.join()
        for pipe in (agent.process.stdout, agent.process.stderr):
            if pipe:
                pipe.close()
    server.close()


def inject_task(**changes: Any) -> dict[str, Any]:
    fault = {"type": "xid", "xid": 79}
    return {"role": "inject", "run_id": "r1", "node": "node-1", "gpu": 1, "fault": fault, "hold_s": 60} | changes
