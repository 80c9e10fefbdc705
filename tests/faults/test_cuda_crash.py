"""A crash of a CUDA program: the driver's own lines, whom it could harm, and what is no proof of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.inject import inject
from gameday.agent.task import InjectedNote, InjectTask, notes_in
from gameday.errors import HostError
from gameday.faults.cuda_crash import XIDS, CudaCrashFault, CudaCrashParameters
from gameday.faults.optional import warnings_of
from gameday.host.base import CrashKernel
from gameday.xid.lines import recognise
from gameday_rehearsal.nodes import cuda_crash as model
from tests.faults.gpu_model import ModelHost

CRASH = CudaCrashFault()
LINES = {"illegal_address": 1, "misaligned_address": 3, "shared_out_of_range": 3, "stack_overflow": 4, "trap": 1}


def of_a_log(lines: tuple[str, ...]) -> list[str]:
    return [line.removeprefix("kernel log: ") for line in lines if line.startswith("kernel log: ")]


@pytest.mark.parametrize("kernel", XIDS)
def test_the_drivers_lines_and_nvmls_event_prove_each_crash(host: ModelHost, kernel: CrashKernel) -> None:
    evidence = CRASH.inject(CudaCrashParameters(kernel=kernel), 2, host)
    events = [recognise(line) for line in of_a_log(evidence.lines)]
    assert len(events) == LINES[kernel]
    assert [event.pid for event in events if event] == [None] * (LINES[kernel] - 1) + [events[-1] and events[-1].pid]
    last = events[-1]
    assert last and (last.code, last.process, last.pci) == (XIDS[kernel], "python3", host.gpus()[2].pci_bus_id)
    assert evidence.lines[0].startswith(f"process {last.pid} (python3), {kernel}: cudaError")
    assert evidence.written_at and evidence.logged_at and evidence.nvml_at
    assert evidence.written_at <= evidence.logged_at < evidence.nvml_at
    assert host.fleet.xid[0, 2] == XIDS[kernel]


def test_a_burst_is_as_many_processes_each_with_lines_of_its_own(host: ModelHost) -> None:
    evidence = CRASH.inject(CudaCrashParameters(kernel="misaligned_address", repeat=4), 2, host)
    pids = [event.pid for line in of_a_log(evidence.lines) if (event := recognise(line)) and event.pid]
    assert len(of_a_log(evidence.lines)) == 12 and len(set(pids)) == 4


def test_nothing_stays_on_the_gpu_and_an_undo_may_come_twice(host: ModelHost) -> None:
    parameters = CudaCrashParameters(kernel="trap")
    CRASH.inject(parameters, 2, host)
    assert host.gpus()[2].compute_pids == ()
    for _ in range(2):
        assert "nothing to undo" in CRASH.undo(parameters, 2, host, {}).lines[-1]
    assert CRASH.verify_undone(parameters, 2, host, {})


def test_a_gpu_that_mps_shares_is_refused_even_beside_jobs(host: ModelHost) -> None:
    host.machine.gpu_processes[2] = {700: "/usr/bin/nvidia-cuda-mps-server"}
    parameters = CudaCrashParameters(kernel="trap", beside_jobs=True)
    with pytest.raises(HostError, match=r"GPU 2 is shared by MPS \(700 .*nvidia-cuda-mps-control`"):
        CRASH.prior_state(parameters, 2, host)
    assert CRASH.prior_state(parameters, 1, host) == {}


def test_a_gpu_on_which_others_compute_is_refused_unless_the_plan_allows_it(host: ModelHost) -> None:
    host.machine.gpu_processes[2] = {700: "python", 701: "nvidia-device-plugin"}
    host.machine.monitors.add(701)
    with pytest.raises(HostError, match=r"GPU 2 has compute processes \(700\): .* beside_jobs: true"):
        CRASH.inject(CudaCrashParameters(kernel="trap"), 2, host)
    assert host.fleet.xid[0, 2] == 0
    allowed = CudaCrashParameters(kernel="trap", beside_jobs=True)
    CRASH.inject(allowed, 2, host)
    assert "a job may compute on the same GPU" in warnings_of(allowed)[0]
    assert warnings_of(CudaCrashParameters(kernel="trap")) == ()


def test_a_gpu_whose_processes_nvml_does_not_list_is_refused(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    unlisted = [gpu.model_copy(update={"compute_pids": None}) for gpu in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: unlisted)
    with pytest.raises(HostError, match="NVML does not say which processes compute on GPU 2"):
        CRASH.prior_state(CudaCrashParameters(kernel="trap"), 2, host)


@pytest.fixture
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.faults.gpu._WAIT_S", 0.0)


@pytest.mark.usefixtures("_no_wait")
def test_a_line_of_another_process_or_of_another_gpu_proves_nothing(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash, other = model.crash, 0

    def elsewhere(machine: object, gpu: int, kernel: CrashKernel, pid: int) -> object:
        crash(host.machine, other, kernel, pid)
        return crash(host.machine, 2, kernel, 99).model_copy(update={"pid": pid})

    monkeypatch.setattr("gameday_rehearsal.nodes.work.crash", elsewhere)
    with pytest.raises(HostError, match=r"no Xid of it on GPU 2, .*: Xid 43 of 99\. .* hostPID"):
        CRASH.inject(CudaCrashParameters(kernel="trap"), 2, host)
    assert not host.has_work(2)


def test_a_line_with_another_code_is_not_what_the_plan_promised(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.faults.cuda_crash.XIDS", {"trap": 13})
    with pytest.raises(HostError, match=r"the driver wrote Xid 43 for process \d+, not 13: .*NVRM: Xid"):
        CRASH.inject(CudaCrashParameters(kernel="trap"), 2, host)


def test_older_lines_are_no_proof_and_the_time_of_the_line_is_the_hosts(host: ModelHost) -> None:
    parameters = CudaCrashParameters(kernel="trap")
    first = CRASH.inject(parameters, 2, host)
    second = CRASH.inject(parameters, 2, host)
    assert first.logged_at and second.written_at and first.logged_at < second.written_at
    assert not set(of_a_log(first.lines)) & set(of_a_log(second.lines))
    assert sum(bool(re.search(r"<6>gameday-agent: clock [0-9a-f]{12}", line)) for line in host.did) == 2


def test_an_xid_without_nvmls_event_says_why(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = model.crash
    unseen = {"nvml": None, "nvml_unseen": "NVML gave no event"}
    monkeypatch.setattr("gameday_rehearsal.nodes.work.crash", lambda *a: crash(*a).model_copy(update=unseen))
    evidence = CRASH.inject(CudaCrashParameters(kernel="trap"), 2, host)
    assert evidence.nvml_at is None and evidence.lines[1].endswith("; NVML gave no event")


def test_a_log_that_swallows_our_line_gives_no_time_and_nothing_crashes(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "write_kernel_log", lambda record: None)
    with pytest.raises(HostError, match=r"wrote 'gameday-agent: clock \w+' to the kernel log and did not find it"):
        CRASH.inject(CudaCrashParameters(kernel="trap"), 2, host)
    assert not any("crash" in act for act in host.did)


ALONE: dict[str, Any] = {"type": "cuda_crash", "kernel": "trap"}
BESIDE = {"type": "compound", "hold": "60s", "parts": [{"type": "noop"}, ALONE]}
AGAIN = {"type": "repeated", "hold": "60s", "times": 2, "every": "1s", "fault": ALONE}


@pytest.mark.parametrize("fault", [ALONE, BESIDE, AGAIN], ids=["alone", "in a compound", "repeated"])
def test_the_injectors_note_has_the_kernels_stamp_and_nvmls_event(
    host: ModelHost, fault: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = InjectTask(run_id="r", node="n", gpu=2, fault=fault, hold_s=0.01)
    result = inject(task, Context(host, Ending(), tmp_path, tmp_path / "log"))
    assert (result.ok, result.cleanliness) == (True, "clean")
    (note,) = notes_in(capsys.readouterr().out, InjectedNote)
    assert note.logged_at and note.nvml_at and note.written_at <= note.logged_at < note.nvml_at
