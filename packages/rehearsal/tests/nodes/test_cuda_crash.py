"""The model's driver beside the recorded one: the same lines for the same fault, but for process and GPU.

recorded/xids.txt has the lines of one real GPU, after each a program's name, and nvml-events.txt NVML's events of the
same plays (docs/sources.md, Real Xids).
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gameday.host.base import CrashKernel
from gameday_rehearsal.nodes.cuda_crash import RECORDED, crash
from gameday_rehearsal.nodes.machine import Machine

FOLDER = Path(__file__).parent / "recorded"
PLAYS: dict[CrashKernel, str] = {
    "illegal_address": "illegal",
    "misaligned_address": "misaligned",
    "shared_out_of_range": "shm",
    "stack_overflow": "stack",
    "trap": "trap",
}


def recorded_lines(play: str) -> list[str]:
    """Return the kernel's lines of a play, without stamps, and with its own process's id and name as PID and NAME."""
    text = (FOLDER / "xids.txt").read_text(encoding="utf-8")
    lines = text.partition(f"# {play} rc ")[2].splitlines()[1:]
    kernel = [line.partition("] ")[2] for line in lines[: next(at for at, line in enumerate(lines) if line[0] != "[")]]
    return [re.sub(r"pid=\d+, name=xid", "pid=PID, name=NAME", line) for line in kernel]


def as_recorded(machine: Machine, line: str) -> str:
    gpu = machine.gpus[1]
    line = (
        line.partition("] ")[2].replace(gpu.pci, "0000:00:06").replace("pid=4711, name=python3", "pid=PID, name=NAME")
    )
    line = line.replace(gpu.uuid, "GPU-00000000-1111-2222-3333-444444444444")
    return line.replace(f"Serial Number: {gpu.serial}", "Serial Number: 1000000000001")


@pytest.mark.parametrize("kernel", PLAYS)
def test_the_lines_are_the_recorded_ones(machine: Machine, kernel: CrashKernel) -> None:
    before = len(machine.log.lines())
    crash(machine, 1, kernel, 4711)
    lines = [as_recorded(machine, line) for line in machine.log.lines()[before:]]
    first_of_its_gpu = kernel == "illegal_address"
    assert lines[0 if first_of_its_gpu else 2 :] == recorded_lines(PLAYS[kernel])


def test_nvml_tells_of_the_last_line_only_as_recorded(machine: Machine) -> None:
    events = [json.loads(line) for line in (FOLDER / "nvml-events.txt").read_text().splitlines()[1:]]
    recorded = dict(zip(("illegal", "misaligned", "trap", "shm", "stack", "brk"), events, strict=True))
    for kernel, play in PLAYS.items():
        assert RECORDED[kernel].code == recorded[play]["data"]
        report = crash(machine, 1, kernel, 4711)
        assert report.nvml and report.nvml.code == machine.fleet.xid[machine.index, 1] == recorded[play]["data"]


def test_the_drivers_word_on_the_program_is_the_recorded_one() -> None:
    text = (FOLDER / "xids.txt").read_text(encoding="utf-8")
    for kernel, play in PLAYS.items():
        said = re.search(rf"^{play}: (\w+)$", text, re.MULTILINE)
        assert said and RECORDED[kernel].error.startswith(f"{said[1]}: ")
