"""The embedded cluster as one thing to start and end: API server, nodes, controllers, logs, Prometheus, Prefect.

Everything in it but the metal is what a real cluster runs: the game-day meets
it through a kubeconfig of its own least-privilege service account and a
cluster profile, as it would any other.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ruamel.yaml import YAML

from gameday.rehearsal.children import Child, ChildError
from gameday.rehearsal.folder import STATE, FolderHeldError, HeldFolder
from gameday.rehearsal.observability import alertmanager_program, prometheus_program, scrape_jobs
from gameday.rehearsal.prefect_server import begin_with_template, keep_template, server_argv, server_environment
from gameday.rehearsal.programs import ProgramMissingError
from gameday.rehearsal.seed import SeedError, seeding

_PYTHON_STARTS_WITHIN_S = 20.0
_PROGRAM_STARTS_WITHIN_S = 20.0
# Prefect's server imports for seconds and migrates its database once.
_PREFECT_STARTS_WITHIN_S = 60.0
_REGISTERED_WITHIN_S = 120.0
_PORTS = ("nodes", "health", "prometheus", "alertmanager", "prefect", "apiserver")


class Detector(StrEnum):
    """Who watches the rehearsal's kernel logs."""

    CATALOGUE = "catalogue"
    KONDUKTOR = "konduktor"
    OFF = "off"


@dataclass(frozen=True)
class Size:
    nodes: int = 8
    gpus: int = 8


class RehearsalError(Exception):
    """The rehearsal could not be started; the message says which part, why, and where its log is."""


class RehearsalCluster:
    """Started and ended as a context manager; `profile` and `admin_kubeconfig` are files in its folder."""

    def __init__(self, folder: Path, size: Size, detector: Detector, *, prefect: bool = True) -> None:
        self.folder = folder.resolve()
        self.size = size
        self.detector = detector
        self._with_prefect = prefect
        self._children: dict[str, Child] = {}
        self._held: HeldFolder | None = None
        self._migrated = True
        self.profile = self.folder / "profile.yaml"
        self.admin_kubeconfig = self.folder / "apiserver" / "admin.kubeconfig"
        self._ports = _free_ports()
        self.urls: dict[str, str] = {"prefect": f"http://127.0.0.1:{self._ports['prefect']}"} if prefect else {}

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End every process, all at once; the folder stays for whoever wants to read the logs."""
        children = list(self._children.values())[::-1]
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end()
        if self._held:
            self._held.release()
            self._held = None

    def child(self, name: str) -> Child:
        """One of the processes, to stop it or to look whether it lives."""
        return self._children[name]

    def dead(self) -> list[str]:
        """Names of processes that should live and do not."""
        return [name for name, child in self._children.items() if not child.alive]

    def restart(self, name: str) -> None:
        """End one process and start it again with the same arguments, as a crash and its supervisor would."""
        child = self._children[name]
        child.end()
        child.start()

    def start(self) -> None:
        """Start every process and wait until it serves. Raises RehearsalError; the caller then owes an `end`."""
        try:
            self._held = HeldFolder(self.folder)
            self._start()
        except (ChildError, ProgramMissingError, SeedError) as error:
            raise RehearsalError(str(error)) from None
        except FolderHeldError as error:
            raise RehearsalError(
                f"another rehearsal (process {error.pid}) runs in {self.folder};"
                f" `gameday rehearsal down --folder {shlex.quote(str(self.folder))}` ends it"
            ) from None
        except OSError as error:
            raise RehearsalError(f"the rehearsal's folder: {error.filename}: {error.strerror}") from None

    def _start(self) -> None:
        """The slowest first, and whatever needs nothing of the others beside them."""
        ports = self._ports
        api_folder = self.folder / "apiserver"
        if self._with_prefect:
            self._start_prefect(ports["prefect"])
        api = self._python("apiserver", "--port", str(ports["apiserver"]), "--data-dir", str(api_folder))
        logs = self._python("logstore", "--port", "0", "--data-dir", str(self.folder / "logstore"))
        self._start_observability(ports)
        self.urls["loki"] = logs.await_ready_line(_PYTHON_STARTS_WITHIN_S)["url"]
        self.urls["kubernetes"] = api.await_ready_line(_PYTHON_STARTS_WITHIN_S)["url"]
        nodes = self._start_nodes(ports["nodes"], api_folder)
        controllers = self._start_controllers(api_folder)
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            runner = seeder.service_account_kubeconfig("gameday-runner", self.folder / "runner.kubeconfig")
            health = seeder.service_account_kubeconfig("gameday-node-health", self.folder / "node-health.kubeconfig")
            if self.detector is not Detector.OFF:
                self._start_health(ports["health"], health)
            nodes.await_ready_line(_REGISTERED_WITHIN_S)
            controllers.await_ready_line(_PYTHON_STARTS_WITHIN_S)
            seeder.training(self.size.nodes, self.size.gpus)
        if self.detector is not Detector.OFF:
            self.child("node-health").await_ready_line(_PYTHON_STARTS_WITHIN_S)
        self._await_programs()
        self._write_profile(runner)
        self._write_state()

    def _python(self, part: str, *arguments: str, module: str | None = None) -> Child:
        module = module or f"gameday.rehearsal.{part}"
        return self._spawn(Child(part, [sys.executable, "-m", module, *arguments], self.folder / f"{part}.log"))

    def _spawn(self, child: Child) -> Child:
        self._children[child.name] = child
        child.start()
        return child

    def _start_nodes(self, port: int, api_folder: Path) -> Child:
        return self._python(
            "nodes",
            "--kubeconfig",
            str(api_folder / "nodes.kubeconfig"),
            "--nodes",
            str(self.size.nodes),
            "--gpus",
            str(self.size.gpus),
            "--loki-url",
            self.urls["loki"],
            "--port",
            str(port),
            "--state-dir",
            str(self.folder / "pods"),
        )

    def _start_controllers(self, api_folder: Path) -> Child:
        return self._python(
            "controllers",
            "--kubeconfig-scheduler",
            str(api_folder / "scheduler.kubeconfig"),
            "--kubeconfig-controllers",
            str(api_folder / "controllers.kubeconfig"),
        )

    def _start_health(self, port: int, kubeconfig: Path) -> Child:
        return self._python(
            "node-health",
            "--kubeconfig",
            str(kubeconfig),
            "--loki-url",
            self.urls["loki"],
            "--metrics-port",
            str(port),
            "--policy",
            self.detector,
            module="gameday.health",
        )

    def _start_observability(self, ports: dict[str, int]) -> None:
        jobs = scrape_jobs(
            self.size.nodes, dcgm_address=f"127.0.0.1:{ports['nodes']}", health_address=f"127.0.0.1:{ports['health']}"
        )
        for program in (
            prometheus_program(
                self.folder,
                port=ports["prometheus"],
                nodes=self.size.nodes,
                jobs=jobs,
                alertmanager_port=ports["alertmanager"],
            ),
            alertmanager_program(self.folder, port=ports["alertmanager"]),
        ):
            self._spawn(Child(program.name, program.argv, program.log_file, says_ready=False))
            self.urls[program.name] = program.ready_url.removesuffix("/-/ready")

    def _start_prefect(self, port: int) -> None:
        home = self.folder / "prefect"
        self._migrated = begin_with_template(home)
        environment = server_environment(home, port)
        log = self.folder / "prefect.log"
        self._spawn(Child("prefect", server_argv(port), log, environment, says_ready=False))

    def _await_programs(self) -> None:
        for name in ("prometheus", "alertmanager"):
            self.child(name).await_url(f"{self.urls[name]}/-/ready", _PROGRAM_STARTS_WITHIN_S)
        if self._with_prefect:
            self.child("prefect").await_url(f"{self.urls['prefect']}/api/health", _PREFECT_STARTS_WITHIN_S)
            if not self._migrated:
                keep_template(self.folder / "prefect")
        for name in self.dead():
            raise self.child(name).error("died while the others started")

    def _write_profile(self, kubeconfig: Path) -> None:
        profile: dict[str, Any] = {
            "name": "rehearsal",
            "kubeconfig": str(kubeconfig),
            "agent_image": "ghcr.io/gpu-gameday/agent:rehearsal",
            **{server: {"url": self.urls[server]} for server in ("prometheus", "alertmanager", "loki")},
        }
        with self.profile.open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(profile, file)

    def _write_state(self) -> None:
        state = {
            "pid": os.getpid(),
            "kubeconfig": str(self.admin_kubeconfig),
            "profile": str(self.profile),
            "urls": self.urls,
            "nodes": self.size.nodes,
            "gpus": self.size.gpus,
            "detector": self.detector,
        }
        (self.folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")


def _free_ports() -> dict[str, int]:
    """A loopback port for each of _PORTS; all are held until all are found, so that none is given twice."""
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.socket()) for name in _PORTS}
        for one in sockets.values():
            one.bind(("127.0.0.1", 0))
        return {name: int(one.getsockname()[1]) for name, one in sockets.items()}
