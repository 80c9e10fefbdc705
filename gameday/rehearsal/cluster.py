"""The embedded cluster as one thing to start and end: API server, nodes, controllers, logs, Prometheus, Prefect.

Everything in it but the metal is what a real cluster runs: the game-day meets
it through a kubeconfig of its own least-privilege service account and a
cluster profile, as it would any other.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from ruamel.yaml import YAML

from gameday.rehearsal.children import Child, ChildError
from gameday.rehearsal.observability import alertmanager_program, free_port, prometheus_program, scrape_jobs
from gameday.rehearsal.seed import seed, service_account_kubeconfig, start_training

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
        self._lock: IO[str] | None = None
        self.profile = self.folder / "profile.yaml"
        self.admin_kubeconfig = self.folder / "apiserver" / "admin.kubeconfig"
        self._ports = {name: free_port() for name in _PORTS}
        self.urls: dict[str, str] = {"prefect": f"http://127.0.0.1:{self._ports['prefect']}"} if prefect else {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except ChildError as error:
            self.end()
            raise RehearsalError(str(error)) from None
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
        (self.folder / "state.json").unlink(missing_ok=True)
        if self._lock:
            self._lock.close()
            self._lock = None

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

    def _start(self) -> None:
        self._take_folder()
        ports = self._ports
        api_folder = self.folder / "apiserver"
        api = self._python("apiserver", "--port", str(ports["apiserver"]), "--data-dir", str(api_folder))
        logs = self._python("logstore", "--port", "0", "--data-dir", str(self.folder / "logstore"))
        if self._with_prefect:
            self._start_prefect(ports["prefect"])
        self._start_observability(ports)
        self.urls["loki"] = logs.await_ready_line(_PYTHON_STARTS_WITHIN_S)["url"]
        self.urls["kubernetes"] = api.await_ready_line(_PYTHON_STARTS_WITHIN_S)["url"]
        seed(self.admin_kubeconfig)
        nodes = self._start_nodes(ports["nodes"], api_folder)
        controllers = self._python(
            "controllers",
            "--kubeconfig-scheduler",
            str(api_folder / "scheduler.kubeconfig"),
            "--kubeconfig-controllers",
            str(api_folder / "controllers.kubeconfig"),
        )
        runner = service_account_kubeconfig(self.admin_kubeconfig, "gameday-runner", self.folder / "runner.kubeconfig")
        nodes.await_ready_line(_REGISTERED_WITHIN_S)
        controllers.await_ready_line(_PYTHON_STARTS_WITHIN_S)
        if self.detector is not Detector.OFF:
            self._start_health(ports["health"]).await_ready_line(_PYTHON_STARTS_WITHIN_S)
        start_training(self.admin_kubeconfig, self.size.nodes, self.size.gpus)
        self._await_programs(ports)
        self._write_profile(runner)
        self._write_state()

    def _take_folder(self) -> None:
        """One rehearsal per folder; what an ended one left there is somebody's logs and is overwritten."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            self._lock = None
            raise RehearsalError(
                f"another rehearsal runs in {self.folder}; `gameday rehearsal down --folder {self.folder}` ends it"
            ) from None
        for stale in ("apiserver", "logstore", "prometheus-data", "alertmanager-data", "pods"):
            shutil.rmtree(self.folder / stale, ignore_errors=True)
        for log in self.folder.glob("*.log"):
            log.unlink()

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

    def _start_health(self, port: int) -> Child:
        kubeconfig = service_account_kubeconfig(
            self.admin_kubeconfig, "gameday-node-health", self.folder / "node-health.kubeconfig"
        )
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
            self._spawn(Child(program.name, program.argv, program.log_file))
            self.urls[program.name] = program.ready_url.removesuffix("/-/ready")

    def _start_prefect(self, port: int) -> None:
        home = self.folder / "prefect"
        home.mkdir(exist_ok=True)
        environment = {**prefect_environment(home), "PREFECT_UI_API_URL": f"http://127.0.0.1:{port}/api"}
        argv = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
        argv += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
        self._spawn(Child("prefect", argv, self.folder / "prefect.log", environment))

    def _await_programs(self, ports: dict[str, int]) -> None:
        for name in ("prometheus", "alertmanager"):
            self.child(name).await_url(f"{self.urls[name]}/-/ready", _PROGRAM_STARTS_WITHIN_S)
        if self._with_prefect:
            self.child("prefect").await_url(f"{self.urls['prefect']}/api/health", _PREFECT_STARTS_WITHIN_S)

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
        (self.folder / "state.json").write_text(json.dumps(state, indent=1), encoding="utf-8")


def prefect_environment(home: Path) -> dict[str, str]:
    """Prefect on its own SQLite in `home`, quiet: no telemetry, no banners, no tracebacks of what a run's own history
    already says."""
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
