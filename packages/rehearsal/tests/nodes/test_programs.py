from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gameday.cluster.lab_control import Answer, Verb
from gameday.errors import HostError, MachineDownError
from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.files import read_file, write_file
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs import lab_control
from gameday_rehearsal.nodes.programs.run import run_program
from tests.rehearsal.nodes.conftest import Rack


async def run(machine: Machine, *argv: str, timeout_s: float = 10) -> ProgramResult:
    return await run_program(machine, list(argv), timeout_s)


async def test_nvidia_smi_lists_and_queries(machine: Machine) -> None:
    listed = await run(machine, "nvidia-smi", "-L")
    assert listed.stdout.splitlines()[3] == f"GPU 3: NVIDIA H100 80GB HBM3 (UUID: {machine.gpus[3].uuid})"
    query = "--query-gpu=index,uuid,gpu_bus_id,temperature.gpu,power.draw,memory.total"
    bare = await run(machine, "nvidia-smi", query, "--format=csv,noheader,nounits", "-i", machine.gpus[1].uuid)
    index, uuid, bus, degrees, watts, memory = bare.stdout.strip().split(", ")
    assert (index, uuid, bus, memory) == ("1", machine.gpus[1].uuid, "00000000:43:00.0", "81559")
    assert 25 <= int(degrees) <= 40
    assert float(watts) == 81
    full = await run(machine, "/usr/bin/nvidia-smi", "--query-gpu=power.draw", "--format=csv", "-i", "0")
    assert full.stdout == "power.draw [W]\n81.00 W\n"


@pytest.mark.parametrize("name", ["2", "00000000:52:00.0", "0000:52:00", "52:00.0", "0000:52:00.0"])
async def test_a_gpu_is_named_by_index_or_any_spelling_of_its_address(machine: Machine, name: str) -> None:
    found = await run(machine, "nvidia-smi", "--query-gpu=index", "--format=csv,noheader", "-i", name)
    assert found.stdout == "2\n"


@pytest.mark.parametrize(
    ("argv", "status", "said"),
    [
        (["--query-gpu=nonsense", "--format=csv"], 2, 'Field "nonsense" is not a valid field to query.'),
        (["-i", "9", "-L"], 6, "No devices were found"),
        (["--frobnicate"], 2, "unrecognized arguments"),
        (["-i", "0", "-pl", "900"], 2, "should be between 200.00 W and 700.00 W"),
        (["-i", "0", "-lgc", "fast"], 2, "Invalid clock range"),
        (["-i", "0", "-pl", "much"], 2, "invalid float value"),
    ],
)
async def test_nvidia_smi_refuses(machine: Machine, argv: list[str], status: int, said: str) -> None:
    refused = await run(machine, "nvidia-smi", *argv)
    assert refused.exit_status == status
    assert said in refused.stdout + refused.stderr


async def test_a_gpu_in_use_is_not_reset(machine: Machine) -> None:
    machine.double_bit_error(0)
    machine.gpu_processes[0] = {4711: "python"}
    apps = await run(machine, "nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader", "-i", "0")
    assert apps.stdout == "4711, python\n"
    refused = await run(machine, "nvidia-smi", "--gpu-reset", "-i", "0")
    assert refused.exit_status == 255
    assert "GPU 00000000:1B:00.0: In use by another client" in refused.stdout
    assert machine.samples()[0].ecc_dbe_volatile == 1
    machine.gpu_processes.clear()
    persistent = await run(machine, "nvidia-smi", "--gpu-reset", "-i", "0")
    assert "In use by another client" in persistent.stdout
    await run(machine, "nvidia-smi", "-pm", "0")
    done = await run(machine, "nvidia-smi", "--gpu-reset", "-i", machine.gpus[0].uuid)
    assert done.stdout == "GPU 00000000:1B:00.0 was successfully reset.\nAll done.\n"
    assert machine.samples()[0].ecc_dbe_volatile == 0
    assert machine.fleet.xid[0, 0] == 63


async def test_a_lost_gpu_needs_a_reboot(machine: Machine) -> None:
    machine.lose_gpu(1)
    for argv in (["--gpu-reset", "-i", "1"], ["--query-gpu=uuid", "--format=csv"]):
        refused = await run(machine, "nvidia-smi", *argv)
        assert refused.exit_status == 15
        assert "GPU is lost" in refused.stdout


async def test_settings_are_set_and_taken_back(machine: Machine) -> None:
    set_cap = await run(machine, "nvidia-smi", "-i", "0", "-pl", "400")
    assert "was set to 400.00 W from 700.00 W." in set_cap.stdout
    assert machine.samples()[0].power_limit_w == 400
    assert machine.samples()[1].power_limit_w == 700
    await run(machine, "nvidia-smi", "-i", "0", "-lgc", "210,510")
    assert machine.fleet.clock_ceiling[0, 0] == 510
    await run(machine, "nvidia-smi", "-i", "0", "-rgc")
    assert machine.fleet.clock_ceiling[0, 0] == 1980
    await run(machine, "nvidia-smi", "-pm", "0")
    assert not any(sample.persistence_mode for sample in machine.samples())


async def test_a_program_that_takes_too_long_is_an_error(machine: Machine) -> None:
    await run(machine, "nvidia-smi", "-pm", "0")
    with pytest.raises(HostError, match=r"did not end within 0\.05 s"):
        await run(machine, "nvidia-smi", "--gpu-reset", "-i", "0", timeout_s=0.05)


async def test_systemctl(machine: Machine) -> None:
    active = await run(machine, "systemctl", "is-active", "nvidia-persistenced")
    assert (active.stdout, active.exit_status) == ("active\n", 0)
    assert (await run(machine, "systemctl", "restart", "nvidia-persistenced.service")).exit_status == 0
    await run(machine, "systemctl", "stop", "nvidia-fabricmanager")
    stopped = await run(machine, "systemctl", "is-active", "nvidia-fabricmanager")
    assert (stopped.stdout, stopped.exit_status) == ("inactive\n", 3)
    unknown = await run(machine, "systemctl", "restart", "nothing")
    assert unknown.exit_status == 5
    assert "Unit nothing.service not found" in unknown.stderr


async def test_show_prints_missing_units_as_well(machine: Machine) -> None:
    shown = await run(machine, "systemctl", "show", "kubelet", "--property=LoadState,ActiveState")
    assert (shown.stdout, shown.exit_status) == ("LoadState=loaded\nActiveState=active\n", 0)
    absent = await run(machine, "systemctl", "show", "k3s.service", "--property=LoadState,ActiveState")
    assert (absent.stdout, absent.exit_status) == ("LoadState=not-found\nActiveState=inactive\n", 0)


async def test_a_transient_timer_runs_its_command_once_unless_it_is_stopped(machine: Machine) -> None:
    def later(unit: str, seconds: str) -> list[str]:
        return ["systemd-run", f"--unit=later-{unit}", f"--on-active={seconds}", "systemctl", "stop", unit]

    said = await run(machine, *later("nvidia-dcgm", "0.05s"))
    assert "Running timer as unit: later-nvidia-dcgm.timer" in said.stderr
    await run(machine, *later("ssh", "60s"))
    again = await run(machine, *later("ssh", "60s"))
    assert again.exit_status == 1
    assert "was already loaded" in again.stderr
    assert (await run(machine, "systemctl", "is-active", "later-ssh.timer")).stdout == "active\n"
    assert (await run(machine, "systemctl", "stop", "later-ssh.timer")).exit_status == 0
    gone = await run(machine, "systemctl", "stop", "later-ssh.timer")
    assert (gone.exit_status, "not loaded" in gone.stderr) == (5, True)
    while machine.is_active("nvidia-dcgm"):
        await asyncio.sleep(0.01)
    assert machine.is_active("ssh")
    assert machine.timers == {}


async def test_a_node_that_was_powered_off_comes_back_by_its_alarm_only(rack: Rack) -> None:
    machine, other = rack.machines
    alarm = "/sys/class/rtc/rtc0/wakealarm"
    assert read_file(machine, alarm) == ""
    write_file(machine, alarm, "+1\n")
    with pytest.raises(HostError, match="EBUSY"):
        write_file(machine, alarm, "+5")
    with pytest.raises(HostError, match="EINVAL"):
        write_file(machine, alarm, "soon")
    for one in (machine, other):
        assert (await run(one, "systemctl", "is-system-running")).stdout == "running\n"
        await run(one, "systemctl", "poweroff")
        assert (await run(one, "systemctl", "is-system-running")).stdout == "stopping\n"
    while machine.powered or other.powered:
        await asyncio.sleep(0.01)
    while not machine.powered:
        await asyncio.sleep(0.01)
    assert read_file(machine, alarm) == ""
    assert not other.powered
    other._rebooting.cancel()


async def test_nsenter_is_stripped_and_an_unknown_program_is_127(machine: Machine) -> None:
    inside = await run(machine, "nsenter", "-t", "1", "-m", "-n", "--", "systemctl", "is-active", "ssh")
    assert inside.stdout == "active\n"
    without_dashes = await run(machine, "nsenter", "--target", "1", "--mount", "systemctl", "is-active", "ssh")
    assert without_dashes.stdout == "active\n"
    unknown = await run(machine, "shred", "/")
    assert (unknown.exit_status, unknown.stderr) == (127, "shred: command not found\n")
    assert (await run(machine, "nsenter", "-t", "1")).exit_status == 127


async def test_a_reboot_empties_the_log_changes_the_boot_id_and_brings_lost_gpus_back(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.lose_gpu(0)
    machine.log.write("<3>before\n")
    boot_id = machine.boot_id
    await run(machine, "nvidia-smi", "-pm", "0", "-i", "2")
    asked = await run(machine, "systemctl", "reboot")
    assert asked.exit_status == 0, "the answer comes before the machine goes"
    running = asyncio.create_task(run(machine, "nvidia-smi", "--gpu-reset", "-i", "2"))
    while machine.powered:
        await asyncio.sleep(0.01)
    while not machine.powered:
        await asyncio.sleep(0.01)
    assert machine.boot_id != boot_id
    assert not any("before" in line for line in machine.log.lines())
    assert not any(sample.lost for sample in machine.samples())
    with pytest.raises(MachineDownError):
        await running


def test_files(machine: Machine) -> None:
    gpu = machine.gpus[3]
    assert read_file(machine, "/proc/sys/kernel/random/boot_id").strip() == machine.boot_id
    assert read_file(machine, "/proc/sys/kernel/printk_devkmsg") == "ratelimit\n"
    assert read_file(machine, f"/sys/bus/pci/devices/{gpu.sysfs_name}/numa_node") == "1\n"
    write_file(machine, "/etc/nccl.conf", "NCCL_IB_DISABLE=1\n")
    assert read_file(machine, "/etc/nccl.conf") == "NCCL_IB_DISABLE=1\n"
    write_file(machine, "/etc/nccl.conf", "")
    for path in ("/etc/nccl.conf", "/etc/shadow", "/sys/bus/pci/devices/0000:ff:00.0/remove", ""):
        with pytest.raises(HostError, match="ENOENT"):
            read_file(machine, path)
    with pytest.raises(HostError, match="EACCES"):
        write_file(machine, "/proc/sys/kernel/random/boot_id", "x")
    with pytest.raises(HostError, match="EINVAL"):
        write_file(machine, "/proc/sys/kernel/printk_devkmsg", "maybe")


def test_a_gpu_removed_from_the_bus_is_gone_until_a_rescan(machine: Machine) -> None:
    remove = f"/sys/bus/pci/devices/{machine.gpus[1].sysfs_name}/remove"
    machine.gpu_processes[1] = {1: "python"}
    with pytest.raises(HostError, match="hangs while a process uses the GPU"):
        write_file(machine, remove, "1")
    machine.gpu_processes.clear()
    with pytest.raises(HostError, match="hangs"):
        write_file(machine, remove, "1")  # the persistence daemon has it open
    machine.fleet.persistence[0, 1] = False
    write_file(machine, remove, "1")
    assert [sample.index for sample in machine.samples()] == [0, 2, 3]
    assert not machine.gpu_serves(1)
    write_file(machine, "/sys/bus/pci/rescan", "1")
    assert [sample.index for sample in machine.samples()] == [0, 1, 2, 3]


async def test_a_node_of_a_lab_passes_orders_on_to_its_control_socket(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(lab_control, "ask_lab", lambda *order: asked.append(order))
    monkeypatch.setattr(lab_control, "look_at", lambda *_: Answer(pid=47, paused=True))
    machine.lab_control = Path("/lab/control.sock")
    paused = await run(machine, "gameday-lab", "pause", "etcd", "20")
    assert json.loads(paused.stdout) == {"pid": 47, "paused": True}
    assert asked == [(machine.lab_control, Verb.PAUSE, "etcd", 20)]
    assert (await run(machine, "gameday-lab", "look", "etcd")).exit_status == 0
    assert len(asked) == 1


@pytest.mark.parametrize("argv", [("pause", "etcd"), ("restart", "etcd", "3"), ("kill", "etcd"), ("look",)])
async def test_what_a_fault_must_not_ask_of_a_lab_is_refused(machine: Machine, argv: tuple[str, ...]) -> None:
    machine.lab_control = Path("/lab/control.sock")
    assert (await run(machine, "gameday-lab", *argv)).exit_status == 2


async def test_a_node_of_no_lab_says_so(machine: Machine) -> None:
    refused = await run(machine, "gameday-lab", "look", "etcd")
    assert (refused.exit_status, refused.stdout) == (1, "")
    assert "is not a node of a lab" in refused.stderr
