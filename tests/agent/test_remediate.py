"""Remediation says what the tool said, and proves what it claims."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.remediate import remediate
from gameday.agent.task import Outcome, RemediateTask
from gameday.errors import HostError
from gameday.host.base import ProgramResult
from gameday.xid.lines import Kind, recognise
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, healthy_gpu, result


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.samples[1] = healthy_gpu(1, lost=True)
    return host


@pytest.fixture
def context(host: FakeHost, tmp_path: Path) -> Context:
    return Context(host, Ending(), tmp_path, tmp_path / "log")


def act(context: Context, action: str, gpu: int | None = 1) -> Outcome:
    return remediate(RemediateTask.model_validate({"run_id": "r", "node": "n", "gpu": gpu, "action": action}), context)


def healing(host: FakeHost) -> Any:
    def programs(argv: Sequence[str]) -> ProgramResult:
        if "--gpu-reset" in argv:
            host.samples[1] = healthy_gpu(1)
            return result(argv, stdout="GPU 00000000:1B:00.0 was successfully reset.\n")
        return result(argv)

    return programs


def test_a_reset_is_proved_by_nvml_and_told_in_the_kernel_log(host: FakeHost, context: Context) -> None:
    host.programs = healing(host)
    outcome = act(context, "gpu-reset")
    assert (outcome.ok, outcome.cleanliness, outcome.error) == (True, "clean", "")
    assert ("nvidia-smi", "--gpu-reset", "-i", "GPU-0000-1") in host.ran
    event = recognise(host.log[-1])
    assert event
    assert (event.kind, event.pci, event.success) == (Kind.GPU_RESET, "0000:1b:00", True)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> ModelHost:
    """A healthy GPU node: persistence mode on, and its daemon there."""
    monkeypatch.setattr("gameday.faults.gpu._WAIT_S", 0.05)
    return ModelHost()


@pytest.fixture
def on_node(node: ModelHost, tmp_path: Path) -> Context:
    return Context(node, Ending(), tmp_path, tmp_path / "log")


def test_a_gpu_in_persistence_mode_is_reset_and_is_in_it_again(node: ModelHost, on_node: Context) -> None:
    node.machine.double_bit_error(1)
    outcome = act(on_node, "gpu-reset")
    assert (outcome.ok, outcome.error) == (True, "")
    sample = node.gpus()[1]
    assert (sample.ecc_dbe_volatile, sample.persistence_mode) == (0, True)
    commands = [argv[3:] for argv in node.ran]
    assert commands[0] == ("-pm", "0")
    assert commands[-1] == ("-pm", "1")


def test_a_gpu_that_is_not_in_persistence_mode_stays_so(node: ModelHost, on_node: Context) -> None:
    node.fleet.persistence[0, 1] = False
    assert act(on_node, "gpu-reset").ok
    assert not any("-pm" in argv for argv in node.ran)


def test_a_monitor_that_has_the_gpu_open_is_named_and_nothing_is_touched(node: ModelHost, on_node: Context) -> None:
    """No compute process: nvidia-smi's list of those is empty, and the reset would be refused all the same."""
    node.machine.gpu_processes[1] = {4711: "nvidia-device-plugin"}
    outcome = act(on_node, "gpu-reset")
    assert not outcome.ok
    assert "GPU 1 is open in 1 process(es): 4711 nvidia-device-plugin" in outcome.error
    assert node.ran == []


def test_a_daemon_that_does_not_let_go_is_named_and_persistence_comes_back(node: ModelHost, on_node: Context) -> None:
    node.ignore = {"-pm"}
    outcome = act(on_node, "gpu-reset")
    assert "nvidia-persistenced" in outcome.error
    assert [argv[-2:] for argv in node.ran] == [("-pm", "0"), ("-pm", "1")]


def test_a_reset_that_is_refused_gives_persistence_back(host: FakeHost, context: Context) -> None:
    host.samples[1] = healthy_gpu(1)
    host.programs = lambda argv: result(argv, 255 if "--gpu-reset" in argv else 0, stdout="In use by another client")
    assert "In use by another client" in act(context, "gpu-reset").error
    assert host.ran[-1] == ("nvidia-smi", "-i", "GPU-0000-1", "-pm", "1")


def test_the_tools_refusal_is_told_in_its_own_words(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, 1, stderr="GPU 00000000:1B:00.0 is currently in use\nby another process")
    outcome = act(context, "gpu-reset")
    assert not outcome.ok
    assert "nvidia-smi refused: GPU 00000000:1B:00.0 is currently in use by another process" in outcome.error
    event = recognise(host.log[-1])
    assert event
    assert event.success is False


def test_a_reset_that_leaves_the_gpu_lost_is_no_success(
    host: FakeHost, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.remediations.gpu_reset._BACK_WITHIN_S", 0.0)
    outcome = act(context, "gpu-reset")
    assert not outcome.ok
    assert "not back within" in outcome.error
    assert "success: false" in host.log[-1]


@pytest.mark.parametrize("gpu", [None, 9])
def test_a_reset_needs_a_gpu(host: FakeHost, context: Context, gpu: int | None) -> None:
    outcome = act(context, "gpu-reset", gpu)
    assert not outcome.ok
    assert host.ran == []


def test_the_answer_is_there_before_the_reboot(host: FakeHost, context: Context) -> None:
    answers: list[Outcome] = []

    def programs(argv: Sequence[str]) -> ProgramResult:
        answers.append(Outcome.model_validate_json(context.termination_log.read_bytes()))
        return result(argv)

    host.programs = programs
    outcome = act(context, "reboot")
    assert host.ran == [("systemctl", "reboot")]
    assert answers == [outcome]
    assert outcome.ok
    assert outcome.undo_state == {"boot_id": "boot-1"}


def test_a_node_that_goes_down_while_it_answers_is_rebooting(host: FakeHost, context: Context) -> None:
    def programs(argv: Sequence[str]) -> ProgramResult:
        host.refuse["boot_id"] = "node is off"
        raise HostError("connection reset")

    host.programs = programs
    assert act(context, "reboot").ok


def test_a_reboot_that_did_not_happen_is_told(host: FakeHost, context: Context) -> None:
    host.refuse["run"] = "nsenter: Operation not permitted"
    assert "Operation not permitted" in act(context, "reboot").error
    del host.refuse["run"]
    host.programs = lambda argv: result(argv, 1, stderr="Access denied")
    assert "systemctl exit 1: Access denied" in act(context, "reboot").error


def test_a_driver_in_a_container_is_not_restarted(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, stdout="LoadState=not-found\nActiveState=inactive\n")
    assert "not-found on this host, as where the GPU operator" in act(context, "driver-restart").error
    assert not any("restart" in argv for argv in host.ran)


def test_a_driver_restart_looks_at_the_unit_and_at_the_gpus(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, stdout="LoadState=loaded\nActiveState=active\n")
    outcome = act(context, "driver-restart")
    assert not outcome.ok, "a GPU is still lost"
    assert "lost: [1]" in outcome.error
    host.samples[1] = healthy_gpu(1)
    assert act(context, "driver-restart").ok
    assert ("systemctl", "restart", "nvidia-persistenced") in host.ran
    assert "success: true" in host.log[-1]


def test_no_remediation_does_nothing(host: FakeHost, context: Context) -> None:
    assert act(context, "none").ok
    assert (host.ran, host.log) == ([], [])
