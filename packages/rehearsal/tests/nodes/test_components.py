"""The machine's pods as its runtime and kernel show them, and the one process that a freeze really stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.faults.component_pods import Component
from gameday_rehearsal.nodes.components import Components, Sandbox
from gameday_rehearsal.nodes.files import read_file, write_file
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.run import run_program
from gameday_rehearsal.nodes.virtual_nodes import _log_store

POD = Sandbox("1a-2b", "logging", "collector-x", {"app.kubernetes.io/name": "alloy"}, burstable=False)


@pytest.fixture
def host(machine: Machine) -> Machine:
    machine.components.sandboxes = lambda: [POD]
    return machine


async def test_crictl_shows_the_pod_and_its_cgroup(host: Machine) -> None:
    listed = await run_program(host, ["crictl", "pods", "--state", "ready", "-o", "json"], 5)
    (item,) = json.loads(listed.stdout)["items"]
    assert item["metadata"]["namespace"] == "logging"
    assert item["labels"]["app.kubernetes.io/name"] == "alloy"
    result = await run_program(host, ["crictl", "inspectp", item["id"], "-o", "json"], 5)
    path = json.loads(result.stdout)["info"]["runtimeSpec"]["linux"]["cgroupsPath"]
    assert path.startswith("kubepods-besteffort-pod1a_2b.slice:cri-containerd:")


async def test_crictl_knows_no_other_pod(host: Machine) -> None:
    result = await run_program(host, ["crictl", "inspectp", "none", "-o", "json"], 5)
    assert result.exit_status == 1
    assert "NotFound" in result.stderr


def test_what_is_asked_and_what_is_so_are_two_files(host: Machine) -> None:
    write_file(host, f"{POD.cgroup}/cgroup.freeze", "1\n")
    assert read_file(host, f"{POD.cgroup}/cgroup.freeze") == "1\n"
    assert read_file(host, f"{POD.cgroup}/cgroup.events") == "populated 1\nfrozen 1\n"
    write_file(host, f"{POD.cgroup}/cgroup.freeze", "0")
    assert "frozen 0" in read_file(host, f"{POD.cgroup}/cgroup.events")


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        (f"{POD.cgroup}/cgroup.freeze", "2", "EINVAL"),
        (f"{POD.cgroup}/cgroup.events", "1", "ENOENT"),
        ("/sys/fs/cgroup/kubepods.slice/other.slice/cgroup.freeze", "1", "ENOENT"),
    ],
)
def test_the_kernel_refuses_what_makes_no_sense(host: Machine, path: str, content: str, said: str) -> None:
    with pytest.raises(HostError, match=said):
        write_file(host, path, content)


def test_a_reboot_thaws_everything_and_keeps_no_line_of_before() -> None:
    changes: list[tuple[Component, bool]] = []
    components = Components(lambda component, frozen: changes.append((component, frozen)))
    components.sandboxes = lambda: [POD]
    components.write(f"{POD.cgroup}/cgroup.freeze", "1")
    components.reboot()
    assert changes == [(Component.COLLECTOR, True), (Component.COLLECTOR, False)]


def test_a_pod_that_is_no_component_is_frozen_without_further_effect() -> None:
    components = Components(lambda *_: pytest.fail("nothing was to change"))
    other = Sandbox("3", "training", "job", {}, burstable=True)
    components.sandboxes = lambda: [other]
    components.write(f"{other.cgroup}/cgroup.freeze", "1")
    assert components.frozen_pods() == ["training/job"]


def test_only_a_process_that_is_the_log_store_is_ever_stopped(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    assert _log_store(None) is None
    assert _log_store(file) is None
    for other in ("", "0", "1", "-1", "no number", str(os.getpid())):
        file.write_text(other)
        assert _log_store(file) is None


def test_the_log_store_writes_its_own_process_id(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "gameday_rehearsal.logstore", "--data-dir", str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            assert json.loads(process.stdout.readline())["ready"]
            assert _log_store(tmp_path / "pid") == process.pid
        finally:
            process.terminate()
