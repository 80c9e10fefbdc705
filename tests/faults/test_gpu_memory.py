"""GPU memory: taken, fragmented, and shown by NVML."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.gpu_burn import GpuBurnFault
from gameday.faults.gpu_memory import GpuMemoryFault, GpuMemoryParameters
from gameday.faults.numa import NumaFault
from tests.faults.gpu_model import ModelHost

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()


def test_exhausted_memory_leaves_what_was_asked_and_shows_in_nvml(host: ModelHost) -> None:
    evidence = MEMORY.inject(GpuMemoryParameters(leave_mib=256), 2, host)
    sample = host.gpus()[2]
    assert sample.memory_total_bytes and sample.memory_used_bytes
    assert host.fleet.memory_free_mib((0, 2)) == 256
    assert "256 MiB free; the largest block left is 256 MiB" in evidence.lines[1]


def test_fragmented_memory_is_held_but_not_in_use(host: ModelHost) -> None:
    evidence = MEMORY.inject(GpuMemoryParameters(mode="fragment", leave_mib=64, block_mib=128), 2, host)
    held, unused = (int(evidence.lines[1].split()[word]) for word in (1, 3))
    assert held > 80_000
    assert unused == pytest.approx(held / 2, abs=128)
    assert "the largest block left is 128 MiB" in evidence.lines[1]


def test_memory_that_nvml_does_not_show_as_taken_is_no_injection(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = host.gpus()
    monkeypatch.setattr(host, "gpus", lambda: before)
    with pytest.raises(HostError, match="but NVML shows 4 MiB"):
        MEMORY.inject(GpuMemoryParameters(), 2, host)


def test_a_gpu_without_free_memory_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match="nothing to take"):
        MEMORY.inject(GpuMemoryParameters(leave_mib=900_000), 2, host)


@pytest.mark.parametrize(("leave", "block"), [(64, 128), (512, 64), (64, 64)])
def test_the_pieces_are_told_beside_what_is_free(host: ModelHost, leave: int, block: int) -> None:
    parameters = GpuMemoryParameters(mode="fragment", leave_mib=leave, block_mib=block)
    memory = MEMORY.inject(parameters, 2, host).memory
    assert memory is not None
    assert memory.largest_bytes == max(leave, block) << 20
    assert memory.free_bytes > 40_000 << 20
    assert memory.share_percent < 3


def test_memory_that_is_full_is_in_one_piece(host: ModelHost) -> None:
    memory = MEMORY.inject(GpuMemoryParameters(leave_mib=256), 2, host).memory
    assert memory is not None and memory.share_percent == 100
