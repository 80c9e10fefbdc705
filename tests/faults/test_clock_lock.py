"""A clock lock: one that would not show is refused."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.clock_lock import ClockLockFault, ClockLockParameters
from tests.faults.gpu_model import ModelHost


@pytest.mark.parametrize(("mhz", "message"), [(1980, "would lock nothing"), (345, "would not show")])
def test_a_lock_that_could_not_be_seen_is_refused(host: ModelHost, mhz: int, message: str) -> None:
    with pytest.raises(HostError, match=message):
        ClockLockFault().prior_state(ClockLockParameters(sm_clock_mhz=mhz), 0, host)
