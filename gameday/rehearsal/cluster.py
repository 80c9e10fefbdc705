"""The embedded cluster as one thing to start and end: API server, nodes, controllers, logs, Prometheus, Prefect.

Everything in it but the metal is what a real cluster runs: the game-day meets
it through a kubeconfig of its own least-privilege service account and a
cluster profile, as it would any other.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from ruamel.yaml import YAML

from gameday.cluster.lab_control import SOCKET
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.virtual_cluster import ENDED
from gameday.detectors.models import DetectorProfile
from gameday.errors import ChildError
from gameday.faults.registry import parameter_models
from gameday.guests.load import LoadedGuest
from gameday.guests.order import GuestOrder
from gameday.plan.rehearsal import LabComponent
from gameday.rehearsal.children import Child
from gameday.rehearsal.folder import STATE, HeldFolder
from gameday.rehearsal.lab.programs import find_balancer, find_programs, find_topology_scheduler
from gameday.rehearsal.lab.settings import STOCK, LabSettings
from gameday.rehearsal.lab.status import ready_urls
from gameday.rehearsal.lease_duration import monitor_grace_s
from gameday.rehearsal.nodes.exporter_release import ExporterRelease
from gameday.rehearsal.nodes.gpu_operator import RUNTIME_CLASS, GpuOperator
from gameday.rehearsal.observability import (
    ComponentJob,
    Credentials,
    ScrapeJob,
    alertmanager_program,
    component_jobs,
    control_plane_rules,
    node_rules,
    prometheus_program,
    scrape_jobs,
)
from gameday.rehearsal.ports import HeldPorts, start_on_free_ports
from gameday.rehearsal.prefect_server import (
    begin_with_template,
    keep_template,
    prefect_environment,
    server_argv,
    server_environment,
)
from gameday.rehearsal.scrape_pace import LARGE
from gameday.rehearsal.seed import Seeder, seeding
from gameday.rehearsal.slow_gpus import SlowGpu
from gameday.rehearsal.startup import start_errors
from gameday.rehearsal.watch import check_memory

_PORTS = (
    "nodes",
    "health",
    "repair",
    "prometheus",
    "alertmanager",
    "prefect",
    "apiserver",
    "logstore",
    "kube-state-metrics",
    "kube-state-metrics-itself",
)
_KUBE_STATE_METRICS = "kube-state-metrics"
"""The real program's name, and the name of whichever process takes its part."""
_OFFENDER = "gpu-node-2"
"""The repeat offender: the first node without the log store."""
_WEAKLY_COOLED = "gpu-node-1"
"""The node whose last GPU gets too little air, where there is one."""


class ControlPlane(StrEnum):
    """The control plane (API server, scheduler, controllers) that the nodes join."""

    EMBEDDED = "embedded"
    """Our own stand-in, which starts in a second and needs nothing installed."""
    LAB = "lab"
    """Kubernetes' own programs and etcd, as `make lab` builds them."""


class Detector(StrEnum):
    """The detector that watches the rehearsal's kernel logs."""

    DEFAULT = "default"
    KONDUKTOR = "konduktor"
    """Konduktor as released: our controller under its policy takes its part. It has no metrics, so none are scraped."""
    CONSERVATIVE = "conservative"
    OFF = "off"


@dataclass(frozen=True)
class Size:
    nodes: int = 8
    gpus: int = 8
    spare: int = 0
    """Number of nodes that are left free of training work, so that pods that many game-days evict together find
    room."""
    hold_outs: int = 0
    """Number of the nodes that are spares of the hold-out pool."""
    client_nodes: int = 0
    """Number of nodes without GPUs besides, for API clients."""
    offender: bool = False
    """True for a cluster with a node that was repaired and returned again and again within a day."""
    weakly_cooled: bool = False
    """True for a cluster with a node whose last GPU gets too little air for full load."""
    slow_gpus: tuple[SlowGpu, ...] = ()
    """GPUs that compute more slowly than the others."""
    gpu_classes: bool = False
    """True for a cluster whose nodes have labels of GPU classes: the last quarter is fast, the first node slow."""


class RehearsalCluster:
    """A rehearsal's cluster for the length of a block; `profile` and `admin_kubeconfig` are in its folder."""

    def __init__(
        self,
        folder: Path,
        size: Size,
        detector: Detector,
        *,
        control_plane: ControlPlane = ControlPlane.EMBEDDED,
        lab: LabSettings = STOCK,
        prefect: bool = True,
        fake_detector: DetectorProfile | None = None,
        repair: bool = False,
        exporter: ExporterRelease = ExporterRelease.CODED,
        kernel_logs: Path | None = None,
        guest: LoadedGuest | None = None,
        kube_state_metrics: bool | None = None,
        gpu_operator: GpuOperator = GpuOperator.NONE,
    ) -> None:
        """Prepare the cluster; nothing is started yet.

        Args:
            folder: Kubeconfigs, profiles, logs.
            size: Nodes and GPUs.
            detector: The policy of our node-health controller.
            control_plane: The API server, scheduler and controllers.
            lab: The settings of `ControlPlane.LAB`.
            prefect: Start a Prefect server.
            fake_detector: The profile of a foreign detector, which a stand-in plays beside `detector`.
            repair: Repair quarantined nodes and give them back, by our repairer (which needs Prefect) or by the
                stand-in.
            exporter: The release of dcgm-exporter that the nodes' metrics are written like.
            kernel_logs: The folder that gets each node's kernel log and GPUs as files; None: nobody needs them.
            guest: The real detector that watches, beside `detector`.
            kube_state_metrics: Scrape kube-state-metrics; None: where a detector other than ours watches, whose work
                no other metrics show.
            gpu_operator: How containers come by GPUs, and whether the GPU operator's pods keep GPUs open.
        """
        self.folder = folder.resolve()
        self.size = size
        self.detector = detector
        self.control_plane = control_plane
        self._lab = lab.for_nodes(size.nodes + size.client_nodes)
        self._with_prefect = prefect
        self._fake_detector = fake_detector
        self._with_repair = repair
        self._exporter = exporter
        self._guest = guest
        foreign = bool(guest or fake_detector) or detector is Detector.KONDUKTOR
        self._has_other_detector = foreign and detector in (Detector.KONDUKTOR, Detector.OFF)
        self._with_kube_state_metrics = foreign if kube_state_metrics is None else kube_state_metrics
        self._gpu_operator = gpu_operator
        self._children: dict[str, Child] = {}
        self._held: HeldFolder | None = None
        self._is_up = False
        self._migrated = True
        self.profile = self.folder / "profile.yaml"
        self._kernel_logs = kernel_logs or (self.folder / "kernel-logs" if guest else None)
        self._credentials = self.folder / "control-plane"
        self._detector_profiles = self.folder / "detectors"
        self._kube_state_metrics = shutil.which(_KUBE_STATE_METRICS)
        self.admin_kubeconfig = self._credentials / "admin.kubeconfig"
        self.urls: dict[str, str] = {}
        self._held_ports = self._choose_ports()

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
        """End every process, all together; the folder stays, with the logs."""
        self._is_up = False
        self._end_children()
        self._held_ports.release()
        if self._held:
            self._held.release()
            self._held = None

    def _end_children(self) -> None:
        children = list(self._children.values())[::-1]
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end()

    def child(self, name: str) -> Child:
        """Return one of the processes, to stop it or to look whether it lives."""
        return self._children[name]

    def dead(self) -> list[str]:
        """Return the names of processes that should live and do not."""
        return [name for name, child in self._children.items() if not child.alive]

    def check(self) -> None:
        """Raise MemoryShortError or ChildError where the cluster, which starts or runs, must not go on."""
        if self._held is None:
            return
        check_memory()
        if self._is_up:
            for name in self.dead():
                if name != "prefect":
                    raise self._died(self.child(name))

    def _died(self, child: Child) -> ChildError:
        error = child.error("died")
        if child.process is None or child.process.returncode != -signal.SIGKILL:
            return error
        return ChildError(f"{error}; the kernel kills like this where memory runs out: journalctl -k | grep oom")

    def kill(self, why: str) -> None:
        """End every process by force but Prefect's server, and leave word for the game-days on this cluster.

        A game-day that ends reports its state to Prefect.
        """
        (self.folder / ENDED).write_text(why, encoding="utf-8")
        for name, child in list(self._children.items()):
            if name != "prefect":
                child.kill()

    def restart(self, name: str) -> None:
        """End one process and start it again with the same arguments, as a crash and its supervisor would."""
        child = self._children[name]
        child.end()
        child.start()

    def start(self) -> None:
        """Start every process and wait until it serves. Raises StartError; the caller then owes an `end`."""
        with start_errors(self.folder, "rehearsal", holder="another rehearsal", about_files="the rehearsal's folder: "):
            self._held = HeldFolder(self.folder)
            start_on_free_ports(self._start, self._any_wrote, self._start_over)
            self._is_up = True

    def _choose_ports(self) -> HeldPorts:
        held = HeldPorts(len(_PORTS))
        self._ports = dict(zip(_PORTS, held.numbers, strict=True))
        if self._with_prefect:
            self.urls["prefect"] = f"http://127.0.0.1:{self._ports['prefect']}"
        return held

    def _any_wrote(self, words: str) -> bool:
        return any(child.wrote(words) for child in self._children.values())

    def _start_over(self) -> None:
        self._end_children()
        self._children.clear()
        self._held_ports.release()
        self._held_ports = self._choose_ports()
        if self._held:
            self._held.empty()

    def _start(self) -> None:
        """The slowest first, and whatever needs nothing of the others beside them."""
        ports = self._ports
        if self._with_prefect:
            self._start_prefect(ports["prefect"])
        api = self._start_api(ports["apiserver"])
        arguments = ("--port", str(ports["logstore"]), "--data-dir", str(self.folder / "logstore"))
        logs = self._python("logstore", *arguments)
        self.urls["loki"] = logs.await_ready_line()["url"]
        self.urls["kubernetes"] = api.await_ready_line()["url"]
        self._start_observability(ports)
        order = self._write_guest(self._guest) if self._guest else None
        nodes = self._start_nodes(ports["nodes"], order)
        # The lab's own controllers run by now.
        controllers = self._start_controllers() if self.control_plane is ControlPlane.EMBEDDED else None
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            if self.size.client_nodes:
                seeder.control_plane_rights()
            if self.control_plane is ControlPlane.LAB:
                seeder.objects_of_the_lab(self._gpu_operator, dra=self._lab.dra)
            runner = seeder.service_account_kubeconfig("gameday-runner", self.folder / "runner.kubeconfig")
            health = seeder.service_account_kubeconfig("gameday-node-health", self.folder / "node-health.kubeconfig")
            repairer = seeder.service_account_kubeconfig("gameday-repair", self.folder / "repair.kubeconfig")
            if self.detector is not Detector.OFF:
                self._start_health(ports["health"], health)
            self._start_kube_state_metrics(seeder)
            fake_detector = self._start_fake_detector(seeder, ports["nodes"])
            nodes.await_ready_line()
            if controllers:
                controllers.await_ready_line()
            seeder.await_schedulable(self.size.nodes + self.size.client_nodes)
            seeder.components(self.size.nodes, self.size.gpus, self._gpu_operator, self._quarantine_keys())
            self._mark_nodes(seeder)
            trained = self.size.nodes - self.size.spare - self.size.hold_outs
            jobs = seeder.training(trained, self.size.gpus, dra=self._lab.dra)
            if self.size.nodes > LARGE:
                seeder.await_training(jobs)  # its start keeps the nodes' process busy for a minute
        if self.detector is not Detector.OFF:
            self.child("node-health").await_ready_line()
        if fake_detector:
            fake_detector.await_ready_line()
        self._await_programs()
        self._write_profile(self.profile, runner)
        if self._has_repairer:
            self._start_repair(ports["repair"], repairer)
        self._write_state()

    @property
    def _has_repairer(self) -> bool:
        """True where our own repairer runs; a stand-in repairs by itself."""
        return self._with_repair and self.detector is not Detector.OFF

    def _python(self, part: str, *arguments: str, module: str | None = None) -> Child:
        module = module or f"gameday.rehearsal.{part}"
        return self._spawn(Child(part, [sys.executable, "-m", module, *arguments], self.folder / f"{part}.log"))

    def _spawn(self, child: Child) -> Child:
        self._children[child.name] = child
        child.start()
        return child

    def _start_api(self, port: int) -> Child:
        """The process that says it is ready once an API server answers; both kinds leave the same kubeconfigs."""
        if self.control_plane is ControlPlane.LAB:
            programs = find_programs()  # fails here with its own message, which the exit of the process would hide
            if self._lab.has_balancer:
                find_balancer()
            if self._lab.topology:
                find_topology_scheduler(programs[LabComponent.API_SERVER])
            settings = self._lab.model_dump_json(exclude_defaults=True)
            return self._python("lab", "--data-dir", str(self._credentials), "--settings", settings)
        arguments = ["--port", str(port), "--data-dir", str(self._credentials)]
        arguments += [f"--runtime-class={name}" for name in self._gpu_operator.runtime_classes]
        return self._python("apiserver", *arguments, module="kubesim.apiserver")

    @property
    def _lab_control(self) -> Path | None:
        """The lab's control socket; None where the control plane is another one."""
        return self._credentials / SOCKET if self.control_plane is ControlPlane.LAB else None

    def _write_guest(self, loaded: LoadedGuest) -> Path:
        """Give the guest its account, and write what the nodes start it by."""
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            kubeconfig = seeder.guest_kubeconfig(self.folder / "guest.kubeconfig")
        self.urls["guests"] = f"http://127.0.0.1:{self._ports['nodes']}/guests"
        outputs = self.folder / "guests"
        outputs.mkdir(mode=0o700)
        order = GuestOrder(
            guest=loaded.guest,
            folder=loaded.folder,
            outputs=outputs,
            kubeconfig=kubeconfig,
            loki_url=self.urls["loki"],
            prometheus_url=self.urls["prometheus"],
        )
        file = outputs / "guest.json"
        file.write_text(order.model_dump_json(indent=1), encoding="utf-8")
        return file

    def _mark_nodes(self, seeder: Seeder) -> None:
        """Give the nodes with a past or a weakness the labels by which plans choose them. Raises SeedError."""
        if self.size.offender:
            seeder.repeat_offender(_OFFENDER)
        if self.size.weakly_cooled:
            seeder.weakly_cooled(_WEAKLY_COOLED)
        if self.size.gpu_classes:
            seeder.gpu_classes(self.size.nodes)

    def _start_nodes(self, port: int, guest: Path | None) -> Child:
        return self._python(
            "nodes",
            "--kubeconfig",
            str(self._credentials / "nodes.kubeconfig"),
            "--tls-folder",
            str(self._credentials),
            "--nodes",
            str(self.size.nodes),
            "--gpus",
            str(self.size.gpus),
            "--hold-outs",
            str(self.size.hold_outs),
            "--client-nodes",
            str(self.size.client_nodes),
            "--loki-url",
            self.urls["loki"],
            "--log-store-pid",
            str(self.folder / "logstore" / "pid"),
            "--port",
            str(port),
            "--state-dir",
            str(self.folder / "pods"),
            "--exporter",
            self._exporter,
            "--gpu-operator",
            self._gpu_operator,
            *(("--weakly-cooled", _WEAKLY_COOLED) if self.size.weakly_cooled else ()),
            *(word for slow in self.size.slow_gpus for word in ("--slow-gpu", str(slow))),
            *(("--guest", str(guest)) if guest else ()),
            *(("--kernel-logs", str(self._kernel_logs.resolve())) if self._kernel_logs else ()),
            *self._lab.node_arguments(),
            *(("--lab-control", str(self._lab_control)) if self._lab_control else ()),
        )

    def _start_controllers(self) -> Child:
        return self._python(
            "controllers",
            "--kubeconfig-scheduler",
            str(self._credentials / "scheduler.kubeconfig"),
            "--kubeconfig-controllers",
            str(self._credentials / "controllers.kubeconfig"),
            "--node-monitor-grace",
            str(monitor_grace_s(self.size.nodes + self.size.client_nodes)),
            module="kubesim.controllers",
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

    def _start_kube_state_metrics(self, seeder: Seeder) -> None:
        """Start the real program where PATH has it, else the stand-in; neither where nobody scrapes it."""
        if not self._with_kube_state_metrics:
            return
        kubeconfig = seeder.kube_state_metrics_kubeconfig(self.folder / f"{_KUBE_STATE_METRICS}.kubeconfig")
        port = self._ports[_KUBE_STATE_METRICS]
        self.urls[_KUBE_STATE_METRICS] = f"http://127.0.0.1:{port}/metrics"
        if program := self._kube_state_metrics:
            itself = self._ports["kube-state-metrics-itself"]
            argv = [program, "--resources=nodes", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"]
            argv += [f"--telemetry-port={itself}"]
        else:
            argv = [sys.executable, "-m", "gameday.rehearsal.kube_state_metrics"]
        argv += [f"--kubeconfig={kubeconfig}", f"--port={port}"]
        self._spawn(Child(_KUBE_STATE_METRICS, argv, self.folder / f"{_KUBE_STATE_METRICS}.log", says_ready=False))

    def _start_repair(self, port: int, kubeconfig: Path) -> None:
        profile = self.folder / "repair-profile.yaml"
        self._write_profile(profile, kubeconfig)
        arguments = ("health", "repair", "--profile", str(profile), "--metrics-port", str(port))
        argv = [sys.executable, "-m", "gameday.cli", *arguments]
        home = self.folder / "prefect-repair"
        home.mkdir(exist_ok=True)
        environment = {**prefect_environment(home), "PREFECT_API_URL": f"{self.urls['prefect']}/api"}
        self._spawn(Child("repair", argv, self.folder / "repair.log", environment)).await_ready_line()

    def _start_fake_detector(self, seeder: Seeder, nodes_port: int) -> Child | None:
        """Start the fake detector; None also for one whose part the virtual nodes play, as the device plugin's."""
        if self._fake_detector is None:
            return None
        profile = self._detector_profiles / f"{self._fake_detector.name}.yaml"
        profile.parent.mkdir()
        with profile.open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(self._fake_detector.model_dump(mode="json", exclude_unset=True), file)
        if not {"kernel log", "DCGM"} & set(self._fake_detector.reads):
            return None
        kubeconfig = seeder.fake_detector_kubeconfig(self.folder / "stand-in.kubeconfig")
        return self._python(
            "fake_detector",
            "--profile",
            str(profile),
            "--kubeconfig",
            str(kubeconfig),
            "--loki-url",
            self.urls["loki"],
            "--nodes-url",
            f"http://127.0.0.1:{nodes_port}",
            *(["--repair"] if self._with_repair else []),
        )

    def _start_observability(self, ports: dict[str, int]) -> None:
        jobs: list[ScrapeJob | ComponentJob] = [
            *scrape_jobs(
                self.size.nodes,
                dcgm_address=f"127.0.0.1:{ports['nodes']}",
                health_address=f"127.0.0.1:{ports['health']}" if self.detector is not Detector.KONDUKTOR else None,
                repair_address=f"127.0.0.1:{ports['repair']}" if self._has_repairer else None,
                kube_state_metrics=f"127.0.0.1:{ports[_KUBE_STATE_METRICS]}" if self._with_kube_state_metrics else None,
            ),
            *(self._component_jobs() if self.control_plane is ControlPlane.LAB else ()),
        ]
        for program in (
            prometheus_program(
                self.folder,
                port=ports["prometheus"],
                nodes=self.size.nodes,
                jobs=jobs,
                alertmanager_port=ports["alertmanager"],
                rule_files=(
                    node_rules(self.folder, has_controller=not self._has_other_detector),
                    control_plane_rules(self.folder, self._lab.api_server_memory),
                ),
            ),
            alertmanager_program(self.folder, port=ports["alertmanager"]),
        ):
            self._spawn(Child(program.name, program.argv, program.log_file, says_ready=False))
            self.urls[program.name] = program.ready_url.removesuffix("/-/ready")

    def _component_jobs(self) -> tuple[ComponentJob, ...]:
        """Return the scrape jobs of the lab's components, which have their ports and certificates by now."""
        folder = self._credentials
        servers = {name: urlsplit(url).netloc for name, url in ready_urls(folder).items()}
        files = (folder / "ca.crt", folder / "prometheus-client.crt", folder / "prometheus-client.key")
        return component_jobs(servers, Credentials(*files))

    def _start_prefect(self, port: int) -> None:
        home = self.folder / "prefect"
        self._migrated = begin_with_template(home)
        environment = server_environment(home, port)
        log = self.folder / "prefect.log"
        self._spawn(Child("prefect", server_argv(port), log, environment, says_ready=False))

    def _await_programs(self) -> None:
        for name in ("prometheus", "alertmanager"):
            self.child(name).await_url(f"{self.urls[name]}/-/ready")
        if self._with_kube_state_metrics:
            self.child(_KUBE_STATE_METRICS).await_url(self.urls[_KUBE_STATE_METRICS])
        if self._with_prefect:
            self.child("prefect").await_url(f"{self.urls['prefect']}/api/health")
            if not self._migrated:
                keep_template(self.folder / "prefect")
        for name in self.dead():
            raise self.child(name).error("died while the others started")

    def _write_profile(self, path: Path, kubeconfig: Path) -> None:
        name = "lab" if self.control_plane is ControlPlane.LAB else "rehearsal"
        profile: dict[str, Any] = {
            "name": name,
            # Its UID and its port are new each time; its runs are to be compared all the same.
            "identity": f"gameday-{name}",
            "rehearsal": str(self.folder),
            "kubeconfig": str(kubeconfig),
            # No fault can do harm in a rehearsal.
            "allow_dangerous": sorted(parameter_models()),
            "agent_image": "ghcr.io/gpu-gameday/agent:rehearsal",
            "quarantine_taint_keys": self._quarantine_keys(),
            "prometheus_node_label": self._exporter.node_label,
            **{server: {"url": self.urls[server]} for server in ("prometheus", "alertmanager", "loki")},
        }
        if self._gpu_operator.runtime_classes:
            profile["agent_runtime_class"] = RUNTIME_CLASS
        if self._lab_control:
            profile["lab_control"] = str(self._lab_control)
        if self._guest:
            shown = self._guest.guest.model_dump(include={"name", "version", "says"})
            profile["guest"] = {**shown, "url": self.urls["guests"]}
            if self._guest.profile:
                profile["detector"] = str(self._guest.profile_file or self._guest.profile.name)
        elif self._fake_detector:
            profile["detector"] = self._fake_detector.name
            profile["detector_profiles"] = [str(self._detector_profiles)]
        elif self.detector is Detector.KONDUKTOR:
            profile["detector"] = "konduktor"
        if self._lab.api_server_memory:
            # An API server that is killed for its memory fails our own requests, too. A real cluster is spared that by
            # this limit; here it is what the plan wants to see.
            profile["guardrails"] = {"max_api_error_percent": 100}
        with path.open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(profile, file)

    @property
    def _watcher(self) -> str:
        """The detector in words."""
        if self._guest:
            return f"{self._guest.guest.name} (guest)"
        return f"{self._fake_detector.name} (stand-in)" if self._fake_detector else self.detector

    def _quarantine_keys(self) -> list[str]:
        own: tuple[str, ...] = ClusterProfile.model_fields["quarantine_taint_keys"].default
        foreign = self._guest.profile if self._guest else self._fake_detector
        rules = foreign.rules if foreign else ()
        return list(dict.fromkeys((*own, *(taint.key for rule in rules for taint in rule.taints))))

    def _write_state(self) -> None:
        state = {
            "pid": os.getpid(),
            "kubeconfig": str(self.admin_kubeconfig),
            "profile": str(self.profile),
            "urls": self.urls,
            "nodes": self.size.nodes,
            "gpus": self.size.gpus,
            "detector": self._watcher,
            "control_plane": self.control_plane,
            "kube_state_metrics": (self._kube_state_metrics or "stand-in") if self._with_kube_state_metrics else None,
            "gpu_operator": self._gpu_operator,
        }
        (self.folder / STATE).write_text(json.dumps(state, indent=1), encoding="utf-8")
