"""The first look at a node: a line in the kernel log, and who would keep a GPU from being reset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.mark import mark
from gameday.agent.security import security_of
from gameday.agent.task import GpuUserNote, MarkTask
from gameday.errors import HostError
from gameday.host.base import GpuUser
from gameday.host.privileges import GPU_PROGRAMS, KERNEL_LOG
from gameday.run.agents import gpu_users_left
from tests.host.fake import FakeHost, result

TASK = MarkTask(run_id="r", node="n", marker="marker-12")
RESETS = TASK.model_copy(update={"reset_gpu": 1})


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.users[1] = (GpuUser(pid=7, command="nvidia-device-plugin", pod="uid-1"),)
    return host


def said(host: FakeHost, task: MarkTask, folder: Path, capsys: Any) -> list[str]:
    assert mark(task, Context(host, Ending(), folder, folder / "log")).ok
    return [str(line) for line in capsys.readouterr().out.splitlines()]


def test_who_has_the_gpu_open_is_told_where_it_is_to_be_reset(host: FakeHost, tmp_path: Path, capsys: Any) -> None:
    assert [json.loads(line)["user"] for line in said(host, RESETS, tmp_path, capsys)] == [
        {"pid": 7, "command": "nvidia-device-plugin", "pod": "uid-1"}
    ]
    assert said(host, TASK, tmp_path, capsys) == []


def test_an_nvidia_smi_that_is_not_there_is_told_before_anything_is_broken(host: FakeHost, tmp_path: Path) -> None:
    host.programs = lambda argv: result(argv, 127, stderr="nsenter: failed to execute nvidia-smi: No such file")
    with pytest.raises(HostError, match="failed to execute nvidia-smi"):
        mark(RESETS, Context(host, Ending(), tmp_path, tmp_path / "log"))


def test_only_a_look_at_processes_needs_more_than_the_kernel_log() -> None:
    assert (security_of(TASK), security_of(RESETS)) == (KERNEL_LOG, GPU_PROGRAMS)


def test_what_leaves_with_the_drain_and_the_daemon_forbid_no_reset() -> None:
    users = (
        GpuUser(pid=1, command="python train.py", pod="job"),
        GpuUser(pid=2, command="/usr/bin/nvidia-persistenced --verbose"),
        GpuUser(pid=3, command="nvidia-device-plugin", pod="daemon"),
        GpuUser(pid=4, command="nv-hostengine -n"),
    )
    log = "\n".join(["no note", *(GpuUserNote(user=user).model_dump_json() for user in users)])
    assert gpu_users_left(log, {"job"}) == ["3 nvidia-device-plugin", "4 nv-hostengine -n"]
