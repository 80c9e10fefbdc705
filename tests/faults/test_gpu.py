"""The behaviour that all faults share which set something on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.clock_lock import ClockLockFault, ClockLockParameters
from gameday.faults.ecc_off import EccOffFault, EccOffParameters
from gameday.faults.gpu import GpuParameters
from gameday.faults.persistence_off import PersistenceOffFault, PersistenceOffParameters
from gameday.faults.power_cap import PowerCapFault, PowerCapParameters
from tests.faults.gpu_model import ModelHost
from tests.host.fake import healthy_gpu

Case = tuple[Fault[Any], GpuParameters, str]

POWER: Case = (PowerCapFault(), PowerCapParameters(watts=300), "-pl")

CLOCK: Case = (ClockLockFault(), ClockLockParameters(sm_clock_mhz=510), "-lgc")

PERSISTENCE: Case = (PersistenceOffFault(), PersistenceOffParameters(), "-pm")

ECC: Case = (EccOffFault(), EccOffParameters(), "-e")

ALL = pytest.mark.parametrize("case", [POWER, CLOCK, PERSISTENCE, ECC], ids=["power", "clock", "persistence", "ecc"])


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.faults.clock_lock._SETTLES_WITHIN_S", 0.3)
    monkeypatch.setattr("gameday.faults.clock_lock._POLL_S", 0.01)


def settings(host: ModelHost) -> list[tuple[Any, ...]]:
    return [
        (s.power_limit_w, s.sm_clock_mhz, s.persistence_mode, s.ecc_mode, s.ecc_mode_pending)
        for s in host.machine.samples()
    ]


@ALL
def test_it_goes_in_on_its_gpu_alone_and_comes_out(case: Case, host: ModelHost) -> None:
    fault, parameters, option = case
    before = settings(host)
    evidence = fault.inject(parameters, 2, host)
    assert [n for n, (was, now) in enumerate(zip(before, settings(host), strict=True)) if was != now] == [2]
    assert evidence.written_at
    assert evidence.lines[0].startswith("before: ")
    assert option in evidence.lines[1]
    assert evidence.lines[-1].startswith("after: ")
    assert not fault.verify_undone(parameters, 2, host, evidence.undo_state)
    fault.undo(parameters, 2, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 2, host, evidence.undo_state)
    assert settings(host) == before


@ALL
def test_a_driver_that_accepts_and_does_nothing_is_no_injection(case: Case, host: ModelHost) -> None:
    fault, parameters, option = case
    host.ignore = {option}
    with pytest.raises(HostError, match=r"printed|All done"):
        fault.inject(parameters, 2, host)


@ALL
def test_an_undo_that_does_nothing_is_seen(case: Case, host: ModelHost) -> None:
    fault, parameters, option = case
    state = fault.inject(parameters, 2, host).undo_state
    host.ignore = {option, "-rgc"}
    fault.undo(parameters, 2, host, state)
    assert not fault.verify_undone(parameters, 2, host, state)


@ALL
@pytest.mark.parametrize("injected", [False, True])
def test_the_prior_state_is_enough_to_undo_whether_it_went_in_or_not(
    case: Case, host: ModelHost, injected: bool
) -> None:
    fault, parameters, _ = case
    before = settings(host)
    state = fault.prior_state(parameters, 2, host)
    if injected:
        fault.inject(parameters, 2, host)
    for _ in range(2):
        fault.undo(parameters, 2, host, state)
        assert fault.verify_undone(parameters, 2, host, state)
    assert settings(host) == before


@ALL
def test_with_nothing_kept_at_all_it_still_comes_out(case: Case, host: ModelHost) -> None:
    fault, parameters, _ = case
    before = settings(host)
    fault.inject(parameters, 2, host)
    fault.undo(parameters, 2, host, {})
    assert fault.verify_undone(parameters, 2, host, {})
    assert settings(host) == before


@ALL
def test_reading_the_prior_state_changes_nothing(case: Case, host: ModelHost) -> None:
    fault, parameters, _ = case
    before = settings(host)
    fault.prior_state(parameters, 2, host)
    assert settings(host) == before


@ALL
def test_a_gpu_that_is_not_there_or_lost_is_refused(case: Case, host: ModelHost) -> None:
    fault, parameters, _ = case
    with pytest.raises(HostError, match=r"no GPU 9 on this node; NVML knows \[0, 1, 2, 3\]"):
        fault.prior_state(parameters, 9, host)
    host.machine.lose_gpu(2)
    with pytest.raises(HostError, match="GPU 2 is lost"):
        fault.prior_state(parameters, 2, host)
    assert host.ran == []


@ALL
def test_the_gpu_is_undone_by_its_uuid_when_indices_have_moved(case: Case, host: ModelHost) -> None:
    fault, parameters, _ = case
    state = fault.inject(parameters, 2, host).undo_state
    fault.undo(parameters, 0, host, state)
    assert fault.verify_undone(parameters, 0, host, state)
    assert fault.verify_undone(parameters, 2, host, state)


@ALL
def test_the_plans_gpu_counts_more_than_the_runs(case: Case, host: ModelHost) -> None:
    fault, parameters, _ = case
    state = fault.inject(parameters.model_copy(update={"gpu": 1}), 2, host).undo_state
    assert state["uuid"] == host.machine.gpus[1].uuid


def test_what_is_off_already_is_refused(host: ModelHost) -> None:
    host.fleet.persistence[0, 0] = host.fleet.ecc_pending[0, 0] = False
    with pytest.raises(HostError, match="nothing to turn off"):
        PersistenceOffFault().prior_state(PersistenceOffParameters(), 0, host)
    with pytest.raises(HostError, match="ECC of GPU 0 is on, off after a reset: there is nothing to turn off"):
        EccOffFault().prior_state(EccOffParameters(), 0, host)


def test_a_refusal_quotes_nvidia_smi(host: ModelHost) -> None:
    fault, parameters, _ = POWER
    host.machine.gpus = host.machine.gpus[:2]  # NVML still lists it, nvidia-smi does not
    with pytest.raises(HostError, match=r"nvidia-smi --query-gpu=.* on GPU 2: exit 6: No devices were found"):
        fault.prior_state(parameters, 2, _Reading(host))


class _Reading(ModelHost):
    """NVML of a healthy node before everything else of another host."""

    def __init__(self, other: ModelHost) -> None:
        self.__dict__.update(other.__dict__)

    def gpus(self) -> list[Any]:
        return [healthy_gpu(index) for index in range(4)]
