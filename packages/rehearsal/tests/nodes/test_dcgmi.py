"""dcgmi on a machine of the model: the real one's words, exit statuses and traps."""

from __future__ import annotations

import json

import pytest

from gameday.errors import HostError
from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.run import run_program
from tests.rehearsal.nodes.conftest import Rack


async def dcgmi(machine: Machine, *argv: str, timeout_s: float = 10) -> ProgramResult:
    return await run_program(machine, ["dcgmi", *argv], timeout_s)


async def inject(machine: Machine, gpu: str, field: str, value: str, *more: str) -> ProgramResult:
    return await dcgmi(machine, "test", "--inject", "--gpuid", gpu, "-f", field, "-v", value, *more)


async def shown(machine: Machine, gpu: int, field: int) -> str:
    """The value in dmon's only row."""
    printed = await dcgmi(machine, "dmon", "-i", str(gpu), "-e", str(field), "-c", "1")
    head, unit, row = printed.stdout.splitlines()
    assert (head.split()[0], unit.split()[0]) == ("#Entity", "ID")
    assert row.split()[:2] == ["GPU", str(gpu)]
    return row.split()[2]


async def test_injection_has_the_real_ones_traps(rack: Rack) -> None:
    machine = rack.machines[0]
    done = await dcgmi(machine, "test", "--inject", "-f", "230", "-v", "79")
    assert done.stdout == "Successfully injected field info.\n"
    assert rack.cache.latest((0, 1), 230) == 79, "--gpuid defaults to 1"
    assert rack.cache.latest((0, 0), 230) is None
    await inject(machine, "0", "112", "0xE8")
    assert rack.cache.latest((0, 0), 112) == 0, "atol reads decimal only"
    named = await inject(machine, "0", "DCGM_FI_DEV_GPU_TEMP", "95")
    assert named.exit_status == 255, "atoi makes field 0 of a name, and there is none"
    assert rack.cache.latest((0, 0), 150) < 40
    assert rack.fleet.xid.sum() == 0, "NVML never sees an injection"


async def test_an_injected_value_lasts_until_a_sample_is_due_and_the_xid_for_good(rack: Rack) -> None:
    machine = rack.machines[0]
    for field, value in (("150", "95"), ("230", "48")):
        await inject(machine, "0", field, value)
    rack.clock.pass_by(1.9)
    assert rack.cache.latest((0, 0), 150) == 95
    rack.clock.pass_by(0.2)
    assert rack.cache.latest((0, 0), 150) < 40
    assert rack.cache.latest((0, 0), 230) == 48
    machine.record_xid(0, 31, "MMU Fault")
    assert rack.cache.latest((0, 0), 230) == 31


async def test_the_offset_decides_how_long_and_is_counted_in_whole_seconds(rack: Rack) -> None:
    rack.clock.pass_by(0.9)
    await inject(rack.machines[0], "0", "150", "95", "--offset", "5")
    rack.clock.pass_by(5.0)
    assert rack.cache.latest((0, 0), 150) == 95
    rack.clock.pass_by(0.2)
    assert rack.cache.latest((0, 0), 150) < 40


async def test_the_newest_stamp_counts_and_not_the_last_call(rack: Rack) -> None:
    machine = rack.machines[0]
    await inject(machine, "0", "150", "95", "--offset", "30")
    await inject(machine, "0", "150", "80", "--offset", "3")
    rack.clock.pass_by(29)
    assert rack.cache.latest((0, 0), 150) == 95
    await inject(machine, "0", "150", "80", "--offset", "1")
    assert rack.cache.latest((0, 0), 150) == 80, "of two with one stamp the last call's"
    await inject(machine, "0", "230", "48", "--offset", "9")
    machine.record_xid(0, 31, "MMU Fault")
    rack.clock.pass_by(60)
    assert rack.cache.latest((0, 0), 230) == 48, "the driver's own is older for good"


async def test_a_value_in_a_field_that_nobody_watches_stays_until_a_dmon_samples_it(rack: Rack) -> None:
    machine = rack.machines[0]
    rack.machines[0].set_unit("nvidia-dcgm-exporter", active=False)
    await inject(machine, "0", "150", "95")
    assert await shown(machine, 0, 150) == "95", "dmon's own sample is older than the injected one's stamp"
    rack.clock.pass_by(60)
    assert rack.cache.latest((0, 0), 150) == 95
    assert int(await shown(machine, 0, 150)) < 40


async def test_dmon_shows_decimals_where_dcgm_has_them_and_na_where_there_is_no_value(rack: Rack) -> None:
    machine = rack.machines[0]
    assert await shown(machine, 0, 155) == "81.000"
    assert await shown(machine, 0, 392) == "N/A"
    await inject(machine, "0", "395", "9223372036854775792")
    assert await shown(machine, 0, 395) == "N/A", "the blank's own number"


async def test_dmon_knows_no_lost_gpu(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.lose_gpu(3)
    refused = await dcgmi(machine, "dmon", "-i", "3", "-e", "230", "-c", "1")
    assert refused.exit_status == 238
    assert refused.stderr == "Error: Got error -18 GPU is lost while adding GPU 3 to our entity group.\n"
    others = await dcgmi(machine, "dmon", "-e", "230", "-c", "1")
    assert [row.split()[1] for row in others.stdout.splitlines()[2:]] == ["0", "1", "2"]
    assert rack.cache.latest((0, 3), 230) == 79, "readers that knew it before still have its Xid"


async def test_dmon_knows_no_gpu_while_collection_is_paused(rack: Rack) -> None:
    machine = rack.machines[0]
    await dcgmi(machine, "test", "--pause")
    refused = await dcgmi(machine, "dmon", "-i", "0", "-e", "150", "-c", "1")
    assert (refused.exit_status, refused.stdout) == (255, "")
    said = "Error: Got error -1 Bad parameter passed to function while adding GPU 0 to our entity group.\n"
    assert refused.stderr == said
    none = await dcgmi(machine, "dmon", "-e", "150", "-c", "1")
    assert none.exit_status == 221
    assert "The specified group is empty" in none.stderr
    assert none.stdout.startswith("#Entity")
    machine.lose_gpu(1)
    assert (await dcgmi(machine, "dmon", "-i", "1", "-e", "150", "-c", "1")).exit_status == 238


async def test_dmon_repeats_and_never_ends_without_a_count(machine: Machine) -> None:
    two = await dcgmi(machine, "dmon", "-i", "0,1", "-e", "150,395", "-c", "2", "-d", "10")
    assert len(two.stdout.splitlines()) == 2 + 4
    with pytest.raises(HostError, match="did not end within"):
        await dcgmi(machine, "dmon", "-e", "150", "-d", "10", timeout_s=0.05)


async def test_introspect_shows_samples_and_never_values(machine: Machine) -> None:
    result = await dcgmi(machine, "test", "--introspect", "--gpuid", "0", "-f", "150")
    assert " Number of Samples       : 1 " in result.stdout
    assert "Value" not in result.stdout
    unwatched = await dcgmi(machine, "test", "--introspect", "--gpuid", "0", "-f", "1218")
    assert unwatched.exit_status == 240
    assert "Return: Field is not being watched" in unwatched.stdout


async def test_the_modules_show_a_pause_and_values_injected_meanwhile_stay(rack: Rack) -> None:
    machine = rack.machines[0]

    async def core() -> str:
        listed = await dcgmi(machine, "modules", "-l", "-j")
        return str(json.loads(listed.stdout)["body"]["Core"]["children"]["State"]["value"])

    assert await core() == "Loaded"
    paused = await dcgmi(machine, "test", "--pause")
    assert paused.stdout == "Successfully paused metrics monitoring\n"
    assert await core() == "Paused"
    shown_modules = (await dcgmi(machine, "modules", "-l")).stdout.splitlines()
    assert {len(line) for line in shown_modules} == {85}
    assert [line.split()[3] for line in shown_modules if "Not loaded" in line][-2:] == ["SysMon", "MnDiag"]
    assert "| 0         | Core               | Paused" in (await dcgmi(machine, "modules", "-l")).stdout
    await inject(machine, "0", "150", "95")
    rack.clock.pass_by(60)
    assert rack.cache.latest((0, 0), 150) == 95
    machine.record_xid(0, 31, "MMU Fault")
    assert rack.cache.latest((0, 0), 230) == 31, "an event comes through a pause"
    resumed = await dcgmi(machine, "test", "--resume")
    assert resumed.stdout == "Successfully resumed metrics monitoring\n"
    assert int(await shown(machine, 0, 150)) < 40
    assert await core() == "Loaded"


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["test", "--inject", "--gpuid", "0", "-f", "230"], 254, "-v/--value argument is required"),
        (["test", "--inject", "--gpuid", "0", "-v", "1"], 254, "--field argument is required"),
        (["test", "--inject", "-g", "0", "-f", "230", "-v", "79"], 254, "only be specified for a single GPU"),
        (["test", "--inject", "--gpuid", "0", "-g", "0", "-f", "230", "-v", "79"], 254, "Both group and GPU ID"),
        (["test", "--inject", "--gpuid", "0", "-f", "230", "-v", "1", "--offset", "-5"], 254, "negative value found"),
        (["test", "--inject", "--gpuid", "abc", "-f", "230", "-v", "1"], 1, "PARSE ERROR"),
        (["test", "--inject", "--pause"], 1, "PARSE ERROR"),
        (["test", "--inject", "--gpuid", "0", "-f", "DCGM_FI_DEV_GPU_TEMP", "-v", "95"], 255, "Unable to inject info"),
        (["dmon", "-e", "DCGM_FI_DEV_GPU_TEMP"], 254, "Error: Invalid value for arg field-id.\nAn error occurred"),
        (["dmon", "-c", "1"], 1, "PARSE ERROR"),
        (["modules", "-l", "--nonsense"], 1, "PARSE ERROR"),
        (["test", "--inject", "--gpuid", "7", "-f", "230", "-v", "1"], 255, "Bad parameter passed to function"),
        (["test", "--inject", "--gpuid", "0", "-f", "1534", "-v", "1"], 255, "Bad parameter passed to function"),
        (["dmon", "-e", "9999", "-c", "1"], 255, "Got invalid field ID. '9999'"),
        (["dmon", "-i", "7", "-e", "150", "-c", "1"], 255, "while adding GPU 7 to our entity group"),
        (["health"], 255, "Invalid subsystem"),
        (["diag"], 254, "required"),
        (["diag", "-r", "5", "-j"], 254, "invalid choice"),
        (["test"], 1, "PARSE ERROR"),
        ([], 1, "PARSE ERROR"),
    ],
)
async def test_dcgmi_refuses(machine: Machine, argv: list[str], status: int, said: str) -> None:
    refused = await dcgmi(machine, *argv)
    assert refused.exit_status == status
    assert said in refused.stdout + refused.stderr


async def test_without_its_host_engine_dcgmi_cannot_connect_and_a_restart_forgets(rack: Rack) -> None:
    machine = rack.machines[0]
    await inject(machine, "0", "230", "79")
    await dcgmi(machine, "test", "--pause")
    machine.set_unit("nvidia-dcgm", active=False)
    for argv in (["test", "--introspect", "-f", "230"], ["dmon", "-e", "230"], ["test", "--pause"], ["modules", "-l"]):
        refused = await dcgmi(machine, *argv)
        assert refused.exit_status == 235
        assert "Unable to connect to host engine" in refused.stdout + refused.stderr
        assert refused.stdout.startswith("Error: unable to establish a connection to the specified host: localhost\n")
    machine.set_unit("nvidia-dcgm", active=True)
    assert rack.cache.latest((0, 0), 230) is None
    assert rack.cache.collecting[0]


def bare(machine: Machine, gpu: int, code: int, prefix: str = "") -> str:
    return f"<3>{prefix}NVRM: Xid (PCI:{machine.gpus[gpu].pci}): {code}, pid='<unknown>', name=<unknown>, text\n"


async def test_dcgm_takes_a_bare_line_of_three_codes_for_the_drivers(rack: Rack) -> None:
    machine = rack.machines[0]
    long_domain = bare(machine, 3, 79).replace("PCI:", "PCI:0000")
    records = (bare(machine, 0, 79), bare(machine, 1, 48), bare(machine, 2, 79, "kernel: "), long_domain)
    for gpu, record in enumerate(records):
        machine.log.write(record)
        assert rack.cache.latest((0, gpu), 230) == (79 if gpu == 0 else None)
    assert rack.fleet.xid.sum() == 0, "NVML knows of none"
    assert rack.cache.latest((0, 0), 150) is not None


async def test_a_bare_119_blinds_dcgm_until_a_restart_that_reads_the_log_again(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.log.write(bare(machine, 2, 119))
    assert await shown(machine, 0, 150) == "N/A", "no driver call for any GPU"
    assert await shown(machine, 2, 230) == "119"
    assert rack.cache.latest((1, 0), 150) is not None
    await run_program(machine, ["systemctl", "restart", "nvidia-dcgm"], 10)
    assert await shown(machine, 0, 150) == "N/A", "the line is still in the ring buffer"
    machine.log.boot()
    await run_program(machine, ["systemctl", "restart", "nvidia-dcgm"], 10)
    assert await shown(machine, 0, 150) != "N/A"
