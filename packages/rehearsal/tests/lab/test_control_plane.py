"""The real control plane's processes: started in order, on loopback only, started again, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from gameday.errors import ChildError
from gameday.processes.children import Child
from gameday_control_plane.flow_control_seats import FlowSchema, PriorityLevel
from gameday_rehearsal.lab.components import Ports
from gameday_rehearsal.lab.control_plane import ControlPlane
from gameday_rehearsal.lab.programs import Program
from gameday_rehearsal.lab.status import ask
from gameday_rehearsal.lab.supervisor import Supervision, Supervisor
from tests.control_plane.flow_control import STOCK_LEVELS, STOCK_SCHEMAS
from tests.rehearsal.lab.plane import Plane, need_programs, running
from tests.rehearsal.processes import RobbedPorts, naming, until

_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_LISTENS = "0A"  # proc(5): TCP_LISTEN
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")


FACTS = Supervision("v1", "http://127.0.0.1:1", "http://127.0.0.1:1")


class Enough(Exception):
    """Ends `supervise`, as a signal's handler would."""


@pytest.fixture(scope="module")
def crashing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane of this file's own, to kill parts of."""
    with running(tmp_path_factory.mktemp("crashing")) as started:
        yield started


def test_a_program_that_does_not_start_is_named_with_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dict.fromkeys(_COMPONENTS, Program(Path("/bin/false"), (1, 37, "0")))
    monkeypatch.setattr("gameday_rehearsal.lab.control_plane.find_programs", lambda: broken)
    with ControlPlane(tmp_path) as plane, pytest.raises(ChildError) as error:
        plane.start()
    assert "etcd ended before it was ready (exit status 1)" in str(error.value)
    assert f"its log is {tmp_path / 'etcd.log'}" in str(error.value)


def test_one_that_keeps_crashing_is_started_ever_more_slowly(tmp_path: Path) -> None:
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            raise Enough

    supervisor = Supervisor(tmp_path, say)
    supervisor.spawn(Child("part", ["/bin/false"], tmp_path / "part.log", says_ready=False), FACTS)
    with pytest.raises(Enough):
        supervisor.supervise()
    pauses = [line.partition("; starting it again")[2] for line in said]
    assert pauses == ["", " in 1 s", " in 2 s"]
    assert json.loads((tmp_path / "components.json").read_text())["part"]["restarts"] == 2
    supervisor.end()
    assert not (tmp_path / "components.json").exists()


def test_a_program_that_is_gone_does_not_end_the_others(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.symlink_to("/bin/false")
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        program.unlink(missing_ok=True)
        if len(said) == 2:
            raise Enough

    supervisor = Supervisor(tmp_path, say)
    supervisor.spawn(Child("part", [str(program)], tmp_path / "part.log", says_ready=False), FACTS)
    with pytest.raises(Enough):
        supervisor.supervise()
    assert said[1].startswith(f"part cannot be started: {program}: No such file")
    supervisor.end()


@pytest.mark.lab
def test_they_are_started_in_order_and_all_answer(plane: Plane) -> None:
    components = plane.components()
    assert tuple(components) == _COMPONENTS
    starts = [one["started_at"] for one in components.values()]
    assert starts == sorted(starts)
    assert all(one.ready for one in ask(plane.folder))
    assert plane.kubectl("get", "--raw", "/readyz") == "ok"


@pytest.mark.lab
def test_nothing_listens_beyond_loopback(plane: Plane) -> None:
    for name, component in plane.components().items():
        addresses = _listening(component["pid"])
        assert addresses, name
        assert {address.partition(":")[0] for address in addresses} <= set(_LOOPBACK), name


@pytest.mark.lab
@pytest.mark.parametrize("component", _COMPONENTS)
def test_a_crashed_component_comes_back_and_the_cluster_works(crashing: Plane, component: str) -> None:
    before = crashing.components()[component]
    os.kill(before["pid"], signal.SIGKILL)
    until(lambda: crashing.components()[component]["restarts"] > before["restarts"], 60, "it is started again")
    until(lambda: all(one.ready for one in ask(crashing.folder)), 120, "all are ready")
    assert crashing.components()[component]["pid"] != before["pid"]
    # The Job controller makes the pod, the scheduler looks for a node: each of the four is needed.
    crashing.kubectl("create", "job", f"after-{component}", "--image=x")
    until(lambda: _unschedulable(crashing, f"after-{component}"), 90, "the Job's pod has met the scheduler")


@pytest.mark.lab
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_after_any_end_even_with_open_watches(tmp_path: Path, which: signal.Signals) -> None:
    with running(tmp_path / "plane") as plane, _watching(plane):
        plane.process.send_signal(which)
        if which is not signal.SIGKILL:
            plane.process.send_signal(which)
        code = plane.process.wait(30)
        assert code == (-signal.SIGKILL if which is signal.SIGKILL else 0)
        if which is not signal.SIGKILL:
            assert naming(plane.folder) - _kubectls() == set()
        until(lambda: not naming(plane.folder) - _kubectls(), 30, "its processes are gone")


@pytest.mark.lab
def test_a_folder_whose_lab_was_killed_in_mid_write_serves_again_with_its_objects(tmp_path: Path) -> None:
    with running(tmp_path) as plane:
        plane.kubectl("create", "configmap", "kept")
        plane.process.kill()
        plane.process.wait()
        until(lambda: not naming(tmp_path), 30, "its processes are gone")
    (tmp_path / "ca.key").write_bytes(b"")
    (tmp_path / "admin.kubeconfig").write_text("apiVersion: v1\nkind: Con")
    (tmp_path / "components.json").write_text('{"etcd": {"pi')
    with running(tmp_path) as plane:
        assert plane.kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"


@pytest.mark.lab
@pytest.mark.parametrize("component", ["etcd", "apiserver", "controller_manager", "scheduler"])
def test_a_port_taken_between_choice_and_start_leads_to_others(
    component: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_programs()
    robbed = RobbedPorts([field.name for field in fields(Ports)].index(component))
    monkeypatch.setattr("gameday_rehearsal.lab.control_plane.HeldPorts", robbed.hold)
    with robbed, ControlPlane(tmp_path) as plane:
        plane.start()
        assert plane.ports is not None
        assert robbed.taken not in [getattr(plane.ports, field.name) for field in fields(plane.ports)]
        assert all(one.ready for one in ask(tmp_path))
    assert naming(tmp_path) == set()


def _unschedulable(plane: Plane, job: str) -> bool:
    reason = '{.items[*].status.conditions[?(@.type=="PodScheduled")].reason}'
    found = plane.kubectl("get", "pods", "-l", f"job-name={job}", "-o", f"jsonpath={reason}", check=False)
    return found == "Unschedulable"


@contextmanager
def _watching(plane: Plane) -> Iterator[None]:
    """A client that keeps its watch open."""
    argv = ["kubectl", "--kubeconfig", str(plane.admin), "get", "--raw", "/api/v1/namespaces?watch=1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        assert b"ADDED" in client.stdout.readline()
        try:
            yield
        finally:
            client.kill()


def _kubectls() -> set[int]:
    return {
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdecimal() and _text(entry / "comm").startswith("kubectl")
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _listening(pid: int) -> set[str]:
    """Local `ADDRESS:PORT` of a process' listening sockets, as in /proc/net/tcp and tcp6."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = str(link.readlink()) if link.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    rows = [row.split() for name in ("tcp", "tcp6") for row in _text(Path(f"/proc/net/{name}")).splitlines()[1:]]
    return {row[1] for row in rows if row[3] == _LISTENS and row[9] in inodes}


@pytest.mark.lab
def test_the_server_makes_the_flow_schemas_and_levels_that_our_arithmetic_is_tested_with(plane: Plane) -> None:
    def stored(plural: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(plane.kubectl("get", plural, "-o", "json"))["items"]
        return items

    schemas = {schema.name: schema for schema in map(FlowSchema.model_validate, stored("flowschemas"))}
    levels = {level.name: level for level in map(PriorityLevel.model_validate, stored("prioritylevelconfigurations"))}
    # The rule for probes is about paths, which nobody here asks for.
    assert {name: schema for name, schema in schemas.items() if name != "probes"} == {
        schema.name: schema for schema in STOCK_SCHEMAS if schema.name != "probes"
    }
    assert {level.name: (level.shares, level.is_exempt, level.borrows, level.lends) for level in levels.values()} == {
        level.name: (level.shares, level.is_exempt, level.borrows, level.lends) for level in STOCK_LEVELS
    }
    assert {name: level.hand_size for name, level in levels.items() if name != "catch-all"} == {
        level.name: level.hand_size for level in STOCK_LEVELS if level.name != "catch-all"
    }
