"""The agent's roles, run in the test's own process; test_process.py has what a process and its signals add."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.run import run_agent
from gameday.agent.task import AgentResult
from gameday.agent.termination_message import MAX_BYTES
from gameday.faults.xid import XidFault
from tests.agent.conftest import environment, inject_task
from tests.host.fake import FakeHost, VirtualHostServer, healthy_gpu


@dataclass
class Ended:
    status: int
    result: AgentResult
    lines: list[dict[str, Any]]
    """The notes in the pod's log."""
    stderr: str


RunAgent = Callable[..., Ended]


@pytest.fixture
def run(host: FakeHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[RunAgent]:
    """Return a function that runs the agent on `host` with a task, to its end."""
    server = VirtualHostServer(host)

    def ended(task: dict[str, Any] | str | bytes, **extra: str) -> Ended:
        log = tmp_path / "termination-log"
        status = run_agent(environment(task, tmp_path / "state", log, server) | extra, Ending())
        raw, printed = log.read_bytes(), capsys.readouterr()
        assert len(raw) <= MAX_BYTES
        lines = [json.loads(line) for line in printed.out.splitlines()]
        return Ended(status, AgentResult.model_validate_json(raw), lines, printed.err)

    yield ended
    server.close()


def test_the_end_of_the_hold_takes_the_fault_out(run: RunAgent, host: FakeHost) -> None:
    agent = run(inject_task(hold_s=0.1))
    assert (agent.status, agent.result.ok, agent.result.ended_by) == (0, True, "hold")
    assert len(host.log) == 1


def test_a_state_folder_that_cannot_be_written_keeps_the_fault_out(
    run: RunAgent, host: FakeHost, tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    agent = run(inject_task())
    assert (agent.status, agent.result.cleanliness) == (1, "clean")
    assert str(tmp_path / "state") in agent.result.error
    assert host.log == []


@pytest.mark.parametrize(
    "task",
    [
        "",
        "not json",
        "[]",
        '{"role": "format-disk"}',
        b'{"role": "mark", "run_id": "\xff\xfe", "node": "n", "marker": "abcdefgh"}',
        json.dumps(inject_task(hold_s=-1)),
        json.dumps(inject_task(fault={"type": "no-such-fault"})),
        json.dumps(inject_task(fault={"type": "xid", "xid": "79\n<0>panic"})),
        json.dumps({"role": "mark", "run_id": "r", "node": "n", "marker": "x\n<0>NVRM: Xid"}),
        json.dumps(inject_task(secret="hunter2" * 2000)),
        '{"role": "inject", "run_id": "\\ud800"}',
    ],
)
def test_an_invalid_task_is_an_error_without_a_traceback_and_without_the_input(
    run: RunAgent, host: FakeHost, task: str | bytes
) -> None:
    agent = run(task)
    assert (agent.status, agent.result.ok, agent.result.cleanliness) == (2, False, "clean")
    assert agent.result.error.startswith("GAMEDAY_TASK is not a valid task: ")
    assert "Traceback" not in agent.stderr
    assert "hunter2" not in agent.stderr + agent.result.error
    assert host.log == []


def test_a_fault_that_stays_in_is_said_though_the_state_folder_takes_no_more(
    run: RunAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(_: Context) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Context, "end_ready", read_only)
    monkeypatch.setattr(XidFault, "verify_undone", lambda *_: False)
    monkeypatch.setattr("gameday.agent.inject._PAUSES_S", ())
    agent = run(inject_task(hold_s=0.1))
    assert (agent.status, agent.result.cleanliness) == (1, "dirty")


def test_a_virtual_host_that_does_not_answer_is_the_results_error(run: RunAgent) -> None:
    agent = run(inject_task(), GAMEDAY_VIRTUAL_HOST="http://127.0.0.1:1/hosts/x")
    assert (agent.status, agent.result.ok) == (1, False)
    assert "127.0.0.1:1" in agent.result.error


def test_the_marker_is_written_to_the_kernel_log_and_found_there(run: RunAgent, host: FakeHost) -> None:
    agent = run({"role": "mark", "run_id": "r1", "node": "n", "marker": "run-1234-abcd"})
    assert (agent.status, agent.result.ok) == (0, True)
    assert host.log[0].endswith("] gameday: marker run-1234-abcd")
    assert agent.result.written_at


def test_the_role_undo_takes_a_fault_out_that_another_agent_put_in(run: RunAgent, host: FakeHost) -> None:
    task = inject_task(role="undo", undo_state={})
    del task["hold_s"]
    agent = run(task)
    assert (agent.status, agent.result.role, agent.result.cleanliness) == (0, "undo", "clean")
    assert host.log == []


def qa_task(**floors: Any) -> dict[str, Any]:
    return {
        "role": "qa",
        "run_id": "r",
        "node": "n",
        "marker": "20261121-204941-0",
        "expected_gpus": 2,
        "proof": {"floors": floors, "burn_in_s": None, "virtual_burn_in_s": 1},
    }


def test_qa_of_a_healthy_node_passes(run: RunAgent) -> None:
    agent = run(qa_task(memory_free_mib=4096, nvlinks=18))
    assert (agent.status, agent.result.ok, agent.result.error) == (0, True, "")
    assert {line["check"] for line in agent.lines} >= {"gpu-count", "kernel-log", "memory-free", "nvlinks-active"}
    assert all(line["ok"] for line in agent.lines)


def test_qa_of_a_broken_node_names_the_check_that_fails(run: RunAgent, host: FakeHost) -> None:
    host.samples[1] = healthy_gpu(1, ecc_dbe_volatile=3)
    agent = run(qa_task())
    assert (agent.status, agent.result.ok, agent.result.cleanliness) == (1, False, "clean")
    assert [(line["check"], line["gpu"]) for line in agent.lines if not line["ok"]] == [("ecc-double-bit", 1)]
    assert "GPU 1: ecc-double-bit: 3" in agent.result.error


def test_hostile_text_of_a_host_is_kept_as_text(run: RunAgent, host: FakeHost) -> None:
    host.refuse["gpus"] = "\x1b[2J</script>{{7*7}}" + "\u2028" * 3000 + '"}'
    agent = run(inject_task())
    assert agent.status == 1
    assert "</script>" in agent.result.error
