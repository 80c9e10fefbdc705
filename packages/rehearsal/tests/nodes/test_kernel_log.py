from __future__ import annotations

import re

import pytest

from gameday.xid.lines import beat_uptime_s
from gameday_rehearsal.nodes.machine import Machine
from tests.rehearsal.nodes.conftest import Rack

LINE = re.compile(r"^\[ *\d+\.\d{6}\] ")


def test_a_written_record_reads_back_as_dmesg_shows_it(machine: Machine) -> None:
    machine.log.write("<3>kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n")
    line = machine.log.lines()[-1]
    assert LINE.match(line)
    assert line.endswith("] kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")


def test_a_written_line_changes_nothing_but_the_log(rack: Rack) -> None:
    machine = rack.machines[0]
    before = machine.samples()
    machine.log.write("<3>NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n")
    assert machine.samples() == before
    assert rack.fleet.xid.sum() == 0


@pytest.mark.parametrize(
    ("record", "facility", "severity", "text"),
    [("<3>a\n", 1, 3, "a"), ("<43>b\n", 5, 3, "b"), ("d\n", 1, 4, "d"), ("<x>e\n", 1, 4, "<x>e")],
)
def test_priority_is_parsed_and_the_kernels_facility_is_refused(
    rack: Rack, record: str, facility: int, severity: int, text: str
) -> None:
    rack.machines[0].log.write(record)
    node, written = rack.shipped[-1]
    assert (node, written.facility, written.severity, written.text) == ("a", facility, severity, text)


def test_a_record_longer_than_the_kernel_takes_is_refused(machine: Machine) -> None:
    machine.log.write("<3>" + "x" * 1021)
    with pytest.raises(OSError, match="1025 bytes"):
        machine.log.write("<3>" + "x" * 1022)
    with pytest.raises(OSError, match="Invalid argument"):
        machine.log.write("<3>" + "é" * 600)


def test_a_record_without_a_newline_is_seen_by_nobody_before_the_next_one(rack: Rack) -> None:
    log = rack.machines[0].log
    before = log.lines()
    rack.shipped.clear()
    log.write("<3>open")
    assert log.lines() == before
    assert rack.shipped == []
    log.driver("next")
    assert [record.text for _, record in rack.shipped] == ["open", "next"]
    assert [record.text for record in log.records()[-2:]] == ["open", "next"]
    log.write("<3>lost with the boot")
    log.boot()
    log.driver("booted")
    assert [record.text for record in log.records()] == ["booted"]


def test_control_characters_cannot_forge_a_line(machine: Machine) -> None:
    machine.log.write("<3>one\n[1.000000] NVRM: Xid two\x1b[2J\n")
    assert machine.log.lines()[-1].endswith("one\\x0a[1.000000] NVRM: Xid two\\x1b[2J")


def test_devkmsg_off_refuses_programs_and_not_the_kernel(machine: Machine) -> None:
    machine.log.devkmsg = "off"
    before = machine.log.lines()
    with pytest.raises(PermissionError, match="printk_devkmsg is off"):
        machine.log.write("<3>gone\n")
    assert machine.log.lines() == before
    machine.log.driver("the kernel itself still speaks")
    assert machine.log.lines()[-1].endswith("still speaks")


def test_the_machine_has_been_up_for_days_and_its_boot_lines_are_from_the_boot(machine: Machine) -> None:
    assert float(machine.log.lines()[0][1:13]) < 5
    machine.log.write("<6>now\n")
    assert float(machine.log.lines()[-1].split("]")[0][1:]) > 86_000


async def test_the_shipper_beats_beside_the_kernel_log_and_first_of_all_after_a_boot(rack: Rack) -> None:
    machine = rack.machines[0]
    in_log = machine.log.lines()
    machine.beat()
    assert machine.log.lines() == in_log
    assert (beat_uptime_s(rack.shipped[-1][1].line) or 0) > 86_000
    rack.shipped.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.components, "frozen", lambda component: True)
        machine.beat()
    assert rack.shipped == []
    machine.reboot(after_s=0)
    assert machine._rebooting is not None
    await machine._rebooting
    first, second = rack.shipped[:2]
    assert beat_uptime_s(first[1].line) is not None and "Linux version" in second[1].text


async def test_a_deleted_nodes_shipper_falls_silent_and_beats_first_when_it_is_back(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.set_in_cluster(present=False)
    rack.shipped.clear()
    machine.beat()
    machine.log.write("<3>NVRM: Xid meanwhile\n")
    assert rack.shipped == []
    machine.set_in_cluster(present=True)
    assert beat_uptime_s(rack.shipped[0][1].line) is not None
    assert [record.text for _, record in rack.shipped[1:]] == ["NVRM: Xid meanwhile"]
    machine.set_in_cluster(present=True)
    assert len(rack.shipped) == 2


async def test_a_deleted_node_that_reboots_ships_its_boot_when_it_is_registered_again(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.set_in_cluster(present=False)
    machine.log.write("<3>before the boot\n")
    rack.shipped.clear()
    machine.reboot(after_s=0)
    assert machine._rebooting is not None
    await machine._rebooting
    assert rack.shipped == []
    machine.set_in_cluster(present=True)
    assert beat_uptime_s(rack.shipped[0][1].line) is not None
    assert "Linux version" in rack.shipped[1][1].text
    assert "before the boot" not in [record.text for _, record in rack.shipped]
