"""The record format of /dev/kmsg: encode a record to write, and render a record that was read.

The format is in the kernel's Documentation/ABI/testing/dev-kmsg; docs/sources.md, printk and /dev/kmsg, sums it up.
"""

from __future__ import annotations

import re

from gameday.errors import HostError

MAX_RECORD_BYTES = 976
"""PRINTKRB_RECORD_MAX (1024) minus the 48 bytes that older kernels keep for their own prefix; the newline counts."""

_PRIORITY = re.compile(r"<[0-9]{1,3}>")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def encode_record(record: str) -> bytes:
    """Return a record's bytes, for one write().

    They end with a newline: since Linux 5.10 the kernel keeps a record without one open for continuation, and shows it
    to no reader until the next record is written.

    Raises:
        HostError: The kernel would refuse the record, cut it or split it into lines: it has no `<N>` prefix, more than
            976 bytes, or control characters.
    """
    if not _PRIORITY.match(record):
        raise HostError(f"kernel-log record {record[:40]!r} has no priority; begin it with <N>, like <3> for an error")
    if not record.isprintable():
        raise HostError(
            f"kernel-log record {record[:40]!r} holds a control character; one record is one printable line"
        )
    raw = record.encode("utf-8", "replace") + b"\n"
    if len(raw) > MAX_RECORD_BYTES:
        raise HostError(
            f"kernel-log record of {len(raw)} bytes; /dev/kmsg takes at most {MAX_RECORD_BYTES}: shorten it"
        )
    return raw


def render_record(raw: bytes) -> str:
    """Return a record as `dmesg` prints it: `[seconds.micros] text`.

    Args:
        raw: The record as read: `prio,seq,usec,flags;text`, then lines of a dictionary, which are dropped.

    Raises:
        ValueError: The bytes are not such a record.
    """
    prefix, separator, rest = raw.partition(b";")
    fields = prefix.split(b",")
    if not separator or len(fields) < 4:
        raise ValueError(f"not a kernel-log record: {raw[:60]!r}")
    microseconds = int(fields[2])
    escaped = rest.split(b"\n", 1)[0]
    # The kernel escapes every byte outside printable ASCII; only the unescaped text is UTF-8.
    text = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), escaped).decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() or c == "\t" else f"\\x{ord(c):02x}" for c in text)
    return f"[{microseconds // 1_000_000:5d}.{microseconds % 1_000_000:06d}] {shown}"
