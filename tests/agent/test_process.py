"""The agent as a process: the fault goes in and comes out, and there is always a termination message."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from gameday.agent.task import InjectedNote
from tests.agent.conftest import Agent, inject_task
from tests.host.fake import FakeHost

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


@pytest.mark.slow
def test_further_sigterms_do_not_interrupt_the_undo(start: Start, host: FakeHost) -> None:
    agent = start(inject_task(fault={"type": "xid", "xid": 79, "repeat": 3}))
    agent.wait_ready()
    for _ in range(20):
        agent.terminate()
    status, result = agent.end()
    assert (status, result.cleanliness, result.ended_by) == (0, "clean", "sigterm")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_restarted_agent_takes_the_fault_out_and_does_not_put_it_in_again(start: Start, host: FakeHost) -> None:
    first = start(inject_task())
    first.wait_ready()
    first.process.kill()
    first.process.wait()
    status, result = start(inject_task()).end()
    assert (status, result.ok, result.cleanliness) == (1, False, "clean")
    assert "restarted" in result.error
    assert len(host.log) == 1


@pytest.mark.slow
def test_the_role_sample_prints_every_gpu_until_sigterm(start: Start, host: FakeHost) -> None:
    agent = start({"role": "sample", "run_id": "r", "node": "n", "interval_s": 0.1, "duration_s": 30})
    agent.wait_ready()
    agent.terminate()
    status, result = agent.end()
    assert (status, result.ended_by) == (0, "sigterm")
    assert [gpu["index"] for gpu in agent.lines[0]["gpus"]] == [0, 1]
