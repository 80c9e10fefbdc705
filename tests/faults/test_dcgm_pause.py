"""A pause of DCGM's sampling."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.dcgm_field import DcgmFieldFault
from gameday.faults.dcgm_pause import DcgmPauseFault, DcgmPauseParameters
from tests.faults.dcgm_model import TEMPERATURE, Held, cached
from tests.faults.gpu_model import ModelHost

FIELD, PAUSE = DcgmFieldFault(), DcgmPauseFault()


def test_a_pause_freezes_dcgms_values_and_a_resume_moves_them_again(host: ModelHost) -> None:
    parameters = DcgmPauseParameters()
    evidence = PAUSE.inject(parameters, 0, host)
    assert evidence.lines[1] == "dcgmi test --pause: Successfully paused metrics monitoring"
    energy, temperature = cached(host, "DCGM_FI_DEV_POWER_USAGE"), cached(host, TEMPERATURE)
    host.fleet.set_burst_load((0, 0), 1.0)
    host.clock.pass_by(60)
    assert (cached(host, "DCGM_FI_DEV_POWER_USAGE"), cached(host, TEMPERATURE)) == (energy, temperature)
    assert host.gpus()[0].temperature_c > temperature + 10, "NVML shows the real value meanwhile"
    assert not PAUSE.verify_undone(parameters, 0, host, {})
    for _ in range(2):
        PAUSE.undo(parameters, 0, host, {})
        assert PAUSE.verify_undone(parameters, 0, host, evidence.undo_state)
    assert cached(host, TEMPERATURE) > temperature + 10


def test_a_pause_of_somebody_else_is_neither_taken_over_nor_resumed(host: ModelHost) -> None:
    host.machine.cache.pause(0)
    with pytest.raises(HostError, match="paused already, and not by this run"):
        PAUSE.prior_state(DcgmPauseParameters(), 0, host)
    assert not host.machine.cache.collecting[0]


def test_a_pause_that_somebody_ends_ends_the_fault(host: ModelHost) -> None:
    PAUSE.inject(DcgmPauseParameters(), 0, host)
    with pytest.raises(HostError, match="DCGM collects again"):
        PAUSE.hold(DcgmPauseParameters(), 0, host, Held(3, lambda: host.machine.cache.restart(0)))


def test_a_pause_that_changed_nothing_is_an_error(host: ModelHost) -> None:
    host.ignore.add("--pause")
    with pytest.raises(HostError, match=r"printed 'All done\.', and DCGM's core module is not paused"):
        PAUSE.inject(DcgmPauseParameters(), 0, host)
