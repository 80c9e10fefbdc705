"""A GPU's memory as a process of the model allocates it: blocks in segments, as CuPy's memory pool keeps them.

It offers the few calls of CuPy that the real worker's code for memory makes, so that this code runs on the model: what
is left, and in which pieces, follows from what was allocated and freed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from types import ModuleType, SimpleNamespace

from gameday_rehearsal.nodes.gpus import Cell, GpuFleet

_MIB = 1 << 20
_UNIT = 512
"""CuPy rounds every allocation up to a multiple of this (`cupy.cuda.memory`, `_allocation_unit_size`)."""
_Key = tuple[int, int]  # segment and offset


class OutOfMemoryError(Exception):
    """Neither the pool nor the GPU has a large enough piece."""


class Block:
    """Allocated memory, which goes back to its pool with the last reference to it."""

    def __init__(self, pool: Pool, key: _Key, size: int) -> None:
        self._pool, self._key, self._size = pool, key, size

    def __del__(self) -> None:
        self._pool.give_back(self._key, self._size)


class Pool:
    """A pool that takes segments from the GPU and cuts them into blocks, from the smallest free piece that fits.

    A freed block joins the free pieces beside it. Only a segment that is entirely free can go back to the GPU.
    """

    def __init__(self, fleet: GpuFleet, cell: Cell) -> None:
        """Begin with none of the GPU's memory."""
        self._fleet, self._cell = fleet, cell
        self._segments: dict[int, int] = {}  # number -> size
        self._numbers = 0
        self._free: dict[_Key, int] = {}  # where a free piece begins -> size
        self._ends: dict[_Key, int] = {}  # where a free piece ends -> where it begins
        self._by_size: list[tuple[int, _Key]] = []

    def malloc(self, size: int) -> Block:
        """Allocate. Raises OutOfMemoryError."""
        size = -(-size // _UNIT) * _UNIT
        at = bisect_left(self._by_size, (size, (0, 0)))
        if at == len(self._by_size):
            self._take_segment(size)
            at = bisect_left(self._by_size, (size, (0, 0)))
        found, key = self._by_size[at]
        self._remove(key, found)
        if found > size:
            self._add((key[0], key[1] + size), found - size)
        return Block(self, key, size)

    def give_back(self, key: _Key, size: int) -> None:
        """Take a block back and join it with the free pieces beside it."""
        segment, offset = key
        before = self._ends.get((segment, offset))
        if before is not None:
            joined = self._free[segment, before]
            self._remove((segment, before), joined)
            offset, size = before, size + joined
        if behind := self._free.get((segment, offset + size)):
            self._remove((segment, offset + size), behind)
            size += behind
        self._add((segment, offset), size)

    def free_all_blocks(self) -> None:
        """Give entirely free segments back to the GPU."""
        for number, size in list(self._segments.items()):
            if self._free.get((number, 0)) == size:
                self._remove((number, 0), size)
                del self._segments[number]
                self._fleet.held_mib[self._cell] -= _mib(size)

    def total_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(self._segments.values())

    def total_mib(self) -> int:
        """Return the MiB of the GPU that all segments take; the GPU gives only whole MiB."""
        return sum(map(_mib, self._segments.values()))

    def free_bytes(self) -> int:
        """Return the bytes in free pieces."""
        return sum(self._free.values())

    def _take_segment(self, size: int) -> None:
        if _mib(size) > self._fleet.memory_free_mib(self._cell):
            self.free_all_blocks()
        if _mib(size) > self._fleet.memory_free_mib(self._cell):
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
        self._numbers += 1
        self._segments[self._numbers] = size
        self._fleet.held_mib[self._cell] += _mib(size)
        self._add((self._numbers, 0), size)

    def _add(self, key: _Key, size: int) -> None:
        self._free[key] = size
        self._ends[key[0], key[1] + size] = key[1]
        insort(self._by_size, (size, key))

    def _remove(self, key: _Key, size: int) -> None:
        del self._free[key]
        del self._ends[key[0], key[1] + size]
        del self._by_size[bisect_left(self._by_size, (size, key))]


def _mib(size: int) -> int:
    return -(-size // _MIB)


def allocator(fleet: GpuFleet, cell: Cell) -> ModuleType:
    """Return the functions of the module `cupy` that the worker's code for memory uses, for one GPU of the model."""
    module = ModuleType("cupy")

    def sizes() -> tuple[int, int]:
        return fleet.memory_free_mib(cell) * _MIB, 0

    runtime, memory = SimpleNamespace(memGetInfo=sizes), SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
    vars(module)["cuda"] = SimpleNamespace(runtime=runtime, memory=memory)
    return module
