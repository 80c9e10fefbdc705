"""The behaviour that the faults on units and on the node share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.critical_unit_stopped import CriticalUnitStoppedFault, CriticalUnitStoppedParameters, NeededUnit
from gameday.faults.node_reboot import NodeRebootFault
from gameday.faults.node_shutdown import NodeShutdownFault
from gameday.faults.unit_stopped import UnitStoppedFault, UnitStoppedParameters, WatchingUnit
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

pytestmark = pytest.mark.usefixtures("soon")
STOPPED, CRITICAL, REBOOT, SHUTDOWN = (
    UnitStoppedFault(),
    CriticalUnitStoppedFault(),
    NodeRebootFault(),
    NodeShutdownFault(),
)

KUBELET = CriticalUnitStoppedParameters(unit=NeededUnit.KUBELET, hold=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("fault", "parameters"),
    [(STOPPED, UnitStoppedParameters(unit=WatchingUnit.EXPORTER)), (CRITICAL, KUBELET)],
    ids=["watching", "needed"],
)
def test_a_unit_that_is_off_or_not_there_is_refused(fault: Fault[Any], parameters: Any) -> None:
    host = ModelHost()
    host.machine.set_unit(parameters.unit, active=False)
    with pytest.raises(HostError, match=f"{parameters.unit} is inactive already: there is nothing to stop"):
        fault.prior_state(parameters, 0, host)
    elsewhere = FakeHost()
    elsewhere.programs = lambda argv: result(argv, stdout="LoadState=not-found\nActiveState=inactive\n")
    with pytest.raises(HostError, match="is not-found on this node: is it there under another name, or in a pod"):
        fault.prior_state(parameters, 0, elsewhere)


def test_the_message_for_a_node_without_systemd_names_systemctl() -> None:
    host = FakeHost()
    host.programs = lambda argv: result(argv, 127, stderr="systemctl: not found\n")
    with pytest.raises(HostError, match="no systemctl on this node"):
        STOPPED.prior_state(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


def test_a_refused_stop_quotes_systemctl() -> None:
    host = FakeHost()
    state = "LoadState=loaded\nActiveState=active\n"
    host.programs = lambda argv: (
        result(argv, stdout=state) if "show" in argv else result(argv, 4, stderr="Access denied\n")
    )
    with pytest.raises(HostError, match=r"`systemctl stop nvidia-dcgm-exporter`: exit 4: Access denied"):
        STOPPED.inject(UnitStoppedParameters(unit=WatchingUnit.EXPORTER), 0, host)


@pytest.mark.parametrize("fault", [CRITICAL, REBOOT, SHUTDOWN])
def test_faults_that_may_cost_a_node_are_dangerous(fault: Fault[Any]) -> None:
    assert fault.parameters.dangerous
    assert not STOPPED.parameters.dangerous
