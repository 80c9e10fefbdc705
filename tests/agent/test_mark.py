"""The role mark: a line in the kernel log, and the processes that keep a GPU from being reset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.mark import gpu_users, mark
from gameday.agent.security import security_of
from gameday.agent.task import GpuPodsNote, GpuUserNote, GpuUsersTask, MarkTask, notes_in
from gameday.errors import HostError
from gameday.faults.gpu import refuse_reset
from gameday.host.base import DcgmEngine, DcgmEngines, GpuUser
from gameday.host.privileges import DAEMONS, GPU_PROGRAMS, GPU_WORK, KERNEL_LOG, combined
from gameday.run.agents import engines_in, gpu_users_left
from tests.host.fake import FakeHost, result

TASK = MarkTask(run_id="r", node="n", marker="marker-12")
ASKS_DCGM = TASK.model_copy(update={"dcgm_engines": True})
RESETS = TASK.model_copy(update={"reset_gpu": 1})


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.users[1] = (GpuUser(pid=7, command="nvidia-device-plugin", pod="uid-1"),)
    return host


def printed(host: FakeHost, task: MarkTask, folder: Path, capsys: Any) -> list[str]:
    assert mark(task, Context(host, Ending(), folder, folder / "log")).ok
    return [str(line) for line in capsys.readouterr().out.split("\n")[:-1]]


def test_the_users_of_a_gpu_are_printed_only_if_it_is_to_be_reset(host: FakeHost, tmp_path: Path, capsys: Any) -> None:
    assert [json.loads(line)["user"] for line in printed(host, RESETS, tmp_path, capsys)] == [
        {"pid": 7, "command": "nvidia-device-plugin", "pod": "uid-1", "seen": True}
    ]
    assert printed(host, TASK, tmp_path, capsys) == []


def test_the_pods_of_every_gpu_are_printed_only_if_the_task_asks(host: FakeHost, tmp_path: Path, capsys: Any) -> None:
    asks = TASK.model_copy(update={"gpu_pods": True})
    notes = notes_in("\n".join(printed(host, asks, tmp_path, capsys)), GpuPodsNote)
    assert [(note.gpu, note.pods) for note in notes] == [(0, ()), (1, ("uid-1",))]
    assert security_of(asks) == combined((KERNEL_LOG, GPU_WORK))


def test_a_missing_nvidia_smi_is_found_before_anything_is_broken(host: FakeHost, tmp_path: Path) -> None:
    host.programs = lambda argv: result(argv, 127, stderr="nsenter: failed to execute nvidia-smi: No such file")
    with pytest.raises(HostError, match="failed to execute nvidia-smi"):
        mark(RESETS, Context(host, Ending(), tmp_path, tmp_path / "log"))


def test_only_a_mark_task_with_a_gpu_to_reset_needs_more_than_the_kernel_log() -> None:
    assert (security_of(TASK), security_of(RESETS)) == (KERNEL_LOG, GPU_PROGRAMS)


def test_the_dcgm_engines_are_printed_only_if_the_task_asks(host: FakeHost, tmp_path: Path, capsys: Any) -> None:
    own = DcgmEngine(pid=9, command="/usr/bin/dcgm-exporter\u2028", pod="uid-3", embedded=True)
    stranger = DcgmEngine(pid=10, command="statistics", embedded=True)
    host.engines = DcgmEngines(engines=(own, *([stranger] * 99)), unseen=("x" * 5000,))
    seen = engines_in("\n".join(["noise", *printed(host, ASKS_DCGM, tmp_path, capsys)]))
    assert seen
    assert "process 9 (/usr/bin/dcgm-exporter" in seen.blind[0]
    assert (len(seen.others), len(seen.unseen[0])) == (64, 1000)
    assert engines_in("\n".join(printed(host, TASK, tmp_path, capsys))) is None


def test_a_dcgmi_that_qa_needs_is_missed_before_anything_is_broken(host: FakeHost, tmp_path: Path) -> None:
    asks = TASK.model_copy(update={"needs_dcgmi": True})
    assert security_of(asks) == combined((KERNEL_LOG, DAEMONS))
    host.programs = lambda argv: result(argv, 127, stderr="nsenter: failed to execute dcgmi: No such file")
    with pytest.raises(HostError, match="no dcgmi on this node"):
        mark(asks, Context(host, Ending(), tmp_path, tmp_path / "log"))
    running = {"body": {"Core": {"children": {"State": {"value": "Loaded"}}}}}
    host.programs = lambda argv: result(argv, stdout=json.dumps(running))
    assert mark(asks, Context(host, Ending(), tmp_path, tmp_path / "log")).ok


def test_a_mark_task_that_looks_for_engines_sees_the_hosts_processes() -> None:
    assert security_of(ASKS_DCGM) == combined((KERNEL_LOG, DAEMONS))
    assert security_of(ASKS_DCGM).host_pid


def test_pods_that_are_drained_and_the_persistence_daemon_do_not_forbid_a_reset() -> None:
    users = (
        GpuUser(pid=1, command="python train.py", pod="job"),
        GpuUser(pid=2, command="/usr/bin/nvidia-persistenced --verbose"),
        GpuUser(pid=3, command="nvidia-device-plugin", pod="daemon"),
        GpuUser(pid=4, command="nv-hostengine -n"),
    )
    log = "\n".join(["no note", *(GpuUserNote(user=user).model_dump_json() for user in users)])
    assert gpu_users_left(log, {"job"}) == ["3 nvidia-device-plugin", "4 nv-hostengine -n"]


def test_the_pods_on_every_gpu_are_printed_each_once_and_without_the_hosts_processes(
    host: FakeHost, tmp_path: Path, capsys: Any
) -> None:
    rank = GpuUser(pid=8, command="python", pod="uid-2")
    host.users[0] = (rank, rank.model_copy(update={"pid": 9}), GpuUser(pid=1, command="nvidia-persistenced"))
    task = GpuUsersTask(run_id="r", node="n")
    assert gpu_users(task, Context(host, Ending(), tmp_path, tmp_path / "log")).ok
    found = {note.pci: note.pods for note in notes_in(capsys.readouterr().out, GpuPodsNote)}
    assert found == {"0000:1a:00": ("uid-2",), "0000:1b:00": ("uid-1",)}
    assert host.log == [] and security_of(task) == GPU_WORK


def test_a_process_that_cannot_be_seen_forbids_a_reset_and_is_named_where_only_pods_count(
    host: FakeHost, tmp_path: Path, capsys: Any
) -> None:
    hidden = GpuUser(pid=1, command="/init", pod="uid-9", seen=False)
    host.users = dict.fromkeys((0, 1), (*(hidden.model_copy(update={"pid": pid}) for pid in range(1, 6)),))
    with pytest.raises(HostError, match=r"GPU 1 is open in 5 process\(es\): 1 /init \(not seen: its open files"):
        refuse_reset(host, host.samples[1])
    log = "\n".join(printed(host, RESETS, tmp_path, capsys))
    assert gpu_users_left(log, ())[0] == "1 /init (not seen: its open files cannot be read)"
    done = gpu_users(GpuUsersTask(run_id="r", node="n"), Context(host, Ending(), tmp_path, tmp_path / "log"))
    assert [note.pods for note in notes_in(capsys.readouterr().out, GpuPodsNote)] == [(), ()]
    assert (done.ok, done.evidence[0], done.evidence[-1]) == (True, "2 GPU(s) looked at", "and 2 more")
    assert done.evidence[1] == "1 /init (not seen: its open files cannot be read)"


def test_a_node_that_shows_no_gpus_has_no_answer(host: FakeHost, tmp_path: Path) -> None:
    host.samples = []
    assert not gpu_users(GpuUsersTask(run_id="r", node="n"), Context(host, Ending(), tmp_path, tmp_path / "log")).ok
