"""A real node's programs, in their order of start: namespaces, gateway, containerd, kubelet."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gameday import __version__
from gameday.errors import ChildError, StartError
from gameday.processes.children import Child
from gameday_rehearsal.lab.identities import Secrets
from gameday_rehearsal.lab.programs import Program
from gameday_rehearsal.lab.real_node import cgroups
from gameday_rehearsal.lab.real_node.files import (
    CONTAINERD_METRICS,
    DNS_HEALTH,
    DNS_METRICS,
    KUBELET_HEALTH,
    PROXY_HEALTH,
    PROXY_METRICS,
    SOCKET,
    write_containerd,
    write_dns,
    write_kubelet,
    write_proxy,
)
from gameday_rehearsal.lab.real_node.image import write_busybox
from gameday_rehearsal.lab.real_node.network import NODE, REAL_NODE
from gameday_rehearsal.lab.real_node.volumes import make_volumes
from gameday_rehearsal.lab.supervisor import Supervision, Supervisor
from gameday_rehearsal.programs import BESIDE_KUBELET, TOOLS, find_program

REAL_NODE_LABEL = "real-node.gameday.dev/kubelet"
"""The label by which a pod or a plan chooses the real node."""

_OURS = (sys.executable, "-m")
_MODULE = "gameday_rehearsal.lab.real_node"
# What kubelet (pkg/kubelet/cm, validateSystemRequirements) and runc need, by their names in cgroup v1.
_CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"})
_LONGEST_SOCKET = 107
"""Bytes of a socket's path (unix(7): 108 with the zero at its end)."""
_CONTROLLERS_V2 = frozenset({"cpu", "cpuset", "memory", "pids"})


class Entered(Child):
    """A program in the node's namespaces, and the process that entered them, which gets every signal with it."""

    def send(self, sent: signal.Signals) -> None:
        if self.alive and self.process is not None:
            os.killpg(self.process.pid, sent)


class RealNode:
    """The node's programs under a lab's supervisor, which ends them."""

    def __init__(self, folder: Path, programs: Mapping[str, Program], supervisor: Supervisor) -> None:
        """Find the programs and look at the machine.

        Args:
            folder: The folder of the control plane, in which the node gets one of its own.
            programs: The lab's, as find_node_programs returns them.
            supervisor: The lab's.

        Raises:
            ProgramMissingError: A program is not here.
            StartError: No real node can run on this machine.
            OSError: A file cannot be written.
        """
        self._programs = {name: find_program(name) for name in BESIDE_KUBELET}
        self._from_lab = programs
        self._folder = folder / REAL_NODE
        self._supervisor = supervisor
        self._cgroup = f"gameday-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]}"
        self._folder.mkdir(parents=True, exist_ok=True)
        check_machine(self._folder)

    def start(self, secrets: Secrets, egress: Path, port: int, api_server_port: int) -> Child:
        """Start the node and return its kubelet; the node may not be Ready yet.

        Args:
            secrets: The lab's.
            egress: The socket on which API servers ask for connections.
            port: The gateway's port on loopback.
            api_server_port: The API server's.

        Raises:
            ChildError: A program does not start.
            StartError: The socket's path is too long.
            OSError: A file cannot be written.
        """
        if len(os.fsencode(egress)) > _LONGEST_SOCKET:
            raise StartError(f"the path {egress} is too long for a socket: choose a shorter --folder")
        gateway_url = f"http://127.0.0.1:{port}"
        health, metrics = f"{gateway_url}/{KUBELET_HEALTH}/healthz", f"{gateway_url}/{CONTAINERD_METRICS}/v1/metrics"
        make_volumes(self._folder / "var-lib")
        keeper = [f"--folder={self._folder}", f"--cgroup={self._cgroup}"]
        gateway = [
            f"--folder={self._folder}",
            f"--egress={egress}",
            f"--port={port}",
            f"--api-server={api_server_port}",
        ]
        for name, module, arguments in ((REAL_NODE, "keeper", keeper), (f"{REAL_NODE}-gateway", "gateway", gateway)):
            child = Child(name, [*_OURS, f"{_MODULE}.{module}", *arguments], self._folder / f"{name}.log")
            self._supervisor.spawn(child, Supervision(f"v{__version__}", health, health))
            child.await_ready_line()
        self._start_containerd(metrics)
        kubelet = self._start_kubelet(secrets, health)
        self._start_services(secrets, gateway_url)
        return kubelet

    def _start_containerd(self, metrics: str) -> None:
        program = self._programs["containerd"]
        config = write_containerd(self._folder, self._programs["host-local"].parent, self._programs["runc"])
        child = self._entered("containerd", program, {"config": config})
        self._supervisor.spawn(child, Supervision(_version(program), metrics, metrics))
        child.await_url(metrics)
        archive = self._folder / "busybox.tar"
        write_busybox(self._programs["busybox"], archive)
        import_image(self._folder, archive)

    def _start_kubelet(self, secrets: Secrets, health: str) -> Child:
        serving = secrets.ca.server(REAL_NODE, addresses=(NODE,))
        config, kubeconfig = write_kubelet(self._folder, secrets, serving, self._cgroup)
        flags = {
            "config": config,
            "kubeconfig": kubeconfig,
            "hostname-override": REAL_NODE,
            "node-ip": NODE,
            "node-labels": f"{REAL_NODE_LABEL}=true",
        }
        return self._start_program("kubelet", flags, health, health)

    def _start_services(self, secrets: Secrets, gateway: str) -> None:
        """Start what makes Services and their names work in the node."""
        proxy, dns = write_proxy(self._folder, secrets), write_dns(self._folder, secrets)
        health, metrics = f"{gateway}/{PROXY_HEALTH}/livez", f"{gateway}/{PROXY_METRICS}/metrics"
        self._start_program("kube-proxy", {"config": proxy}, health, metrics)
        health, metrics = f"{gateway}/{DNS_HEALTH}/health", f"{gateway}/{DNS_METRICS}/metrics"
        self._start_program("coredns", {"conf": dns}, health, metrics)

    def _start_program(self, name: str, flags: Mapping[str, object], health: str, metrics: str) -> Child:
        program = self._from_lab[name]
        child = self._entered(name, program.path, flags)
        self._supervisor.spawn(child, Supervision(program.release, health, metrics))
        child.await_url(health)
        return child

    def _entered(self, name: str, program: Path, flags: Mapping[str, object]) -> Child:
        words = [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]
        log = self._folder / f"{name}.log"
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), str(self._programs["nft"].parent)))
        argv = [*entering(self._folder), *words]
        return Entered(name, argv, log, {"PATH": path}, says_ready=False, dies_by=signal.SIGKILL)


def entering(folder: Path) -> list[str]:
    """Return the words before a command that is to run in the node of a folder."""
    return [*_OURS, f"{_MODULE}.enter", str(folder)]


def import_image(folder: Path, archive: Path) -> None:
    """Give the running node of a folder the images of an OCI or Docker archive.

    Raises:
        ChildError: The node does not run, or containerd does not take the file.
        ProgramMissingError: containerd's client is not here.
    """
    ctr = [str(find_program("ctr")), "--address", SOCKET, "--namespace", "k8s.io"]
    argv = [*entering(folder), *ctr, "images", "import", str(archive)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ChildError(f"no image from {archive}: {(done.stderr or done.stdout).strip()[-300:]}")


def check_machine(folder: Path) -> None:
    """Refuse a machine on which no real node can run. Raises StartError.

    `folder` is an empty folder where the node's files will be.
    """
    if os.geteuid() != 0:
        raise StartError("a real node makes namespaces, mounts and control groups: start the lab as root, with sudo")
    for needed in (folder, TOOLS, Path(sys.prefix)):
        if needed.resolve().is_relative_to("/var/lib") or needed.resolve().is_relative_to("/run"):
            raise StartError(f"{needed} is below /var/lib or /run, which a real node has for itself: move it elsewhere")
    if missing := [name for name in ("unshare", "mount", "ip") if shutil.which(name) is None]:
        raise StartError(f"a real node needs {missing[0]}, which is not on PATH: install util-linux and iproute2")
    if lacking := _lacking_controllers():
        raise StartError(
            f"a real node needs the control group controllers {', '.join(sorted(lacking))}, which this machine does not"
            " offer here (/proc/self/mounts, cgroup.controllers): a container would have to be started with its"
            " own cgroups, writable"
        )
    _try_overlay(folder)


def _lacking_controllers() -> frozenset[str]:
    mounted = cgroups.hierarchies()
    v1 = frozenset(name for one in mounted for name in one.name.split(","))
    unified = [(one / "cgroup.controllers") for one in mounted]
    v2 = frozenset(name for file in unified if file.exists() for name in file.read_text().split())
    return min(_CONTROLLERS - v1, _CONTROLLERS_V2 - v2, key=len)


def _try_overlay(folder: Path) -> None:
    """Mount what a container's root would be, in namespaces of its own. Raises StartError."""
    layers = {name: folder / name for name in ("lower", "upper", "work", "merged")}
    for layer in layers.values():
        layer.mkdir(exist_ok=True)
    options = ",".join(f"{name}dir={layers[name]}" for name in ("lower", "upper", "work"))
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, str(layers["merged"])]
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", *mount], capture_output=True, text=True, check=False
    )
    for layer in layers.values():
        shutil.rmtree(layer, ignore_errors=True)
    if done.returncode != 0:
        said = "".join(done.stderr.strip().splitlines()[:1])
        raise StartError(
            f"no overlay can be mounted in namespaces of its own in {folder}, as a real node's containers need it"
            f" ({said}): choose a --folder on a file system like ext4 or xfs, with the capability CAP_SYS_ADMIN"
        )


def _version(containerd: Path) -> str:
    """Return the version that containerd reports: `containerd NAME VERSION REVISION`."""
    said = subprocess.run([containerd, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return f"v{said[2].removeprefix('v')}" if len(said) > 2 else "unknown"
