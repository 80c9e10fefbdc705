"""The model's GPU memory: its pieces follow from what was allocated and freed, whatever the order."""

from __future__ import annotations

import random

import pytest

from gameday.host.base import HoldMemory
from gameday.host.worker import largest_block, take_memory
from gameday_rehearsal.nodes.device_memory import Block, OutOfMemoryError, Pool, allocator
from gameday_rehearsal.nodes.gpus import GpuFleet
from tests.rehearsal.nodes.conftest import Rack

MIB = 1 << 20
CELL = (0, 1)


@pytest.fixture
def fleet(rack: Rack) -> GpuFleet:
    return rack.fleet


def probed(fleet: GpuFleet, pool: Pool) -> int:
    """MiB of the largest block, found by the real worker's own code."""
    return largest_block(allocator(fleet, CELL), pool) // MIB


def test_all_that_is_free_comes_in_one_piece_and_goes_back(fleet: GpuFleet) -> None:
    free = fleet.memory_free_mib(CELL)
    assert probed(fleet, Pool(fleet, CELL)) == free
    assert fleet.memory_free_mib(CELL) == free


@pytest.mark.parametrize("step", [2, 3, 4])
def test_the_largest_piece_is_as_large_as_the_gap_that_was_freed(fleet: GpuFleet, step: int) -> None:
    """Of blocks of 64 MiB one in `step` stays, so that the pieces between them are of `step` - 1 blocks."""
    pool = Pool(fleet, CELL)
    whole = pool.malloc(1200 * MIB)
    del whole
    blocks = [pool.malloc(64 * MIB) for _ in range(18)]
    kept = blocks[::step]
    blocks.clear()
    fleet.held_mib[CELL] += fleet.memory_free_mib(CELL)  # others have the rest
    # Behind the last block 48 MiB were never allocated: they join what was freed beside them.
    behind = 1200 - 64 * (1 + (len(range(0, 18, step)) - 1) * step)
    assert probed(fleet, pool) == max(64 * (step - 1), behind)
    assert pool.free_bytes() == 1200 * MIB - len(kept) * 64 * MIB


def test_freed_neighbours_become_one_piece_again_in_any_order(fleet: GpuFleet) -> None:
    pool = Pool(fleet, CELL)
    whole = pool.malloc(640 * MIB)
    del whole
    blocks: list[Block | None] = [pool.malloc(64 * MIB) for _ in range(10)]
    order = list(range(10))
    random.Random(7).shuffle(order)
    for number in order:
        blocks[number] = None
    assert pool.free_bytes() == 640 * MIB
    assert pool.malloc(640 * MIB)


def test_a_split_segment_stays_and_a_whole_one_goes_back(fleet: GpuFleet) -> None:
    pool, free = Pool(fleet, CELL), fleet.memory_free_mib(CELL)
    whole = pool.malloc(256 * MIB)
    del whole
    kept = pool.malloc(64 * MIB)
    pool.free_all_blocks()
    assert fleet.memory_free_mib(CELL) == free - 256
    del kept
    pool.free_all_blocks()
    assert (fleet.memory_free_mib(CELL), pool.total_bytes()) == (free, 0)


def test_more_than_there_is_is_refused(fleet: GpuFleet) -> None:
    with pytest.raises(OutOfMemoryError, match="Out of memory allocating"):
        Pool(fleet, CELL).malloc((fleet.memory_free_mib(CELL) + 1) * MIB)


def test_the_real_workers_fragmentation_leaves_no_large_piece(fleet: GpuFleet) -> None:
    pool = Pool(fleet, CELL)
    blocks = take_memory(allocator(fleet, CELL), pool, HoldMemory(leave_bytes=512 * MIB, block_bytes=64 * MIB))
    assert probed(fleet, pool) == 512
    assert pool.free_bytes() > 0.45 * pool.total_bytes()
    blocks.clear()
    assert probed(fleet, pool) > 80_000
