"""The model's all-reduce takes NCCL's path, and says what the real program would print."""

from __future__ import annotations

import asyncio

import pytest

from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.nccl import CONF, all_reduce
from gameday_rehearsal.nodes.network import Qdisc, round_trips
from gameday_rehearsal.nodes.programs.run import run_program
from tests.rehearsal.nodes.conftest import Rack

NETWORK = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


@pytest.fixture
def machine(rack: Rack) -> Machine:
    return rack.machines[0]


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ({}, "P2P/CUMEM"),
        ({"NCCL_IB_DISABLE": "1"}, "P2P/CUMEM"),
        ({"NCCL_P2P_DISABLE": "1"}, "SHM/direct"),
        ({"NCCL_P2P_LEVEL": "LOC"}, "SHM/direct"),
        (NETWORK, "NET/IB/0/GDRDMA"),
        (NETWORK | {"NCCL_NET_GDR_LEVEL": "LOC"}, "NET/IB/0"),
        (NETWORK | {"NCCL_IB_DISABLE": "1"}, "NET/Socket"),
        (NETWORK | {"NCCL_IB_HCA": "=mlx5_99"}, "NET/Socket"),
        (NETWORK | {"NCCL_IB_HCA": "mlx5"}, "NET/IB/0/GDRDMA"),
    ],
)
def test_the_path_follows_the_variables(environment: dict[str, str], path: str, machine: Machine) -> None:
    assert all_reduce(machine, [0, 1], environment).path == path


def test_paths_differ_in_bandwidth(machine: Machine) -> None:
    worse = [{}, NETWORK, {"NCCL_P2P_DISABLE": "1"}, NETWORK | {"NCCL_IB_DISABLE": "1"}]
    speeds = [all_reduce(machine, [0, 1], environment).gbs for environment in worse]
    assert speeds == sorted(speeds, reverse=True)
    assert len(set(speeds)) == len(speeds)


@pytest.mark.parametrize("environment", [{"NCCL_PROTO": "LL"}, {"NCCL_ALGO": "Tree"}, {"NCCL_MAX_NCHANNELS": "1"}])
def test_algorithm_protocol_and_channels_narrow_it(environment: dict[str, str], machine: Machine) -> None:
    assert 0 < all_reduce(machine, [0, 1], environment).gbs < all_reduce(machine, [0, 1], {}).gbs


def test_lost_nvlinks_narrow_it_and_none_takes_shared_memory(machine: Machine) -> None:
    full = all_reduce(machine, [0, 1], {}).gbs
    machine.fleet.nvlinks[0, 1] = 9
    assert all_reduce(machine, [0, 1], {}).gbs == full / 2
    machine.fleet.nvlinks[0, 1] = 0
    assert all_reduce(machine, [0, 1], {}).path == "SHM/direct"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"NCCL_SOCKET_IFNAME": "=doesnotexist"}, "no socket interface found"),
        (NETWORK | {"NCCL_IB_GID_INDEX": "99"}, "ibv_modify_qp"),
        (NETWORK | {"NCCL_IB_TIMEOUT": "1", "NCCL_IB_RETRY_CNT": "1"}, "status=12"),
    ],
)
def test_some_end_the_job(environment: dict[str, str], why: str, machine: Machine) -> None:
    assert why in all_reduce(machine, [0, 1], environment).error


def test_an_interface_that_is_down_cannot_begin_a_job(machine: Machine) -> None:
    named = {"NCCL_SOCKET_IFNAME": "ib0"}
    assert not all_reduce(machine, [0, 1], named).error
    machine.network.set_link("ib0", up=False)
    assert "no socket interface" in all_reduce(machine, [0, 1], named).error


def test_the_environment_is_stronger_than_the_file_and_the_files_first_line_than_its_second(machine: Machine) -> None:
    machine.extra_files[CONF] = "# NCCL\nNCCL_P2P_DISABLE=1\nNCCL_P2P_DISABLE=0\n"
    assert all_reduce(machine, [0, 1], {}).path == "SHM/direct"
    assert all_reduce(machine, [0, 1], {"NCCL_P2P_DISABLE": "0"}).path == "P2P/CUMEM"


def test_netem_does_not_slow_sockets_between_gpus_of_one_node(machine: Machine) -> None:
    sockets = NETWORK | {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "ib0"}
    before = all_reduce(machine, [0, 1], sockets)
    machine.network.interfaces["ib0"].qdisc = Qdisc("netem", "1:", {"delay": {"delay": 1.0, "jitter": 0}})
    assert all_reduce(machine, [0, 1], sockets) == before


def test_a_reboot_brings_the_network_up_without_queues_of_anybodys(machine: Machine) -> None:
    machine.network.interfaces["ib0"].qdisc = Qdisc("netem", "1:", {})
    machine.network.set_link("ib1", up=False)
    machine._boot()
    assert machine.network.interfaces["ib0"].qdisc is None
    assert machine.network.interfaces["ib1"].up


def test_loss_delay_and_rate_are_what_pings_meet(machine: Machine) -> None:
    ib0 = machine.network.interfaces["ib0"]
    clean = list(round_trips(ib0, 200, 0.02, 1428))
    assert None not in clean
    ib0.qdisc = Qdisc("netem", "1:", {"limit": 1000, "loss-random": {"loss": 0.5}, "delay": {"delay": 0.05}})
    hurt = list(round_trips(ib0, 200, 0.02, 1428))
    assert 50 < hurt.count(None) < 150
    assert min(trip for trip in hurt if trip is not None) > 50
    ib0.qdisc = Qdisc("tbf", "1:", {"rate": 1_250_000, "burst": 65536, "lat": 50_000})
    narrow = list(round_trips(ib0, 200, 0.02, 60_028))
    assert 0.3 < 1 - narrow.count(None) / 200 < 0.6  # 10 of 24 Mbit/s
    assert all(trip is not None for trip in round_trips(ib0, 200, 0.02, 1028))  # 0.4 Mbit/s fit


def test_visible_devices_end_at_the_first_that_is_not_there(machine: Machine) -> None:
    argv = ["env", f"CUDA_VISIBLE_DEVICES={machine.gpus[0].uuid},GPU-nope", "all_reduce_perf", "-g", "2"]
    done = asyncio.run(run_program(machine, argv, 5))
    assert done.exit_status
    assert "invalid device ordinal" in done.stderr
