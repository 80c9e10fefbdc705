"""GPUs off the PCI bus and back, and the traps of the driver's own remove."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.gpu_removed import GpuRemovedFault, GpuRemovedParameters
from tests.faults.gpu_model import ModelHost

FAULT = GpuRemovedFault()
ONE = GpuRemovedParameters()
EVERY = GpuRemovedParameters(gpus="all")


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.faults.gpu._WAIT_S", 0.05)
    monkeypatch.setattr("gameday.faults.gpu._POLL_S", 0.01)


@pytest.mark.parametrize(("parameters", "left"), [(ONE, [0, 1, 3]), (EVERY, [])])
def test_it_leaves_the_bus_and_comes_back_with_its_settings(
    host: ModelHost, parameters: GpuRemovedParameters, left: list[int]
) -> None:
    evidence = FAULT.inject(parameters, 2, host)
    assert [sample.index for sample in host.gpus()] == left
    assert [gpu for gpu in range(4) if host.machine.gpu_serves(gpu)] == left
    assert f"NVML counts {len(left)} GPUs" in evidence.lines[-1]
    assert not FAULT.verify_undone(parameters, 2, host, evidence.undo_state)
    undone = FAULT.undo(parameters, 2, host, evidence.undo_state)
    assert "answer again" in undone.lines[1]
    assert FAULT.verify_undone(parameters, 2, host, evidence.undo_state)
    assert all(sample.persistence_mode for sample in host.gpus())


def test_a_gpu_that_a_job_uses_is_refused_before_anything_is_changed(host: ModelHost) -> None:
    host.machine.gpu_processes[2] = {4711: "python train.py"}
    for parameters in (ONE, EVERY):
        with pytest.raises(HostError, match=r"GPU 2 is open in 1 process\(es\): 4711 python train.py"):
            FAULT.prior_state(parameters, 2, host)
    assert host.ran == []
    FAULT.prior_state(ONE, 1, host)


def test_a_daemon_that_keeps_the_gpu_open_is_refused_and_persistence_comes_back(host: ModelHost) -> None:
    host.ignore = {"-pm"}
    state = FAULT.prior_state(ONE, 2, host)
    with pytest.raises(HostError, match=r"nvidia-persistenced.*would hang"):
        FAULT.inject(ONE, 2, host)
    host.ignore = set()
    FAULT.undo(ONE, 2, host, state)
    assert FAULT.verify_undone(ONE, 2, host, state)
    assert host.machine.known_gpus() == [0, 1, 2, 3]


def test_a_removal_that_removes_nothing_is_no_injection(host: ModelHost) -> None:
    host.ignore = {"/remove"}
    with pytest.raises(HostError, match=r"0000:52:00.0 is still on the PCI bus"):
        FAULT.inject(ONE, 2, host)


def test_a_rescan_that_finds_nothing_is_seen(host: ModelHost) -> None:
    state = FAULT.inject(ONE, 2, host).undo_state
    host.ignore = {"/rescan"}
    assert "do not all answer" in FAULT.undo(ONE, 2, host, state).lines[1]
    assert not FAULT.verify_undone(ONE, 2, host, state)


def test_a_removal_that_was_cut_short_is_undone_from_what_prior_kept(host: ModelHost) -> None:
    state = FAULT.prior_state(EVERY, 0, host)
    host.fleet.persistence[0, :2] = False
    host.machine.pci_remove(0)
    FAULT.undo(EVERY, 0, host, state)
    assert FAULT.verify_undone(EVERY, 0, host, state)


def test_with_nothing_kept_the_bus_is_rescanned_and_nobody_claims_that_all_is_well(host: ModelHost) -> None:
    FAULT.inject(ONE, 2, host)
    FAULT.undo(ONE, 2, host, {})
    assert host.machine.known_gpus() == [0, 1, 2, 3]
    with pytest.raises(HostError, match="compare `nvidia-smi -L`"):
        FAULT.verify_undone(ONE, 2, host, {})
