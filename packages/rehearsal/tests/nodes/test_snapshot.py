"""Two equal snapshots must mean that nothing stayed in: so each thing a fault changes has to show in one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from gameday.faults.dcgm import BLANK
from gameday_rehearsal.nodes.dcgm import XID_FIELD
from gameday_rehearsal.nodes.files import write_file
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.run import run_program
from gameday_rehearsal.nodes.snapshot import snapshot
from tests.rehearsal.nodes.conftest import Rack


def program(*argv: str) -> Callable[[Machine], Awaitable[object]]:
    return lambda machine: run_program(machine, list(argv), 10)


def file(path: str, content: str) -> Callable[[Machine], Awaitable[object]]:
    async def write(machine: Machine) -> None:
        write_file(machine, path, content)

    return write


@pytest.mark.parametrize(
    "change",
    [
        program("nvidia-smi", "-i", "1", "-pl", "300"),
        program("nvidia-smi", "-i", "1", "-lgc", "510,510"),
        program("nvidia-smi", "-i", "1", "-pm", "0"),
        program("nvidia-smi", "-i", "1", "-e", "0"),
        program("systemctl", "stop", "nvidia-dcgm"),
        program("systemd-run", "--on-active=60", "--unit=gameday-x", "systemctl", "start", "kubelet"),
        program("dcgmi", "test", "--pause"),
        program("dcgmi", "test", "--inject", "--gpuid", "1", "-f", "230", "-v", "95"),
        file("/etc/nccl.conf", "NCCL_DEBUG=INFO\n"),
        file("/proc/sys/kernel/printk_devkmsg", "on\n"),
        file("/sys/class/rtc/rtc0/wakealarm", "+60"),
    ],
)
async def test_what_a_fault_changes_shows(machine: Machine, change: Callable[[Machine], Awaitable[object]]) -> None:
    before = snapshot(machine)
    await change(machine)
    assert snapshot(machine) != before
    for timer in machine.timers.values():
        timer.cancel()


def test_time_alone_changes_nothing(rack: Rack) -> None:
    machine = rack.machines[0]
    before = snapshot(machine)
    rack.clock.pass_by(3600)
    machine.fleet.advance()
    machine.log.driver("a line of the kernel's own")
    assert snapshot(machine) == before


def test_an_injected_blank_xid_is_as_if_there_had_been_no_injection(machine: Machine) -> None:
    before = snapshot(machine)
    machine.cache.inject((machine.index, 1), XID_FIELD, 95)
    machine.cache.inject((machine.index, 1), XID_FIELD, int(BLANK))
    assert snapshot(machine) == before
