"""The lab as one thing to start and end: the control plane, this project's rights in it, and virtual GPU nodes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gameday import __version__
from gameday.cluster.lab_control import SOCKET
from gameday.processes.children import Child, private_files
from gameday.processes.ports import start_on_free_ports
from gameday_rehearsal.folder import STATE, HeldFolder
from gameday_rehearsal.lab.control_plane import ControlPlane
from gameday_rehearsal.lab.settings import STOCK, LabSettings
from gameday_rehearsal.lab.supervisor import Supervision
from gameday_rehearsal.seed import seeding
from gameday_rehearsal.startup import start_errors

ACCOUNTS = ("gameday-runner", "gameday-node-health", "gameday-reaper")
"""Service accounts of deploy/rbac that get a kubeconfig, `<name>.kubeconfig` in the lab's folder."""


class Lab:
    """A lab: `start`, `supervise`, and always `end`."""

    def __init__(
        self,
        folder: Path,
        nodes: int,
        gpus: int,
        say: Callable[[str], None],
        settings: LabSettings = STOCK,
        client_nodes: int = 0,
    ) -> None:
        """Prepare a lab; without nodes it is the bare control plane.

        `say` gets a line when a component crashes. `client_nodes` is the number of further nodes without GPUs, for API
        clients.
        """
        self.folder = folder.resolve()
        settings = settings.for_nodes(nodes + client_nodes)
        self.control_plane = ControlPlane(self.folder / "control-plane", settings, say)
        self.admin_kubeconfig = self.control_plane.folder / "admin.kubeconfig"
        self._nodes = nodes
        self._settings = settings
        self._gpus = gpus
        self._client_nodes = client_nodes
        self._held: HeldFolder | None = None

    def start(self) -> None:
        """Start the lab and wait until everything is ready. Raises StartError."""
        with start_errors(self.folder, "lab", holder="a lab or a rehearsal"), private_files():
            self._held = HeldFolder(self.folder)
            start_on_free_ports(self._start, self.control_plane.supervisor.wrote, self.control_plane.end)

    def _start(self) -> None:
        self.control_plane.start()
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            for account in ACCOUNTS:
                seeder.service_account_kubeconfig(account, self.folder / f"{account}.kubeconfig")
            if self._settings.dra:
                seeder.device_class()
            if self._nodes:
                self._start_nodes()
            seeder.await_schedulable(self._nodes + self._client_nodes + self._settings.real_node)
        self._write_state()

    def supervise(self) -> NoReturn:
        """Restart everything that crashes, forever; only a signal handler that raises ends it."""
        self.control_plane.supervise()

    def end(self) -> None:
        """End every process; the folder stays, with the logs."""
        self.control_plane.end()
        if self._held:
            self._held.release()

    def _start_nodes(self) -> None:
        plane = self.control_plane
        assert plane.ports is not None
        arguments = {
            "kubeconfig": plane.folder / "nodes.kubeconfig",
            "tls-folder": plane.folder,
            "nodes": self._nodes,
            "gpus": self._gpus,
            "client-nodes": self._client_nodes,
            "port": plane.ports.nodes,
            "state-dir": self.folder / "pods",
            "lab-control": plane.folder / SOCKET,
        }
        words = [f"--{name}={value}" for name, value in arguments.items()] + self._settings.node_arguments()
        argv = [sys.executable, "-m", "gameday_rehearsal.nodes", *words]
        child = Child("nodes", argv, plane.folder / "nodes.log")
        metrics_url = f"http://127.0.0.1:{plane.ports.nodes}/metrics"
        plane.supervisor.spawn(child, Supervision(f"v{__version__}", metrics_url, metrics_url))
        child.await_ready_line()

    def _write_state(self) -> None:
        state = {"pid": os.getpid(), "url": self.control_plane.url, "kubeconfig": str(self.admin_kubeconfig)}
        part = self.folder / f"{STATE}.part"
        part.write_text(json.dumps(state), encoding="utf-8")
        part.replace(self.folder / STATE)
