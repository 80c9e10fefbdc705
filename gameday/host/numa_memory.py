"""Memory bound to one NUMA node by the kernel's own calls: mbind(2) before the first touch, move_pages(2) as proof.

Two system calls do not need libnuma, which images seldom have.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform

_MBIND, _MOVE_PAGES = {"x86_64": (237, 279), "aarch64": (235, 239)}.get(platform.machine(), (0, 0))
"""Numbers of the system calls (arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h)."""
_MPOL_BIND = 2
_MPOL_MF_STRICT = 1
"""Constants of linux/mempolicy.h."""
_BITS_OF_LONG = 8 * ctypes.sizeof(ctypes.c_ulong)


class BoundMemory:
    """Anonymous memory with all its pages on one NUMA node."""

    def __init__(self, size: int, node: int) -> None:
        """Map, bind and touch the memory, and check where each page is.

        Args:
            size: Bytes; a multiple of the page size.
            node: The NUMA node.

        Raises:
            OSError: The machine has no such node with memory, the cpuset does not allow it, or the kernel put a page
                elsewhere.
        """
        self._map = mmap.mmap(-1, size)
        self._bytes = (ctypes.c_char * size).from_buffer(self._map)
        self.ptr = ctypes.addressof(self._bytes)
        mask = (ctypes.c_ulong * (node // _BITS_OF_LONG + 1))()
        mask[node // _BITS_OF_LONG] = 1 << node % _BITS_OF_LONG
        # The kernel reads one bit less than this number.
        bits = ctypes.c_ulong(8 * ctypes.sizeof(mask) + 1)
        where = (ctypes.c_void_p(self.ptr), ctypes.c_ulong(size))
        try:
            _call(_MBIND, *where, ctypes.c_int(_MPOL_BIND), mask, bits, ctypes.c_uint(_MPOL_MF_STRICT))
        except OSError as error:
            if error.errno is None:
                raise
            raise OSError(
                f"no memory can be bound to NUMA node {node} ({error.strerror}): the machine has none there, or this "
                "pod's cpuset does not hold it"
            ) from None
        ctypes.memset(self.ptr, 1, size)
        if elsewhere := {where: pages for where, pages in self.pages_by_node().items() if where != node}:
            raise OSError(f"the kernel put pages on other NUMA nodes than {node}: {elsewhere}")

    def pages_by_node(self) -> dict[int, int]:
        """Return the number of pages on each NUMA node, as move_pages(2) shows them; a negative node is an errno."""
        page = mmap.PAGESIZE
        count = len(self._map) // page
        pages = (ctypes.c_void_p * count)(*range(self.ptr, self.ptr + count * page, page))
        status = (ctypes.c_int * count)()
        _call(_MOVE_PAGES, ctypes.c_int(0), ctypes.c_ulong(count), pages, None, status, ctypes.c_int(0))
        found: dict[int, int] = {}
        for node in status:
            found[node] = found.get(node, 0) + 1
        return found


def _call(number: int, *arguments: object) -> None:
    """Make a system call. Raises OSError."""
    if not number:
        raise OSError(f"the numbers of NUMA's system calls on {platform.machine()} are not known here")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        failed = ctypes.get_errno()
        raise OSError(failed, os.strerror(failed))
