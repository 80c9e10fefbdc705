"""The command lines of the programs of a rehearsal's cluster. Nothing is started here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gameday.plan.rehearsal import LabComponent
from gameday.processes.children import Child
from gameday.processes.prefect_server import (
    prefect_environment,
    server_argv,
    server_environment,
)
from gameday_rehearsal.blueprint import WEAKLY_COOLED, Blueprint, ControlPlane, Detector
from gameday_rehearsal.lab.programs import find_balancer, find_programs, find_topology_scheduler
from gameday_rehearsal.lab.status import ready_urls
from gameday_rehearsal.lease_duration import monitor_grace_s
from gameday_rehearsal.observability import (
    ComponentJob,
    Credentials,
    Program,
    alertmanager_program,
    component_jobs,
    control_plane_rules,
    node_rules,
    prometheus_program,
    scrape_jobs,
)
from gameday_rehearsal.session_token import TOKEN_VARIABLE, new_token

PORTS = (
    "prefect",  # first, because only it may ask for a number
    "nodes",
    "health",
    "repair",
    "prometheus",
    "alertmanager",
    "apiserver",
    "logstore",
    "kube-state-metrics",
    "kube-state-metrics-itself",
)
"""The names of the ports on which the programs listen."""
KUBE_STATE_METRICS = "kube-state-metrics"
"""Name of the real program, and of its stand-in."""


class CommandLines:
    """The command lines of one cluster's programs."""

    def __init__(self, blueprint: Blueprint, ports: Mapping[str, int]) -> None:
        """Take the cluster's choices, and the numbers of `PORTS` by name."""
        self._blueprint = blueprint
        self._ports = ports
        self._token = {TOKEN_VARIABLE: new_token()}

    def prefect(self, password: str) -> Child:
        """Return Prefect's server, with its data in the folder `prefect` and this password."""
        folder, port = self._blueprint.folder, self._ports["prefect"]
        environment = server_environment(port, password, folder / "prefect")
        return Child("prefect", server_argv(port), folder / "prefect.log", environment, says_ready=False)

    def control_plane(self) -> Child:
        """Return the process that reports ready once an API server answers; both kinds leave the same kubeconfigs.

        Raises ProgramMissingError if the lab's programs are not built.
        """
        blueprint = self._blueprint
        if blueprint.control_plane is ControlPlane.LAB:
            programs = find_programs()  # fails here with its own message, which the exit of the process would hide
            if blueprint.lab.has_balancer:
                find_balancer()
            if blueprint.lab.topology:
                find_topology_scheduler(programs[LabComponent.API_SERVER])
            settings = blueprint.lab.model_dump_json(exclude_defaults=True)
            return self._python("lab", "--data-dir", str(blueprint.credentials), "--settings", settings)
        arguments = ["--port", str(self._ports["apiserver"]), "--data-dir", str(blueprint.credentials)]
        arguments += [f"--runtime-class={name}" for name in blueprint.gpu_operator.runtime_classes]
        return self._python("apiserver", *arguments, module="kubesim.apiserver")

    def log_store(self) -> Child:
        """Return the store of the nodes' kernel logs."""
        data = self._blueprint.folder / "logstore"
        return self._python(
            "logstore", "--port", str(self._ports["logstore"]), "--data-dir", str(data), env=self._token
        )

    def observability(self) -> tuple[Program, ...]:
        """Write configurations for Prometheus and Alertmanager, and a password for the latter; return both programs.

        The lab's components have their ports and certificates by now. Raises ProgramMissingError, or OSError if the
        folder cannot be written.
        """
        blueprint, ports = self._blueprint, self._ports
        folder, nodes = blueprint.folder, blueprint.size.nodes
        prometheus = prometheus_program(
            folder,
            port=ports["prometheus"],
            nodes=nodes,
            jobs=[
                *scrape_jobs(
                    nodes,
                    dcgm_address=self._address("nodes"),
                    interfaces=blueprint.this_machine is None,
                    health_address=self._address("health") if blueprint.detector is not Detector.KONDUKTOR else None,
                    repair_address=self._address("repair") if blueprint.has_repairer else None,
                    kube_state_metrics=self._address(KUBE_STATE_METRICS) if blueprint.has_kube_state_metrics else None,
                ),
                *(self._component_jobs() if blueprint.control_plane is ControlPlane.LAB else ()),
            ],
            alertmanager_port=ports["alertmanager"],
            alertmanager_password=blueprint.alertmanager_password_file,
            rule_files=(
                node_rules(folder, has_controller=not blueprint.has_other_detector),
                control_plane_rules(folder, blueprint.lab.api_server_memory),
            ),
        )
        password = new_token()
        blueprint.alertmanager_password_file.write_text(password, encoding="ascii")
        return prometheus, alertmanager_program(folder, port=ports["alertmanager"], password=password)

    def _component_jobs(self) -> tuple[ComponentJob, ...]:
        folder = self._blueprint.credentials
        servers = {name: urlsplit(url).netloc for name, url in ready_urls(folder).items()}
        files = (folder / "ca.crt", folder / "prometheus-client.crt", folder / "prometheus-client.key")
        return component_jobs(servers, Credentials(*files))

    def this_machine(self, loki_url: str, *, lets_go: bool) -> Child:
        """Return the process that makes this machine a node; `lets_go`: it holds NVML open only while it reads."""
        blueprint = self._blueprint
        return self._python(
            "nodes",
            *("--kubeconfig", str(blueprint.credentials / "nodes.kubeconfig")),
            *("--tls-folder", str(blueprint.credentials)),
            *("--loki-url", loki_url),
            *("--port", str(self._ports["nodes"])),
            *("--state-dir", str(blueprint.folder / "pods")),
            *("--exporter", blueprint.exporter),
            *(("--lets-go",) if lets_go else ()),
            module="gameday_rehearsal.this_machine",
            env=self._token,
        )

    def nodes(self, loki_url: str, guest: Path | None) -> Child:
        """Return the virtual nodes.

        Args:
            loki_url: The log store.
            guest: The file with which they start a guest; None if there is no guest.
        """
        blueprint, size = self._blueprint, self._blueprint.size
        return self._python(
            "nodes",
            "--kubeconfig",
            str(blueprint.credentials / "nodes.kubeconfig"),
            "--tls-folder",
            str(blueprint.credentials),
            "--nodes",
            str(size.nodes),
            "--gpus",
            str(size.gpus),
            "--hold-outs",
            str(size.hold_outs),
            "--client-nodes",
            str(size.client_nodes),
            "--loki-url",
            loki_url,
            "--log-store-pid",
            str(blueprint.folder / "logstore" / "pid"),
            "--port",
            str(self._ports["nodes"]),
            "--state-dir",
            str(blueprint.folder / "pods"),
            "--exporter",
            blueprint.exporter,
            "--gpu-operator",
            blueprint.gpu_operator,
            *(("--weakly-cooled", WEAKLY_COOLED) if size.weakly_cooled else ()),
            *(word for slow in size.slow_gpus for word in ("--slow-gpu", str(slow))),
            *(("--guest", str(guest)) if guest else ()),
            *(("--kernel-logs", str(logs.resolve())) if (logs := blueprint.kernel_log_folder) else ()),
            *blueprint.lab.node_arguments(),
            *(("--lab-control", str(blueprint.lab_control)) if blueprint.lab_control else ()),
            env=self._token,
        )

    def controllers(self) -> Child:
        """Return the embedded control plane's scheduler and controllers; the lab has its own."""
        credentials = self._blueprint.credentials
        return self._python(
            "controllers",
            "--kubeconfig-scheduler",
            str(credentials / "scheduler.kubeconfig"),
            "--kubeconfig-controllers",
            str(credentials / "controllers.kubeconfig"),
            "--node-monitor-grace",
            str(monitor_grace_s(self._blueprint.size.all_nodes)),
            module="kubesim.controllers",
        )

    def node_health(self, kubeconfig: Path, loki_url: str) -> Child:
        """Return our node-health controller, with its account and the log store that it reads."""
        return self._python(
            "node-health",
            "--kubeconfig",
            str(kubeconfig),
            "--loki-url",
            loki_url,
            "--metrics-port",
            str(self._ports["health"]),
            "--policy",
            self._blueprint.detector,
            module="gameday_health",
        )

    def kube_state_metrics(self, program: str | None, kubeconfig: Path) -> Child:
        """Return the real program under its account, or the stand-in if `program` is None."""
        if program:
            argv = [program, "--resources=nodes", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"]
            argv += [f"--telemetry-port={self._ports['kube-state-metrics-itself']}"]
        else:
            argv = [sys.executable, "-m", "gameday_rehearsal.kube_state_metrics"]
        argv += [f"--kubeconfig={kubeconfig}", f"--port={self._ports[KUBE_STATE_METRICS]}"]
        log = self._blueprint.folder / f"{KUBE_STATE_METRICS}.log"
        return Child(KUBE_STATE_METRICS, argv, log, says_ready=False)

    def fake_detector(self, profile: Path, kubeconfig: Path, loki_url: str) -> Child:
        """Return the stand-in for a foreign detector.

        Args:
            profile: The file of the detector's profile.
            kubeconfig: The stand-in's account.
            loki_url: The log store that it reads.
        """
        return self._python(
            "fake_detector",
            "--profile",
            str(profile),
            "--kubeconfig",
            str(kubeconfig),
            "--loki-url",
            loki_url,
            "--nodes-url",
            f"http://{self._address('nodes')}",
            *(["--repair"] if self._blueprint.repair else []),
            env=self._token,
        )

    def repair(self, profile: Path, prefect: Mapping[str, str]) -> Child:
        """Make the home of our repairer and return the repairer.

        Args:
            profile: A cluster profile with the repairer's account.
            prefect: Environment of a client of the Prefect server that it reports to.
        """
        folder = self._blueprint.folder
        arguments = ("health", "repair", "--profile", str(profile), "--metrics-port", str(self._ports["repair"]))
        home = folder / "prefect-repair"
        home.mkdir(exist_ok=True)
        environment = {**prefect_environment(home), **prefect}
        return Child("repair", [sys.executable, "-m", "gameday.cli", *arguments], folder / "repair.log", environment)

    def _python(
        self, part: str, *arguments: str, module: str | None = None, env: Mapping[str, str] | None = None
    ) -> Child:
        module = module or f"gameday_rehearsal.{part}"
        log = self._blueprint.folder / f"{part}.log"
        return Child(part, [sys.executable, "-m", module, *arguments], log, env)

    def _address(self, port: str) -> str:
        return f"127.0.0.1:{self._ports[port]}"
