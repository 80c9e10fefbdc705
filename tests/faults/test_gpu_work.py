"""The behaviour that all faults share which are work on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.gpu import GpuParameters
from gameday.faults.gpu_burn import GpuBurnFault, GpuBurnParameters
from gameday.faults.gpu_memory import GpuMemoryFault, GpuMemoryParameters
from gameday.faults.numa import NumaFault, NumaParameters
from tests.faults.gpu_model import ModelHost
from tests.faults.working_host import Hold

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()

ALL = pytest.mark.parametrize(
    ("fault", "parameters"),
    [(BURN, GpuBurnParameters()), (MEMORY, GpuMemoryParameters()), (NUMA, NumaParameters())],
    ids=["burn", "memory", "numa"],
)


@ALL
def test_it_runs_on_its_gpu_and_nothing_of_it_stays(
    fault: Fault[Any], parameters: GpuParameters, host: ModelHost
) -> None:
    evidence = fault.inject(parameters, 2, host)
    assert list(host.machine.works) == [2]
    assert not fault.verify_undone(parameters, 2, host, {})
    fault.hold(parameters, 2, host, Hold(host, 3))
    fault.undo(parameters, 2, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 2, host, evidence.undo_state)
    assert host.machine.gpu_processes[2] == {}
    assert host.machine.samples()[2].memory_used_bytes == 4 << 20


@ALL
def test_a_gpu_that_is_not_there_is_refused(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    with pytest.raises(HostError, match="no GPU 9"):
        fault.prior_state(parameters, 9, host)


@ALL
def test_work_that_ends_by_itself_is_an_error(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    fault.inject(parameters, 2, host)
    with pytest.raises(HostError, match="over: none was begun"):
        fault.hold(parameters, 2, host, Hold(host, 9, lambda second: host.end_work(2) and None))


@ALL
def test_undo_without_anything_going_on_is_clean(fault: Fault[Any], parameters: GpuParameters, host: ModelHost) -> None:
    fault.undo(parameters, 2, host, {})
    assert fault.verify_undone(parameters, 2, host, {})
