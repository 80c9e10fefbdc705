"""What agents do to the model's GPUs that is neither a program nor a file: work, and the settings it meets."""

from __future__ import annotations

import asyncio

import pytest

from gameday.errors import HostError
from gameday.host.base import Burn, CopyToGpu, HoldMemory
from gameday_rehearsal.nodes.files import read_file
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.run import run_program
from gameday_rehearsal.nodes.work import ModelWork, run_work
from tests.rehearsal.nodes.conftest import Rack


async def smi(machine: Machine, *arguments: str) -> tuple[int, str]:
    printed = await run_program(machine, ["nvidia-smi", "-i", "0", *arguments], 10)
    return printed.exit_status, printed.stdout + printed.stderr


async def test_the_ecc_mode_is_pending_until_a_reset(machine: Machine) -> None:
    query = ("--query-gpu=ecc.mode.current,ecc.mode.pending", "--format=csv,noheader")
    assert await smi(machine, *query) == (0, "Enabled, Enabled\n")
    status, said = await smi(machine, "-e", "0")
    assert (status, said.splitlines()[0]) == (0, "Disabled ECC support for GPU 00000000:1B:00.0.")
    assert await smi(machine, *query) == (0, "Enabled, Disabled\n")
    await smi(machine, "-pm", "0")
    await smi(machine, "--gpu-reset")
    assert await smi(machine, *query) == (0, "Disabled, Disabled\n")
    assert "already Disabled" in (await smi(machine, "-e", "DISABLED"))[1]
    assert (await smi(machine, "-e", "maybe"))[0] == 2


async def test_a_power_limit_is_read_in_all_its_bounds(machine: Machine) -> None:
    await smi(machine, "-pl", "300")
    fields = "power.limit,enforced.power.limit,power.default_limit,power.min_limit,power.max_limit"
    result = await smi(machine, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    assert result == (0, "300.00, 300.00, 700.00, 200.00, 700.00\n")


def test_two_numa_nodes_with_half_the_gpus_each(machine: Machine) -> None:
    assert read_file(machine, "/sys/devices/system/node/online") == "0-1\n"
    for gpu, node in enumerate((0, 0, 1, 1)):
        device = f"/sys/bus/pci/devices/{machine.gpus[gpu].sysfs_name}"
        assert read_file(machine, f"{device}/numa_node") == f"{node}\n"
        cpus = read_file(machine, f"{device}/local_cpulist")
        assert cpus == read_file(machine, f"/sys/devices/system/node/node{node}/cpulist")
        assert machine.samples()[gpu].cpu_affinity == cpus.strip()
    with pytest.raises(HostError, match="ENOENT"):
        read_file(machine, "/sys/devices/system/node/node2/cpulist")


async def test_a_closed_generator_ends_the_work(machine: Machine) -> None:
    reports = run_work(machine, 1, Burn())
    assert (await anext(reports)).tflops
    assert list(machine.works) == [1]
    await reports.aclose()
    assert machine.works == {}
    assert machine.fleet.work_load[0, 1] == 0


async def test_a_reboot_ends_the_work_and_frees_what_it_held(machine: Machine) -> None:
    reports = run_work(machine, 1, HoldMemory(leave_bytes=1 << 28))
    await anext(reports)
    machine.reboot(after_s=0)
    assert [report.error async for report in reports][-1] == "the machine went down"
    while not machine.powered:
        await asyncio.sleep(0.01)
    assert machine.works == {}
    assert machine.fleet.held_mib[0, 1] == 0


async def test_a_measurement_finds_no_memory_where_work_holds_it(machine: Machine) -> None:
    work = ModelWork(machine, 1, HoldMemory(leave_bytes=1 << 28))
    work.begin()
    assert "OutOfMemoryError" in (await machine.measure_load(1, 0.01)).detail
    work.stop()
    assert (await machine.measure_load(1, 0.01)).gemm_tflops


def test_a_burn_shares_its_gpu_with_a_pod(rack: Rack) -> None:
    machine = rack.machines[0]
    alone, beside = ModelWork(machine, 0, Burn()), ModelWork(machine, 1, Burn())
    alone.begin()
    beside.begin()
    machine.fleet.set_pod_load((0, 1), 0.9)
    rack.clock.pass_by(1)
    assert (beside.report().tflops or 0) < 0.7 * (alone.report().tflops or 0)


@pytest.mark.parametrize(("cpus", "gbs"), [((0, 55), 54.8), ((56, 57), 33.98), ((0, 56), 44.39)])
def test_a_copy_is_as_fast_as_its_cpus_are_near(machine: Machine, cpus: tuple[int, ...], gbs: float) -> None:
    assert ModelWork(machine, 0, CopyToGpu(cpus=cpus)).report().copy_gbs == gbs


@pytest.mark.parametrize(("node", "gbs"), [(0, 54.8), (1, 33.98)])
def test_a_copy_from_bound_memory_is_as_fast_as_the_memory_is_near(machine: Machine, node: int, gbs: float) -> None:
    report = ModelWork(machine, 0, CopyToGpu(cpus=(0, 56), memory_node=node)).report()
    assert (report.copy_gbs, report.memory_node) == (gbs, node)


def test_memory_of_a_node_that_is_not_there_cannot_be_bound(machine: Machine) -> None:
    with pytest.raises(HostError, match="no memory can be bound to NUMA node 2"):
        ModelWork(machine, 0, CopyToGpu(cpus=(0,), memory_node=2))
