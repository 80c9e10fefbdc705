"""The token bucket filter."""

from __future__ import annotations

import json

from gameday.faults.net_tbf import TbfFault, TbfParameters
from tests.faults import recorded_iproute2 as recorded


def test_tbf_is_read_back_with_the_kernels_rounding() -> None:
    options = json.loads(recorded.TBF)[0]["options"]
    parameters = TbfParameters(interface="ib0", rate_mbit=1000)
    assert "burst" in TbfFault().mismatch(parameters, options)  # recorded with a bucket of 1 MiB
    assert TbfFault().mismatch(parameters, options | {"burst": 1249500}) == ""
