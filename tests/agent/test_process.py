"""The agent as a process: the fault goes in and comes out, and there is always a termination message."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from gameday.agent.task import InjectedNote
from tests.agent.conftest import Agent, inject_task
from tests.host.fake import FakeHost, healthy_gpu

Start = Callable[..., Agent]


def test_the_fault_is_in_when_the_agent_is_ready_and_out_when_it_has_ended(start: Start, host: FakeHost) -> None:
    agent = start(inject_task())
    agent.wait_ready()
    assert "Xid (PCI:0000:1b:00): 79" in host.log[0]
    note = InjectedNote.model_validate(agent.wait_line())
    agent.terminate()
    status, result = agent.end()
    assert (status, result.ok, result.cleanliness, result.ended_by) == (0, True, "clean", "sigterm")
    assert result.written_at == note.written_at
    assert result.evidence[:3] == note.evidence
    assert "nothing to undo" in " ".join(result.evidence)
    assert not (agent.state / "ready").exists()


def test_the_end_of_the_hold_takes_the_fault_out(start: Start, host: FakeHost) -> None:
    status, result = start(inject_task(hold_s=0.1)).end()
    assert (status, result.ok, result.ended_by) == (0, True, "hold")
    assert len(host.log) == 1


def test_further_sigterms_do_not_interrupt_the_undo(start: Start, host: FakeHost) -> None:
    agent = start(inject_task(fault={"type": "xid", "xid": 79, "repeat": 3}))
    agent.wait_ready()
    for _ in range(20):
        agent.terminate()
    status, result = agent.end()
    assert (status, result.cleanliness, result.ended_by) == (0, "clean", "sigterm")


def test_a_sigterm_while_the_fault_goes_in_takes_it_out_again(start: Start, host: FakeHost) -> None:
    writing, go_on, write = threading.Event(), threading.Event(), host.write_kernel_log

    def slow(record: str) -> None:
        writing.set()
        assert go_on.wait(20)
        write(record)

    host.write_kernel_log = slow  # type: ignore[method-assign]
    agent = start(inject_task())
    assert writing.wait(20)
    agent.terminate()
    go_on.set()
    status, result = agent.end()
    assert (status, result.ended_by, result.cleanliness) == (0, "sigterm", "clean")
    assert len(host.log) == 1


def test_a_hosts_refusal_is_the_results_error(start: Start, host: FakeHost) -> None:
    host.refuse["write_kernel_log"] = "/proc/sys/kernel/printk_devkmsg is `off`"
    agent = start(inject_task())
    status, result = agent.end()
    assert (status, result.ok, result.ended_by) == (1, False, "error")
    assert "printk_devkmsg is `off`" in result.error
    assert result.written_at is None
    assert not (agent.state / "ready").exists()
    assert agent.lines == []
    assert "Traceback" not in agent.stderr()


def test_a_restarted_agent_takes_the_fault_out_and_does_not_put_it_in_again(start: Start, host: FakeHost) -> None:
    first = start(inject_task())
    first.wait_ready()
    first.process.kill()
    first.process.wait()
    status, result = start(inject_task()).end()
    assert (status, result.ok, result.cleanliness) == (1, False, "clean")
    assert "restarted" in result.error
    assert len(host.log) == 1


def test_a_state_folder_that_cannot_be_written_keeps_the_fault_out(start: Start, host: FakeHost, tmp_path: Any) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    status, result = start(inject_task()).end()
    assert (status, result.cleanliness) == (1, "clean")
    assert str(tmp_path / "state") in result.error
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
    start: Start, host: FakeHost, task: str | bytes
) -> None:
    agent = start(task)
    status, result = agent.end()
    assert (status, result.ok, result.cleanliness) == (2, False, "clean")
    assert result.error.startswith("GAMEDAY_TASK is not a valid task: ")
    stderr = agent.stderr()
    assert "Traceback" not in stderr
    assert "hunter2" not in stderr + result.error
    assert host.log == []


def test_a_virtual_host_that_does_not_answer_is_the_results_error(start: Start) -> None:
    agent = start(inject_task(), GAMEDAY_VIRTUAL_HOST="http://127.0.0.1:1/hosts/x")
    status, result = agent.end()
    assert (status, result.ok) == (1, False)
    assert "127.0.0.1:1" in result.error


def test_the_marker_is_written_to_the_kernel_log_and_found_there(start: Start, host: FakeHost) -> None:
    agent = start({"role": "mark", "run_id": "r1", "node": "n", "marker": "run-1234-abcd"})
    status, result = agent.end()
    assert (status, result.ok) == (0, True)
    assert host.log[0].endswith("] gameday: marker run-1234-abcd")
    assert result.written_at


def test_the_role_undo_takes_a_fault_out_that_another_agent_put_in(start: Start, host: FakeHost) -> None:
    task = inject_task(role="undo", undo_state={})
    del task["hold_s"]
    status, result = start(task).end()
    assert (status, result.role, result.cleanliness) == (0, "undo", "clean")
    assert host.log == []


def test_the_role_sample_prints_every_gpu_until_sigterm(start: Start, host: FakeHost) -> None:
    agent = start({"role": "sample", "run_id": "r", "node": "n", "interval_s": 0.1, "duration_s": 30})
    agent.wait_ready()
    agent.terminate()
    status, result = agent.end()
    assert (status, result.ended_by) == (0, "sigterm")
    assert [line["gpu"]["index"] for line in agent.lines[:2]] == [0, 1]


def qa_task(**floors: Any) -> dict[str, Any]:
    return {
        "role": "qa",
        "run_id": "r",
        "node": "n",
        "marker": "20261121-204941-0",
        "expected_gpus": 2,
        "floors": floors,
    }


def test_qa_of_a_healthy_node_passes(start: Start) -> None:
    agent = start(qa_task(gemm_tflops=650, memory_bandwidth_gbs=2500, nvlinks=18))
    status, result = agent.end()
    assert (status, result.ok, result.error) == (0, True, "")
    assert {line["check"] for line in agent.lines} >= {"gpu-count", "kernel-log", "gemm-rate", "nvlinks-active"}
    assert all(line["ok"] for line in agent.lines)


def test_qa_of_a_broken_node_names_the_check_that_fails(start: Start, host: FakeHost) -> None:
    host.samples[1] = healthy_gpu(1, ecc_dbe_volatile=3)
    agent = start(qa_task())
    status, result = agent.end()
    assert (status, result.ok, result.cleanliness) == (1, False, "clean")
    assert [(line["check"], line["gpu"]) for line in agent.lines if not line["ok"]] == [("ecc-double-bit", 1)]
    assert "GPU 1: ecc-double-bit: 3" in result.error


def test_hostile_text_of_a_host_is_kept_as_text(start: Start, host: FakeHost) -> None:
    host.refuse["gpus"] = "\x1b[2J</script>{{7*7}}" + "\u2028" * 3000 + '"}'
    status, result = start(inject_task()).end()
    assert status == 1
    assert "</script>" in result.error
