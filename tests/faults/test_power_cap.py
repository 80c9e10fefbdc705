"""A power cap: its bounds, and the limit that comes back."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.gpu import GpuParameters
from gameday.faults.power_cap import PowerCapFault, PowerCapParameters
from tests.faults.gpu_model import ModelHost

Case = tuple[Fault[Any], GpuParameters, str]

POWER: Case = (PowerCapFault(), PowerCapParameters(watts=300), "-pl")


def test_a_cap_of_the_sites_own_is_what_comes_back(host: ModelHost) -> None:
    host.fleet.power_limit[0, 2] = 500
    fault, parameters, _ = POWER
    state = fault.inject(parameters, 2, host).undo_state
    fault.undo(parameters, 2, host, state)
    assert host.fleet.power_limit[0, 2] == 500


def test_a_cap_that_is_not_ours_is_left_alone_when_nothing_was_kept(host: ModelHost) -> None:
    host.fleet.power_limit[0, 2] = 500
    fault, parameters, _ = POWER
    assert "left as it is" in fault.undo(parameters, 2, host, {}).lines[0]
    assert fault.verify_undone(parameters, 2, host, {})
    assert host.fleet.power_limit[0, 2] == 500


@pytest.mark.parametrize(
    ("watts", "message"), [(100, "from 200 to 700 W, not 100 W"), (900, "from 200 to 700"), (700, "would cap nothing")]
)
def test_a_cap_the_board_does_not_take_is_refused_with_its_bounds(host: ModelHost, watts: float, message: str) -> None:
    with pytest.raises(HostError, match=message):
        PowerCapFault().prior_state(PowerCapParameters(watts=watts), 0, host)
    assert not any("-pl" in argv for argv in host.ran)


def test_a_cap_that_the_driver_would_forget_is_refused(host: ModelHost) -> None:
    host.fleet.persistence[0, 0] = False
    with pytest.raises(HostError, match="persistence mode"):
        PowerCapFault().prior_state(PowerCapParameters(watts=300), 0, host)
