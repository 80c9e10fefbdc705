"""ECC off: with a reset, without one, and after somebody else's."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.ecc_off import EccOffFault, EccOffParameters
from gameday.faults.gpu import GpuParameters
from tests.faults.gpu_model import ModelHost

Case = tuple[Fault[Any], GpuParameters, str]

ECC: Case = (EccOffFault(), EccOffParameters(), "-e")


def test_ecc_off_with_a_reset_changes_the_mode_in_force(host: ModelHost) -> None:
    fault, parameters = EccOffFault(), EccOffParameters(reset=True)
    state = fault.inject(parameters, 2, host).undo_state
    assert not host.machine.samples()[2].ecc_mode
    fault.undo(parameters, 2, host, state)
    assert fault.verify_undone(parameters, 2, host, state)
    assert host.machine.samples()[2].ecc_mode
    assert host.machine.samples()[2].persistence_mode, "a reset needs it off, and it is given back"


def test_ecc_off_with_a_reset_of_a_busy_gpu_is_refused_and_comes_out(host: ModelHost) -> None:
    host.machine.gpu_processes[2] = {4711: "python"}
    fault, parameters = EccOffFault(), EccOffParameters(reset=True)
    with pytest.raises(HostError, match=r"GPU 2 is open in 1 process\(es\): 4711 python; nvidia-smi resets no GPU"):
        fault.inject(parameters, 2, host)
    assert host.ran == []
    fault.undo(parameters, 2, host, {})
    assert fault.verify_undone(parameters, 2, host, {})


def test_ecc_that_somebody_elses_reset_turned_off_is_not_called_undone(host: ModelHost) -> None:
    fault, parameters, _ = ECC
    state = fault.inject(parameters, 2, host).undo_state
    host.fleet.reset((0, 2))
    assert "a GPU reset or a reboot turns it on" in fault.undo(parameters, 2, host, state).lines[-1]
    assert not fault.verify_undone(parameters, 2, host, state)
