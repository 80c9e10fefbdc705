"""The probe measures the GPUs of its pod and no other, and makes room at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.probe import probe
from gameday.agent.task import AgentResult, ProbedNote, ProbeTask
from gameday.host.base import GpuSample, WorkOrder, WorkReport
from gameday_rehearsal.nodes.in_process import ModelHost

Capture = pytest.CaptureFixture[str]


def probed(
    capsys: Capture,
    host: ModelHost,
    tmp_path: Path,
    own: Sequence[int],
    ending: Ending | None = None,
    load_s: float = 0.2,
) -> tuple[list[ProbedNote], AgentResult]:
    task = ProbeTask(run_id="r", node="a", gpus=len(own), burn_in_s=60, virtual_burn_in_s=load_s, temperature_max_c=93)
    uuids = [gpu.uuid for gpu in host.gpus() if gpu.index in own]
    environment = {"NVIDIA_VISIBLE_DEVICES": ",".join(uuids)}
    result = probe(task, Context(host, ending or Ending(), tmp_path, tmp_path / "log"), environment)
    return [ProbedNote.model_validate(json.loads(line)) for line in capsys.readouterr().out.splitlines()], result


def test_it_measures_its_own_gpus_and_touches_no_other(capsys: Capture, tmp_path: Path) -> None:
    host = ModelHost(4)
    host.fleet.compute_share[0, 3] = 0.5
    notes, result = probed(capsys, host, tmp_path, (1, 3))
    assert result.ok
    assert [note.gpu for note in notes] == [1, 3]
    assert not [done for done in host.did if "GPU 0" in done or "GPU 2" in done]
    fast, slow = notes
    assert fast.gemm_tflops
    assert slow.gemm_tflops
    assert slow.gemm_tflops < 0.6 * fast.gemm_tflops
    assert fast.all_reduce_gpus == 2
    assert fast.link_gbs
    assert fast.nvlink_gbs == pytest.approx(478.1, abs=0.1)
    assert fast.power_w
    assert 126 < fast.power_w < 700, "a short burn: NVML's watts are the mean of a second"
    assert fast.slowed_by == ()


def test_one_gpu_has_no_all_reduce(capsys: Capture, tmp_path: Path) -> None:
    notes, result = probed(capsys, ModelHost(4), tmp_path, (2,))
    assert result.ok
    assert notes[0].all_reduce_gbs is None


def test_a_gpu_that_works_already_though_no_pod_has_it_is_left_alone(capsys: Capture, tmp_path: Path) -> None:
    host = ModelHost(2)
    host.fleet.set_burst_load((0, 1), 0.9)  # a training pod's load pauses for its checkpoints
    notes, result = probed(capsys, host, tmp_path, (0, 1))
    assert not result.ok
    assert all("yielded: GPU 1 works already" in note.why_not for note in notes)
    assert not [done for done in host.did if "start work" in done]


def test_it_yields_as_soon_as_another_process_takes_memory_of_its_gpu(capsys: Capture, tmp_path: Path) -> None:
    class Taken(ModelHost):
        """From the third look on a job outside Kubernetes fills GPU 0."""

        looks = 0

        def gpus(self) -> list[GpuSample]:
            working = bool(self.machine.works)
            self.looks += working
            if self.looks == 3:
                self.fleet.held_mib[0, 0] = 30_000
            return super().gpus()

    host = Taken(2)
    notes, result = probed(capsys, host, tmp_path, (0, 1), load_s=600)
    assert not result.ok
    assert "yielded: another process took 30000 MiB of GPU 0" in result.error
    assert all(note.gemm_tflops is None for note in notes)
    assert host.looks <= 4
    assert not host.machine.works


def test_a_neighbours_memory_is_no_reason_to_yield(capsys: Capture, tmp_path: Path) -> None:
    class Neighbour(ModelHost):
        def start_work(self, gpu: int, order: WorkOrder) -> WorkReport:
            self.fleet.held_mib[0, 3] += 10_000
            return super().start_work(gpu, order)

    notes, result = probed(capsys, Neighbour(4), tmp_path, (0, 1))
    assert result.ok, result.error
    assert len(notes) == 2


def test_a_signal_ends_it_without_figures(capsys: Capture, tmp_path: Path) -> None:
    ending = Ending()

    class Interrupted(ModelHost):
        def steer_work(self, gpu: int, utilization: float) -> None:
            threading.Thread(target=ending.by_signal).start()
            super().steer_work(gpu, utilization)

    host = Interrupted(2)
    notes, result = probed(capsys, host, tmp_path, (0, 1), ending, load_s=600)
    assert notes == []
    assert result.ended_by == "sigterm"
    assert not result.ok
    assert not host.machine.works


def test_a_pod_that_cannot_know_its_gpus_measures_nothing(capsys: Capture, tmp_path: Path) -> None:
    task = ProbeTask(run_id="r", node="a", gpus=2, burn_in_s=60, virtual_burn_in_s=1, temperature_max_c=93)
    host = ModelHost(4)
    result = probe(task, Context(host, Ending(), tmp_path, tmp_path / "log"), {})
    assert not result.ok
    assert "no way says which GPUs this pod holds" in result.error
    assert not [done for done in host.did if "start work" in done]
