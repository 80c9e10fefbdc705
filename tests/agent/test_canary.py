"""The canary reads the output of real programs, and reports why a measurement is not possible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.canary import canary
from gameday.agent.context import Context, Ending
from gameday.agent.task import AgentResult, CanaryNote, CanaryTask
from gameday.errors import HostError
from gameday.host.base import HoldMemory, Host, ProgramResult
from gameday.host.nvml_missing import NO_LIBRARY_HINT
from gameday.values.measures import Measure
from gameday_rehearsal.nodes.network import Qdisc
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost

# In the form of nccl-tests 2.13 and later.
REDUCED = """# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 1073741824 step: 1048576(bytes) warmup iters: 5 iters: 20
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1073741824     268435456     float     sum      -1   3175.2  338.16  338.16      0   3180.9  337.56  337.56      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 337.861 \n#
"""
PINGED = """PING 10.9.0.2 (10.9.0.2) from 10.9.0.1 ib0: 1400(1428) bytes of data.

--- 10.9.0.2 ping statistics ---
100 packets transmitted, 98 received, +1 duplicates, 2% packet loss, time 2041ms
rtt min/avg/max/mdev = 40.046/50.123/60.203/5.871 ms, pipe 4
"""
SILENT = "\n--- 10.9.0.2 ping statistics ---\n100 packets transmitted, 0 received, 100% packet loss, time 2041ms\n\n"
TWO = "GPU-aaaaaaaa-0000,GPU-bbbbbbbb-0000"


def measured(
    capsys: pytest.CaptureFixture[str], host: Host, tmp_path: Path, gpus: str = TWO, **task: Any
) -> tuple[CanaryNote, AgentResult]:
    asked = len(gpus.split(",")) if gpus else 1
    fields = {"run_id": "r", "node": "n", "measure": Measure.ALL_REDUCE, "gpus": asked}
    canary_task = CanaryTask.model_validate(fields | task)
    environment = {"NVIDIA_VISIBLE_DEVICES": gpus}
    result = canary(canary_task, Context(host, Ending(), tmp_path, tmp_path / "log"), environment)
    return CanaryNote.model_validate(json.loads(capsys.readouterr().out)), result


def printing(stdout: str = "", stderr: str = "", exit_status: int = 0) -> FakeHost:
    host = FakeHost()
    host.programs = lambda argv: ProgramResult(argv=tuple(argv), exit_status=exit_status, stdout=stdout, stderr=stderr)
    return host


def test_the_bandwidth_is_the_average_that_nccl_tests_print(capsys, tmp_path) -> None:
    host = printing(REDUCED)
    note, result = measured(capsys, host, tmp_path, environment={"NCCL_IB_DISABLE": "1"}, over_network=True)
    assert note.value == 337.861
    assert result.ok
    program = host.ran[0]
    assert program[:2] == ("env", f"CUDA_VISIBLE_DEVICES={TWO}")
    assert {"NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1"} <= set(program)
    assert program[program.index("-g") + 1] == "2"


def test_a_job_that_nccl_gives_up_has_a_bandwidth_of_zero(capsys, tmp_path) -> None:
    output = (
        "n:1:1 [0] bootstrap.cc:40 NCCL WARN Bootstrap : no socket interface found\nn: Test NCCL failure common.cu:1005"
    )
    note, _ = measured(capsys, printing(stderr=output, exit_status=3), tmp_path)
    assert note.value == 0.0
    assert "no socket interface found" in note.detail


@pytest.mark.parametrize(
    ("host", "gpus", "why"),
    [
        (printing(stderr="env: 'all_reduce_perf': No such file", exit_status=127), TWO, "install nccl-tests"),
        (printing(REDUCED), "", "no way says which GPUs this pod holds: NVIDIA_VISIBLE_DEVICES: it is not set"),
        (printing(REDUCED), "all", "it is 'all'"),
        (printing(REDUCED), "GPU-aaaaaaaa-0000", "two free GPUs"),
        (printing(stderr="Test CUDA failure 'out of memory'", exit_status=2), TWO, "out of memory"),
        (printing("nothing of use"), TWO, "no bandwidth"),
    ],
)
def test_a_measurement_that_is_not_possible_has_its_reason(
    host: FakeHost, gpus: str, why: str, capsys, tmp_path
) -> None:
    note, result = measured(capsys, host, tmp_path, gpus)
    assert note.value is None
    assert why in note.detail
    assert not result.ok
    assert result.cleanliness == "clean"


def test_where_no_way_tells_which_gpus_are_the_pods_the_note_has_all_three_reasons(capsys, tmp_path) -> None:
    host = printing(REDUCED)
    host.refuse = {"gpus": f"NVML not found: {NO_LIBRARY_HINT}", "pod_gpus": "kubelet.sock does not answer"}
    note, result = measured(capsys, host, tmp_path, "void")
    assert note.value is None and result.cleanliness == "clean"
    assert "it is 'void'" in note.detail and "kubelet.sock does not answer" not in note.detail  # it has no GAMEDAY_POD
    assert "GAMEDAY_POD" in note.detail and note.detail.endswith(NO_LIBRARY_HINT)


def test_a_program_that_hangs_gives_no_measurement(capsys, tmp_path) -> None:
    host = FakeHost()

    def hang(argv: Any) -> ProgramResult:
        raise HostError("'all_reduce_perf' did not end within 90 s and was killed")

    host.programs = hang
    note, _ = measured(capsys, host, tmp_path)
    assert (note.value, "did not end" in note.detail) == (None, True)


@pytest.mark.parametrize(
    ("measure", "printed", "status", "value"),
    [
        (Measure.ROUND_TRIP, PINGED, 0, 50.123),
        (Measure.ANSWERED, PINGED, 0, 98.0),
        (Measure.ANSWERED, SILENT, 1, 0.0),
        (Measure.ROUND_TRIP, SILENT, 1, None),
    ],
)
def test_pings_are_counted_and_timed(measure, printed, status, value, capsys, tmp_path) -> None:
    host = printing(printed, exit_status=status)
    note, _ = measured(capsys, host, tmp_path, measure=measure, interface="ib0", peer="10.9.0.2")
    assert (note.value, note.peer) == (value, "10.9.0.2")


def test_an_unreachable_network_answers_no_ping(capsys, tmp_path) -> None:
    host = printing(stderr="ping: connect: Network is unreachable", exit_status=2)
    note, _ = measured(capsys, host, tmp_path, measure=Measure.ANSWERED, interface="ib0", peer="10.9.0.2")
    assert note.value == 0.0


def test_without_a_peer_a_neighbour_is_pinged(capsys, tmp_path) -> None:
    host = ModelHost()
    note, _ = measured(capsys, host, tmp_path, measure=Measure.ROUND_TRIP, interface="ib0")
    assert note.peer == host.machine.network.neighbour("ib0")
    before = note.value
    host.machine.network.interfaces["ib0"].qdisc = Qdisc("netem", "1:", {"delay": {"delay": 0.02}})
    slow, _ = measured(capsys, host, tmp_path, measure=Measure.ROUND_TRIP, interface="ib0")
    assert before is not None
    assert slow.value is not None
    assert slow.value > before + 15


def test_an_interface_without_neighbours_needs_a_peer_in_the_plan(capsys, tmp_path) -> None:
    note, _ = measured(capsys, printing("[]"), tmp_path, measure=Measure.ROUND_TRIP, interface="ib0")
    assert "expect.canary.peer" in note.detail


def test_a_copy_is_slower_from_the_far_node(capsys, tmp_path) -> None:
    host = ModelHost()
    uuid = host.machine.gpus[1].uuid
    near, _ = measured(capsys, host, tmp_path, uuid, measure=Measure.COPY)
    far, _ = measured(capsys, host, tmp_path, uuid, measure=Measure.COPY, far_from_gpu=True)
    assert near.value
    assert far.value
    assert far.value < near.value
    assert not host.has_work(1)


def test_a_gpu_on_which_a_faults_work_runs_is_not_used(capsys, tmp_path) -> None:
    host = ModelHost()
    first, second = (gpu.uuid for gpu in host.machine.gpus[:2])
    from gameday.host.base import Burn

    host.start_work(0, Burn())
    note, _ = measured(capsys, host, tmp_path, f"{first},{second}", measure=Measure.COPY)
    assert "GPU 1" in note.detail
    assert host.has_work(0)


def test_the_largest_block_is_tried_and_given_back(capsys, tmp_path) -> None:
    host = ModelHost()
    free = host.fleet.memory_free_mib((0, 2))
    note, _ = measured(capsys, host, tmp_path, measure=Measure.LARGEST_BLOCK, gpu=2)
    assert (note.value, note.detail) == (100.0, f"GPU 2: {free} of {free} MiB free, in one piece")
    assert host.fleet.memory_free_mib((0, 2)) == free


def test_the_largest_block_beside_a_faults_work_is_not_measured(capsys, tmp_path) -> None:
    host = ModelHost()
    host.start_work(2, HoldMemory(leave_bytes=1 << 30))
    note, _ = measured(capsys, host, tmp_path, measure=Measure.LARGEST_BLOCK, gpu=2)
    assert (note.value, note.detail) == (None, "a fault's work runs on GPU 2")
