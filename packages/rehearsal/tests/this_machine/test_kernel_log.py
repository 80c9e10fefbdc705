"""Following the kernel log: from a device like /dev/kmsg, and from a journald of our own making."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from gameday_rehearsal.this_machine import kernel_log
from gameday_rehearsal.this_machine.kernel_log import KMSG, following, journal_line

ENTRY = {"_SOURCE_MONOTONIC_TIMESTAMP": "61333938705", "MESSAGE": "NVRM: Xid (PCI:0000:4e:00): 31\nmore"}


async def test_new_lines_of_the_kernel_are_passed_on_at_once() -> None:
    if os.geteuid() != 0 or not KMSG.is_char_device():
        pytest.skip("needs root and the kernel's own /dev/kmsg")
    mark = f"gameday: a test's record {os.urandom(8).hex()}"
    KMSG.write_text(f"<6>{mark} before\n")
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with following(lambda line: seen.put_nowait(line) if mark in line else None):
        KMSG.write_text(f"<6>{mark} back\\slash é\n")
        line = await seen.get()
    stamp, text = line.split("] ", 1)
    assert text == f"{mark} back\\slash é"
    assert float(stamp.lstrip("[")) > 0
    assert seen.empty()


def test_an_entry_of_the_journal_becomes_a_line_of_dmesg() -> None:
    assert journal_line(json.dumps(ENTRY).encode()) == "[61333.938705] NVRM: Xid (PCI:0000:4e:00): 31\\x0amore"


@pytest.mark.parametrize(
    "entry",
    [b"", b"no json", b"[]", b"{}", json.dumps(ENTRY | {"MESSAGE": [1, 2]}).encode(),
     json.dumps(ENTRY | {"_SOURCE_MONOTONIC_TIMESTAMP": None}).encode()],
)  # fmt: skip
def test_an_entry_that_is_no_line_is_passed_over(entry: bytes) -> None:
    assert journal_line(entry) is None


async def test_who_may_not_open_the_device_reads_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journal"
    program.write_text(f"#!/bin/sh\necho broken\necho '{json.dumps(ENTRY | {'MESSAGE': 'one'})}'\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(kernel_log, "JOURNAL", (str(program),))

    open_file = os.open

    def refuse(path: object, *arguments: int) -> int:
        if path == KMSG:
            raise PermissionError(1, "Operation not permitted")
        return open_file(path, *arguments)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, "open", refuse)
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with following(seen.put_nowait):
        assert await seen.get() == "[61333.938705] one"
