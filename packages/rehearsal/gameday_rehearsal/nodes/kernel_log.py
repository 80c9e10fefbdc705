"""A machine's kernel log: /dev/kmsg as user space writes it, and `dmesg` as it reads it.

Semantics: the kernel's Documentation/ABI/testing/dev-kmsg, summed up in docs/sources.md, printk and /dev/kmsg. A line
written from user space is just a line: it changes no GPU.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from errno import EINVAL, EPERM
from itertools import islice

MAX_RECORD_BYTES = 1024
"""PRINTKRB_RECORD_MAX of the kernel: more in one write() is EINVAL."""
_RING_RECORDS = 8192
"""About as many as a 1 MiB buffer (CONFIG_LOG_BUF_SHIFT=20) holds of lines this long."""
_PREFIX = re.compile(r"<([0-9]*)>")
_PACKET_BYTES = 4096  # PIPE_BUF of Linux
_BACKSLASH = ord("\\")
_BOOTED_NS = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
"""Wall time at which the real machine booted."""
_USER = 1  # LOG_USER: what facility 0, the kernel's own, becomes when user space asks for it


@dataclass(frozen=True)
class KernelRecord:
    """A record; `seconds` since boot, `wall_ns` since the epoch, facility 0 for the kernel itself, `text` as written.

    `sequence` counts the records since boot, from 0.
    """

    seconds: float
    wall_ns: int
    facility: int
    severity: int
    text: str
    sequence: int = 0

    @property
    def line(self) -> str:
        """The line as `dmesg -w` prints it, without the priority."""
        micros = int(self.seconds * 1_000_000)
        text = self.text
        if not text.isprintable():
            text = "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in text)
        return f"[{micros // 1_000_000:5d}.{micros % 1_000_000:06d}] {text}"

    @property
    def kmsg(self) -> bytes:
        """The record as a read from /dev/kmsg gives it, without properties.

        Backslashes, and bytes outside printable ASCII, are escaped.

        Its microseconds count from the boot of the real machine, not of the virtual one: a reader converts them into
        wall time with the machine's own uptime, and drops what is too old (node-problem-detector, gpud). At most 4096
        bytes, the size that a pipe in packet mode passes on whole (pipe(2), O_DIRECT).
        """
        micros = (self.wall_ns - _BOOTED_NS) // 1000
        head = f"{self.facility << 3 | self.severity},{self.sequence},{micros},-;"
        raw = self.text.encode("utf-8", "surrogatepass")
        text = "".join(chr(b) if 32 <= b < 127 and b != _BACKSLASH else f"\\x{b:02x}" for b in raw)
        return (head + text).encode("ascii")[: _PACKET_BYTES - 1] + b"\n"


class KernelLog:
    """The ring buffer since the last boot; `listener` gets every record as it is written."""

    def __init__(self, listener: Callable[[KernelRecord], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._listener = listener
        self._clock = clock
        self._booted = clock()
        self._records: deque[KernelRecord] = deque(maxlen=_RING_RECORDS)
        self._next = 0
        self._open: KernelRecord | None = None
        self.devkmsg = "ratelimit"  # /proc/sys/kernel/printk_devkmsg: on, off or ratelimit

    def boot(self) -> None:
        """Empty the buffer and start the seconds at 0."""
        self._records.clear()
        self._open = None
        self._next = 0
        self._booted = self._clock()

    @property
    def uptime_s(self) -> float:
        return self._clock() - self._booted

    def boot_was(self, seconds_ago: float) -> None:
        """Date the boot of the lines in the buffer to this many seconds ago."""
        self._booted = self._clock() - seconds_ago

    def driver(self, text: str, severity: int = 6) -> None:
        """Log a line of the kernel's own."""
        self._append(0, severity, text)

    def write(self, record: str) -> None:
        """Open /dev/kmsg and write once from user space. Raises OSError if the kernel would.

        Rate limiting counts per open file, so it never strikes here. A record that does not end with a newline stays
        open for continuation: no reader sees it before the next record is written.
        """
        self.require_open()
        size = len(record.encode("utf-8", "surrogatepass"))
        if size > MAX_RECORD_BYTES:
            raise OSError(EINVAL, f"Invalid argument: a record of {size} bytes, the kernel takes {MAX_RECORD_BYTES}")
        prefix = _PREFIX.match(record)
        priority = int(prefix[1] or 0) if prefix else 4  # the default console log level, warning
        text = record[prefix.end() :] if prefix else record
        text = text.split("\0", 1)[0]
        # printk cuts off one newline; another is escaped like any control character.
        ended = text.endswith("\n")
        self._append((priority >> 3 & 0xFF) or _USER, priority & 7, text.removesuffix("\n"), ended=ended)

    def require_open(self) -> None:
        """Raise OSError if /dev/kmsg cannot be opened, to read or to write."""
        if self.devkmsg == "off":
            raise OSError(EPERM, "Operation not permitted: kernel.printk_devkmsg is off")

    def records(self) -> list[KernelRecord]:
        return list(self._records)

    def since(self, sequence: int) -> list[KernelRecord]:
        """Return the records from this sequence number on that are still in the buffer."""
        first = self._records[0].sequence if self._records else 0
        return list(islice(self._records, max(0, sequence - first), None))

    def lines(self) -> list[str]:
        return [record.line for record in self._records]

    def _append(self, facility: int, severity: int, text: str, *, ended: bool = True) -> None:
        if self._open is not None:
            self._finish(self._open)
            self._open = None
        record = KernelRecord(self.uptime_s, time.time_ns(), facility, severity, text, self._next)
        self._next += 1
        if ended:
            self._finish(record)
        else:
            self._open = record

    def _finish(self, record: KernelRecord) -> None:
        self._records.append(record)
        self._listener(record)
