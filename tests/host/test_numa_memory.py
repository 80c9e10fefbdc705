"""Memory bound to a NUMA node, on this machine's own kernel; what it says is read back from /proc/self/numa_maps."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from gameday.host.cpus import parse_cpus
from gameday.host.numa_memory import BoundMemory

MAPS = Path("/proc/self/numa_maps")
NODES = Path("/sys/devices/system/node")
SIZE = 4 << 20
pytestmark = pytest.mark.skipif(not MAPS.exists(), reason="this kernel has no NUMA: no /proc/self/numa_maps")


def nodes() -> tuple[int, ...]:
    return parse_cpus((NODES / "has_memory").read_text())


def mapping_at(address: int) -> str:
    """The line of numa_maps about the mapping that begins at or before an address."""
    lines = [line for line in MAPS.read_text().splitlines() if int(line.split()[0], 16) <= address]
    return max(lines, key=lambda line: int(line.split()[0], 16))


@pytest.mark.parametrize("node", nodes() if MAPS.exists() else ())
def test_every_page_is_on_the_node_and_the_kernel_says_so_twice(node: int) -> None:
    memory = BoundMemory(SIZE, node)
    line = mapping_at(memory.ptr)
    assert f"bind:{node}" in line, line
    assert re.findall(r"\bN(\d+)=", line) == [str(node)], line
    assert memory.pages_by_node() == {node: SIZE // mmap.PAGESIZE}


@pytest.mark.skipif(MAPS.exists() and len(nodes()) < 2, reason="this machine has one NUMA node with memory")
def test_memory_of_another_node_is_not_taken_from_the_first() -> None:
    near, far = nodes()[:2]
    assert set(BoundMemory(SIZE, near).pages_by_node()) == {near}
    assert set(BoundMemory(SIZE, far).pages_by_node()) == {far}


@pytest.mark.parametrize("node", [63, 1000])
def test_a_node_without_memory_is_an_error_that_names_it(node: int) -> None:
    with pytest.raises(OSError, match=rf"no memory can be bound to NUMA node {node} \(Invalid argument\)"):
        BoundMemory(SIZE, node)


def test_pages_that_the_kernel_put_elsewhere_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundMemory, "pages_by_node", lambda _: {0: 1000, 7: 24})
    with pytest.raises(OSError, match=r"other NUMA nodes than 0: \{7: 24\}"):
        BoundMemory(SIZE, 0)


def test_an_architecture_without_known_numbers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.host.numa_memory._MBIND", 0)
    with pytest.raises(OSError, match="system calls"):
        BoundMemory(SIZE, 0)
