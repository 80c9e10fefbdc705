"""The record format of /dev/kmsg, written and read."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.errors import HostError
from gameday.host.kernel_log import MAX_RECORD_BYTES, encode_record, render_record
from gameday.host.real import RealHost


@pytest.mark.parametrize(
    "record",
    ["no priority", "<3>two\nlines", "<3>bell\x07", "<3>" + "x" * (MAX_RECORD_BYTES - 3), "<3>" + "é" * 487, ""],
)
def test_text_that_is_not_one_record_is_refused(record: str) -> None:
    with pytest.raises(HostError):
        encode_record(record)


def test_the_longest_record_is_accepted() -> None:
    assert len(encode_record("<3>" + "x" * (MAX_RECORD_BYTES - 4))) == MAX_RECORD_BYTES


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"3,100,12345678,-;NVRM: Xid\n SUBSYSTEM=pci\n DEVICE=+pci:0000\n", "[   12.345678] NVRM: Xid"),
        (b"11,7,6085126134786,-,caller=T1;text; with; semicolons\n", "[6085126.134786] text; with; semicolons"),
        (rb"6,1,0,-;back\x5cslash \xc3\xa9 \x0a" + b"\n", "[    0.000000] back\\slash é \\x0a"),
        (b"6,1,1,c;", "[    0.000001] "),
    ],
)
def test_a_record_is_rendered_as_in_dmesg(raw: bytes, shown: str) -> None:
    assert render_record(raw) == shown


@given(st.binary(max_size=300))
def test_any_bytes_give_a_line_or_a_value_error(raw: bytes) -> None:
    try:
        line = render_record(raw)
    except ValueError:
        return
    assert "\n" not in line
    assert line.startswith("[")


KMSG = Path("/dev/kmsg")


def records(descriptor: int) -> Iterator[str]:
    """Yield what is there to read now; others may write as well."""
    with suppress(BlockingIOError):
        while True:
            yield render_record(os.read(descriptor, 8192))


@pytest.mark.skipif(os.geteuid() != 0 or not KMSG.is_char_device(), reason="needs root and the kernel's own /dev/kmsg")
def test_the_kernel_shows_a_record_before_the_next_one_is_written() -> None:
    """Every reader sees it: one that was there before, one that comes later, and dmesg."""
    host, text = RealHost(), f"gameday: a test's record {secrets.token_hex(8)}"
    waiting = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(waiting, 0, os.SEEK_END)
        try:
            host.write_kernel_log(f"<6>{text}")
        except HostError as error:
            pytest.skip(str(error))
        assert any(line.endswith(text) for line in records(waiting))
    finally:
        os.close(waiting)
    assert any(line.endswith(text) for line in host.read_kernel_log())
    assert text in subprocess.run(["dmesg"], check=True, capture_output=True, text=True).stdout
