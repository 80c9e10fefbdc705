"""Variables of the canary alone."""

from __future__ import annotations

from gameday.faults.nccl_environment import NcclEnvironmentFault, NcclEnvironmentParameters
from tests.faults.gpu_model import ModelHost


def test_the_environment_is_the_canarys_alone(host: ModelHost) -> None:
    parameters = NcclEnvironmentParameters(variables={"NCCL_IB_DISABLE": "1"})
    fault = NcclEnvironmentFault()
    evidence = fault.inject(parameters, 0, host)
    assert fault.canary_job(parameters).environment == {"NCCL_IB_DISABLE": "1"}
    assert "NCCL_IB_DISABLE=1" in evidence.lines[0]
    assert host.ran == []
