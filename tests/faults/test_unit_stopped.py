"""A stopped unit that watches the GPUs."""

from __future__ import annotations

import threading

import pytest

from gameday.errors import HostError
from gameday.faults.registry import parse_parameters
from gameday.faults.unit_stopped import UnitStoppedFault, UnitStoppedParameters, WatchingUnit
from tests.faults.gpu_model import ModelHost

STOPPED = UnitStoppedFault()


@pytest.mark.parametrize("unit", list(WatchingUnit))
def test_a_unit_is_stopped_and_started_again_with_and_without_state(unit: WatchingUnit) -> None:
    host, parameters = ModelHost(), UnitStoppedParameters(unit=unit)
    evidence = STOPPED.inject(parameters, 0, host)
    assert not host.machine.is_active(unit)
    assert evidence.lines[0] == f"before: {unit} loaded, active"
    assert evidence.lines[2] == "after: loaded, inactive"
    for state in (evidence.undo_state, {}, {}):
        STOPPED.undo(parameters, 0, host, state)
        assert STOPPED.verify_undone(parameters, 0, host, state)
    assert host.machine.is_active(unit)


def test_a_stop_that_stopped_nothing_is_an_error() -> None:
    host = ModelHost()
    host.ignore.add("stop")
    with pytest.raises(HostError, match=r"succeeded, and the unit is loaded, active"):
        STOPPED.inject(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


def test_a_unit_that_somebody_starts_meanwhile_ends_the_fault() -> None:
    class Once(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            host.machine.set_unit("nvidia-dcgm-exporter", active=True)
            return False

    host, parameters = ModelHost(), UnitStoppedParameters(unit=WatchingUnit.EXPORTER)
    STOPPED.inject(parameters, 0, host)
    with pytest.raises(HostError, match="runs again: somebody started it"):
        STOPPED.hold(parameters, 0, host, Once())


def test_an_exporter_that_is_stopped_with_its_host_engine_comes_back_with_it() -> None:
    host, parameters = ModelHost(), UnitStoppedParameters(unit=WatchingUnit.HOST_ENGINE)
    host.machine.required_by = {"nvidia-dcgm": ("nvidia-dcgm-exporter",)}
    evidence = STOPPED.inject(parameters, 0, host)
    assert evidence.lines[1] == "systemctl stop nvidia-dcgm, and with it nvidia-dcgm-exporter.service"
    host.machine.set_unit("nvidia-dcgm", active=True)
    assert not STOPPED.verify_undone(parameters, 0, host, evidence.undo_state)
    STOPPED.undo(parameters, 0, host, evidence.undo_state)
    assert host.machine.is_active("nvidia-dcgm-exporter")
    assert STOPPED.verify_undone(parameters, 0, host, evidence.undo_state)


@pytest.mark.parametrize("data", [{"unit": "ssh"}, {"unit": "kubelet"}, {"unit": "kubelet; reboot"}, {}])
def test_other_units_are_refused(data: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unit"):
        parse_parameters({"type": "unit_stopped"} | data)
