"""The kernel-log writer that needs only a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid

import pytest

from gameday.errors import HostError
from gameday.host.shell_writer import NO_GPU, PCI_PLACE, SCRIPT, parse_output, writer_command

RECORD = f"<6>gpu-gameday test for GPU {PCI_PLACE}: $(id) `id` %s \\ 'x'"


def test_records_are_arguments_and_never_part_of_the_script() -> None:
    command = writer_command("<6>mark", [RECORD])
    assert command[:3] == ["/bin/sh", "-c", SCRIPT]
    assert command[-2:] == ["<6>mark", RECORD]


@pytest.mark.parametrize("record", ["no priority", "<3>two\nlines", "<3>\x1b[2J", f"<3>{'x' * 1000}"])
def test_what_the_kernel_would_refuse_or_split_is_refused(record: str) -> None:
    with pytest.raises(HostError):
        writer_command("<6>mark", [record])
    with pytest.raises(HostError):
        writer_command(record, [])


def test_the_output_is_read_and_anything_else_is_left_out() -> None:
    said = (
        "gpu 0000:1b:00\nwrote <6>mark\nwrote <3>a\nread 14,5,1000000,-;mark\nread 11,6,1000001,-;a\nread bad\nmore\n"
    )
    written = parse_output(said)
    assert (written.gpu, written.wrote) == ("0000:1b:00", ("<3>a",))
    assert written.read == ("[    1.000000] mark", "[    1.000001] a")
    assert written.missing == []


def test_a_record_that_was_not_read_back_is_missing() -> None:
    assert parse_output("wrote <6>mark\nwrote <3>a\nread 14,5,1,-;mark\n").missing == ["<3>a"]
    nothing = parse_output("")
    assert (nothing.gpu, nothing.wrote, nothing.missing) == (NO_GPU, (), [])


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="needs root, and a kernel log")
@pytest.mark.parametrize("shell", [one for one in ("dash", "bash", "busybox") if shutil.which(one)])
def test_a_real_kernel_log_holds_the_records_as_they_are(shell: str) -> None:
    mark = f"<6>gpu-gameday test {uuid.uuid4().hex}"
    words = ["busybox", "sh"] if shell == "busybox" else [shell]
    command = [*words, *writer_command(mark, [RECORD])[1:]]
    output = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    written = parse_output(output)
    assert written.wrote == (RECORD.replace(PCI_PLACE, written.gpu),)
    assert written.missing == []
    assert written.read[0].endswith(mark.removeprefix("<6>"))
