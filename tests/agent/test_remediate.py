"""Remediation keeps the tool's own message, and proves its effect."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.remediate import remediate
from gameday.agent.task import AgentResult, RemediateTask
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


def run_remediation(context: Context, action: str, gpu: int | None = 1) -> AgentResult:
    return remediate(RemediateTask.model_validate({"run_id": "r", "node": "n", "gpu": gpu, "action": action}), context)


def healing(host: FakeHost) -> Any:
    def programs(argv: Sequence[str]) -> ProgramResult:
        if "--gpu-reset" in argv:
            host.samples[1] = healthy_gpu(1)
            return result(argv, stdout="GPU 00000000:1B:00.0 was successfully reset.\n")
        return result(argv)

    return programs


def test_a_reset_is_proved_by_nvml_and_noted_in_the_kernel_log(host: FakeHost, context: Context) -> None:
    host.programs = healing(host)
    remediation = run_remediation(context, "gpu-reset")
    assert (remediation.ok, remediation.cleanliness, remediation.error) == (True, "clean", "")
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


def test_a_gpu_is_found_by_its_address_where_its_index_is_not_known(host: FakeHost, context: Context) -> None:
    host.programs = healing(host)
    address = host.samples[1].pci_bus_id
    order = {"run_id": "r", "node": "n", "action": "gpu-reset"}
    reset = remediate(RemediateTask.model_validate({**order, "pci": address}), context)
    assert reset.ok and any("GPU 1" in line for line in reset.evidence)
    unknown = remediate(RemediateTask.model_validate({**order, "pci": "0000:ff:00"}), context)
    assert (unknown.ok, unknown.error) == (False, "gpu-reset: NVML knows no GPU at 0000:ff:00")


def test_a_gpu_in_persistence_mode_is_in_it_again_after_its_reset(node: ModelHost, on_node: Context) -> None:
    node.machine.double_bit_error(1)
    remediation = run_remediation(on_node, "gpu-reset")
    assert (remediation.ok, remediation.error) == (True, "")
    sample = node.gpus()[1]
    assert (sample.ecc_dbe_volatile, sample.persistence_mode) == (0, True)
    commands = [argv[3:] for argv in node.ran]
    assert commands[0] == ("-pm", "0")
    assert commands[-1] == ("-pm", "1")


def test_a_gpu_that_was_not_in_persistence_mode_is_not_put_into_it(node: ModelHost, on_node: Context) -> None:
    node.fleet.persistence[0, 1] = False
    assert run_remediation(on_node, "gpu-reset").ok
    assert not any("-pm" in argv for argv in node.ran)


def test_a_monitor_that_has_the_gpu_open_is_named_and_nothing_is_changed(node: ModelHost, on_node: Context) -> None:
    """A monitor is no compute process: nvidia-smi does not list it, and refuses the reset because of it."""
    node.machine.gpu_processes[1] = {4711: "nvidia-device-plugin"}
    remediation = run_remediation(on_node, "gpu-reset")
    assert not remediation.ok
    assert "GPU 1 is open in 1 process(es): 4711 nvidia-device-plugin" in remediation.error
    assert node.ran == []


def test_a_daemon_that_keeps_the_gpu_open_is_named_and_persistence_is_restored(
    node: ModelHost, on_node: Context
) -> None:
    node.ignore = {"-pm"}
    remediation = run_remediation(on_node, "gpu-reset")
    assert "nvidia-persistenced" in remediation.error
    assert [argv[-2:] for argv in node.ran] == [("-pm", "0"), ("-pm", "1")]


def test_persistence_is_restored_after_a_refused_reset(host: FakeHost, context: Context) -> None:
    host.samples[1] = healthy_gpu(1)
    host.programs = lambda argv: result(argv, 255 if "--gpu-reset" in argv else 0, stdout="In use by another client")
    assert "In use by another client" in run_remediation(context, "gpu-reset").error
    assert host.ran[-1] == ("nvidia-smi", "-i", "GPU-0000-1", "-pm", "1")


def test_the_error_holds_the_tools_own_message(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, 1, stderr="GPU 00000000:1B:00.0 is currently in use\nby another process")
    remediation = run_remediation(context, "gpu-reset")
    assert not remediation.ok
    assert "nvidia-smi refused: GPU 00000000:1B:00.0 is currently in use by another process" in remediation.error
    event = recognise(host.log[-1])
    assert event
    assert event.success is False


def test_a_reset_that_leaves_the_gpu_lost_fails(
    host: FakeHost, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.remediations.gpu_reset._BACK_WITHIN_S", 0.0)
    outcome = run_remediation(context, "gpu-reset")
    assert not outcome.ok
    assert "not back within" in outcome.error
    assert "success: false" in host.log[-1]


@pytest.mark.parametrize("gpu", [None, 9])
def test_a_reset_of_a_gpu_that_nvml_does_not_know_is_refused(host: FakeHost, context: Context, gpu: int | None) -> None:
    remediation = run_remediation(context, "gpu-reset", gpu)
    assert not remediation.ok
    assert host.ran == []


def test_the_termination_message_is_written_before_the_reboot(host: FakeHost, context: Context) -> None:
    messages: list[AgentResult] = []

    def programs(argv: Sequence[str]) -> ProgramResult:
        messages.append(AgentResult.model_validate_json(context.termination_log.read_bytes()))
        return result(argv)

    host.programs = programs
    remediation = run_remediation(context, "reboot")
    assert host.ran == [("systemctl", "reboot")]
    assert messages == [remediation]
    assert remediation.ok
    assert remediation.undo_state == {"boot_id": "boot-1"}


def test_a_node_that_goes_down_while_it_answers_counts_as_rebooting(host: FakeHost, context: Context) -> None:
    def programs(argv: Sequence[str]) -> ProgramResult:
        host.refuse["boot_id"] = "node is off"
        raise HostError("connection reset")

    host.programs = programs
    assert run_remediation(context, "reboot").ok


def test_a_reboot_that_does_not_happen_is_an_error(host: FakeHost, context: Context) -> None:
    host.refuse["run"] = "nsenter: Operation not permitted"
    assert "Operation not permitted" in run_remediation(context, "reboot").error
    del host.refuse["run"]
    host.programs = lambda argv: result(argv, 1, stderr="Access denied")
    assert "systemctl exit 1: Access denied" in run_remediation(context, "reboot").error


def test_a_driver_in_a_container_is_not_restarted(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, stdout="LoadState=not-found\nActiveState=inactive\n")
    assert "not-found on this host, for example" in run_remediation(context, "driver-restart").error
    assert not any("restart" in argv for argv in host.ran)


def test_a_driver_restart_fails_while_a_gpu_is_lost(host: FakeHost, context: Context) -> None:
    host.programs = lambda argv: result(argv, stdout="LoadState=loaded\nActiveState=active\n")
    remediation = run_remediation(context, "driver-restart")
    assert not remediation.ok, "a GPU is still lost"
    assert "lost: [1]" in remediation.error
    host.samples[1] = healthy_gpu(1)
    assert run_remediation(context, "driver-restart").ok
    assert ("systemctl", "restart", "nvidia-persistenced") in host.ran
    assert "success: true" in host.log[-1]


def test_no_remediation_does_nothing(host: FakeHost, context: Context) -> None:
    assert run_remediation(context, "none").ok
    assert (host.ran, host.log) == ([], [])
