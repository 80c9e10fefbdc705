"""A lab with a real node for tests, and what of such a node can be left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gameday.cluster.lab_control import SOCKET, Verb, ask_lab
from gameday.errors import ProgramMissingError, StartError
from gameday_rehearsal.folder import STATE
from gameday_rehearsal.lab.programs import find_node_programs, find_programs
from gameday_rehearsal.lab.real_node import cgroups
from gameday_rehearsal.lab.real_node.namespaces import first_process
from gameday_rehearsal.lab.real_node.network import REAL_NODE
from gameday_rehearsal.lab.real_node.node import RealNode
from gameday_rehearsal.lab.supervisor import Supervisor
from tests.rehearsal.processes import naming, until


def need_real_node(folder: Path) -> None:
    """Skip the test, with the reason, where no real node can run."""
    try:
        RealNode(folder / "tried", find_node_programs(find_programs()["kube-apiserver"]), Supervisor(folder))
    except (ProgramMissingError, StartError) as error:
        pytest.skip(str(error))


class RealLab:
    """`gameday lab up --real-node` as a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = folder.with_suffix(".out")
        argv = [sys.executable, "-m", "gameday.cli", "lab", "up", "--real-node", "--nodes=1", f"--folder={folder}"]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(argv, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            until(lambda: (folder / STATE).exists() or self.process.poll() is not None, 120, "the lab is up")
            assert self.process.poll() is None, self.output.read_text()
        except BaseException:
            self.end()
            raise
        self.node = folder / "control-plane" / REAL_NODE

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Run kubectl as the administrator and return its output."""
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "control-plane" / "admin.kubeconfig")}
        done = subprocess.run(
            ["kubectl", *arguments], env=environment, input=stdin, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, verb: str, component: str) -> None:
        """Ask something of a component, as `gameday lab` does."""
        ask_lab(self.folder / "control-plane" / SOCKET, Verb(verb), component)

    def end(self, by: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(by)
        return self.process.wait(60)


@contextmanager
def real_lab(folder: Path) -> Iterator[RealLab]:
    """A lab of this block's own."""
    need_real_node(folder.parent)
    lab = RealLab(folder)
    try:
        yield lab
    finally:
        lab.end()
        until(lambda: not naming(folder), 30, "its processes have ended")


def namespaces(lab: RealLab) -> dict[str, str]:
    """The namespaces of the lab's node, by kind."""
    return _namespaces(first_process(lab.node))


def left_in(spaces: dict[str, str]) -> list[int]:
    """Living processes in any of these namespaces."""
    mine = _namespaces(os.getpid())
    assert not set(mine.items()) & set(spaces.items())
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [pid for pid in pids if set(_namespaces(pid).items()) & set(spaces.items())]


def _namespaces(pid: int) -> dict[str, str]:
    found = {}
    for kind in ("mnt", "net", "pid", "uts", "ipc"):
        try:
            found[kind] = os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - no path: pid:[4026532288]
        except OSError:  # it has ended
            return {}
    return found


def on_machine(lab: RealLab) -> set[str]:
    """What the machine itself has of control groups, mounts and network devices."""
    cgroup = json.loads((lab.node / "kubelet.json").read_text())["cgroupRoot"].strip("/")
    groups = [one / cgroup for one in cgroups.hierarchies() if (one / cgroup).exists()]
    mounts = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(lab.folder) in line]
    devices = list(Path("/sys/class/net").iterdir())
    return {*map(str, groups), *mounts, *map(str, devices)}


def said_in_kernel_log(words: str) -> bool:
    """Look through the machine's kernel log."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            if words.encode() in os.read(log, 8192):
                return True
    except BlockingIOError:
        return False
    finally:
        os.close(log)


def pod(name: str, *command: str, more: str = "") -> str:
    """A pod for the real node, with more of the container's fields as JSON."""
    container = {
        "name": "main",
        "image": "localhost/gameday/busybox:lab",
        "imagePullPolicy": "Never",
        "command": command,
        **json.loads(more or "{}"),
    }
    spec = {"nodeName": REAL_NODE, "restartPolicy": "Never", "containers": [container], "hostPID": True}
    spec |= {"terminationGracePeriodSeconds": 1}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
