"""The embedded cluster as one thing to start and end: API server, nodes, controllers, logs, Prometheus, Prefect.

Everything except the hardware is what a real cluster runs. A game-day reaches it like any other cluster, by a
cluster profile and a kubeconfig of its own least-privilege service account.
"""

from __future__ import annotations

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from gameday.cluster.virtual_cluster import ENDED
from gameday.detectors.models import DetectorProfile
from gameday.errors import ChildError
from gameday.processes.children import Child, private_files
from gameday.processes.ports import HeldPorts, start_on_free_ports
from gameday.processes.prefect_server import (
    AUTH_FILE,
    await_prefect,
    begin_with_template,
    client_environment,
    keep_template,
    new_password,
)
from gameday_rehearsal.blueprint import OFFENDER, WEAKLY_COOLED, Blueprint, ControlPlane
from gameday_rehearsal.cluster_files import write_detector_profile, write_guest_order, write_profile, write_state
from gameday_rehearsal.command_lines import KUBE_STATE_METRICS, PORTS, CommandLines
from gameday_rehearsal.folder import HeldFolder
from gameday_rehearsal.guests.load import LoadedGuest
from gameday_rehearsal.observability import ALERTMANAGER_USER
from gameday_rehearsal.scrape_pace import LARGE
from gameday_rehearsal.seed import Seeder, seeding
from gameday_rehearsal.startup import start_errors
from gameday_rehearsal.this_machine import NODE
from gameday_rehearsal.watch import check_memory


class RehearsalCluster:
    """A rehearsal's cluster for the length of a block; `profile` and `admin_kubeconfig` are in its folder."""

    def __init__(self, blueprint: Blueprint) -> None:
        """Prepare the cluster; nothing is started yet. Raises StartError if no port is free."""
        lab = blueprint.lab.for_nodes(blueprint.size.all_nodes)
        self._blueprint = replace(blueprint, folder=blueprint.folder.resolve(), lab=lab)
        self.folder = self._blueprint.folder
        self.size = blueprint.size
        self.profile = self._blueprint.profile
        self.admin_kubeconfig = self._blueprint.admin_kubeconfig
        self.urls: dict[str, str] = {}
        self.prefect_password = new_password()
        self.prefect_password_file = self.folder / AUTH_FILE
        self.alertmanager_password_file = self._blueprint.alertmanager_password_file
        self._children: dict[str, Child] = {}
        self._held: HeldFolder | None = None
        self._is_up = False
        self._migrated = True
        self._kube_state_metrics = shutil.which(KUBE_STATE_METRICS)
        self._held_ports = self._choose_ports()

    @property
    def description(self) -> str:
        """The cluster in words."""
        if self._blueprint.this_machine:
            return f"a cluster around this machine, its node {NODE}"
        return f"a cluster of {self.size.nodes} virtual nodes with {self.size.gpus} GPUs each"

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
        """Return one of the processes, to stop it or to see whether it is alive."""
        return self._children[name]

    def dead(self) -> list[str]:
        """Return the names of processes that should be alive and are not."""
        return [name for name, child in self._children.items() if not child.alive]

    def check(self) -> None:
        """Raise MemoryShortError or ChildError if the cluster, starting or running, cannot go on."""
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
        """Kill every process except Prefect's server, and leave the reason for the game-days on this cluster.

        Prefect's server stays because a game-day that ends reports its state to it.
        """
        (self.folder / ENDED).write_text(why, encoding="utf-8")
        for name, child in list(self._children.items()):
            if name != "prefect":
                child.kill()

    def restart(self, name: str) -> None:
        """End one process and start it again with the same arguments, as its supervisor would after a crash."""
        child = self._children[name]
        child.end()
        child.start()

    def start(self) -> None:
        """Start every process and wait until it serves. Raises StartError; the caller must then call `end`."""
        about_files = "the rehearsal's folder: "
        errors = start_errors(self.folder, "rehearsal", holder="another rehearsal", about_files=about_files)
        with errors, private_files():
            self._held = HeldFolder(self.folder)
            start_on_free_ports(self._start, self._any_wrote, self._start_over)
            self._is_up = True

    def _choose_ports(self) -> HeldPorts:
        held = HeldPorts(len(PORTS), self._blueprint.prefect_port)
        self._ports = dict(zip(PORTS, held.numbers, strict=True))
        self._programs = CommandLines(self._blueprint, self._ports)
        if self._blueprint.prefect:
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
        """Start the slowest first, and beside it all that needs nothing of the others."""
        blueprint, programs, size = self._blueprint, self._programs, self.size
        if blueprint.prefect:
            self._start_prefect()
        api = self._spawn(programs.control_plane())
        logs = self._spawn(programs.log_store())
        self.urls["loki"] = logs.await_ready_line()["url"]
        self.urls["kubernetes"] = api.await_ready_line()["url"]
        self._start_observability()
        order = self._order_guest(blueprint.guest) if blueprint.guest else None
        nodes = self._spawn(self._nodes(order))
        # The lab's own controllers are running by now.
        is_embedded = blueprint.control_plane is ControlPlane.EMBEDDED
        controllers = self._spawn(programs.controllers()) if is_embedded else None
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            if size.client_nodes:
                seeder.control_plane_rights()
            if not is_embedded:
                seeder.objects_of_the_lab(blueprint.gpu_operator, dra=blueprint.lab.dra)
            runner = seeder.service_account_kubeconfig("gameday-runner", self.folder / "runner.kubeconfig")
            health = seeder.service_account_kubeconfig("gameday-node-health", self.folder / "node-health.kubeconfig")
            repairer = seeder.service_account_kubeconfig("gameday-repair", self.folder / "repair.kubeconfig")
            if blueprint.has_controller:
                self._spawn(programs.node_health(health, self.urls["loki"]))
            if blueprint.has_kube_state_metrics:
                self._start_kube_state_metrics(seeder)
            fake_detector = self._start_fake_detector(seeder, blueprint.fake_detector)
            nodes.await_ready_line()
            if controllers:
                controllers.await_ready_line()
            self._seed_nodes(seeder)
        if blueprint.has_controller:
            self.child("node-health").await_ready_line()
        if fake_detector:
            fake_detector.await_ready_line()
        self._await_programs()
        write_profile(self.profile, blueprint, self.urls, runner)
        if blueprint.has_repairer:
            self._start_repair(repairer)
        write_state(blueprint, self.urls, self._kube_state_metrics or "stand-in")

    def _nodes(self, order: Path | None) -> Child:
        if use := self._blueprint.this_machine:
            return self._programs.this_machine(self.urls["loki"], lets_go=use.resets_gpu)
        return self._programs.nodes(self.urls["loki"], order)

    @property
    def prefect_client(self) -> dict[str, str]:
        """Environment for a client of the cluster's Prefect server."""
        return client_environment(self.urls["prefect"], self.prefect_password)

    def _spawn(self, child: Child) -> Child:
        self._children[child.name] = child
        child.start()
        return child

    def _start_prefect(self) -> None:
        self._migrated = begin_with_template(self.folder / "prefect")
        self.prefect_password_file.write_text(self.prefect_password, encoding="ascii")
        self._spawn(self._programs.prefect(self.prefect_password))

    def _start_observability(self) -> None:
        for program in self._programs.observability():
            self._spawn(Child(program.name, program.argv, program.log_file, says_ready=False))
            self.urls[program.name] = program.ready_url.removesuffix("/-/ready")

    def _order_guest(self, guest: LoadedGuest) -> Path:
        """Give the guest its account, and write the file with which the nodes start it."""
        with seeding(self.admin_kubeconfig) as seeder:
            seeder.rights()
            kubeconfig = seeder.guest_kubeconfig(self.folder / "guest.kubeconfig")
        self.urls["guests"] = f"http://127.0.0.1:{self._ports['nodes']}/guests"
        return write_guest_order(self.folder / "guests", guest, self.urls, kubeconfig)

    def _start_kube_state_metrics(self, seeder: Seeder) -> None:
        """Start the real program if PATH has it, else the stand-in."""
        kubeconfig = seeder.kube_state_metrics_kubeconfig(self.folder / f"{KUBE_STATE_METRICS}.kubeconfig")
        self.urls[KUBE_STATE_METRICS] = f"http://127.0.0.1:{self._ports[KUBE_STATE_METRICS]}/metrics"
        self._spawn(self._programs.kube_state_metrics(self._kube_state_metrics, kubeconfig))

    def _start_fake_detector(self, seeder: Seeder, detector: DetectorProfile | None) -> Child | None:
        """Start the fake detector, or return None if the virtual nodes play its part, as for the device plugin's."""
        if detector is None:
            return None
        profile = write_detector_profile(self._blueprint.detector_profiles, detector)
        if not {"kernel log", "DCGM"} & set(detector.reads):
            return None
        kubeconfig = seeder.fake_detector_kubeconfig(self.folder / "stand-in.kubeconfig")
        return self._spawn(self._programs.fake_detector(profile, kubeconfig, self.urls["loki"]))

    def _seed_nodes(self, seeder: Seeder) -> None:
        """Give the nodes their components, labels and training work. Raises SeedError."""
        blueprint, size = self._blueprint, self.size
        seeder.await_schedulable(size.all_nodes + blueprint.lab.real_node)
        if blueprint.this_machine:
            return  # its one process does the work of these components, and it has no work but the game-day's
        seeder.components(size.nodes, size.gpus, blueprint.gpu_operator, blueprint.quarantine_keys)
        if size.offender:
            seeder.repeat_offender(OFFENDER)
        if size.weakly_cooled:
            seeder.weakly_cooled(WEAKLY_COOLED)
        if size.gpu_classes:
            seeder.gpu_classes(size.nodes)
        jobs = seeder.training(size.nodes - size.spare - size.hold_outs, size.gpus, dra=blueprint.lab.dra)
        if size.nodes > LARGE:
            seeder.await_training(jobs)  # its start keeps the nodes' process busy for a minute

    def _await_programs(self) -> None:
        self.child("prometheus").await_url(f"{self.urls['prometheus']}/-/ready")
        password = self.alertmanager_password_file.read_text(encoding="ascii")
        self.child("alertmanager").await_url(f"{self.urls['alertmanager']}/-/ready", auth=(ALERTMANAGER_USER, password))
        if self._blueprint.has_kube_state_metrics:
            self.child(KUBE_STATE_METRICS).await_url(self.urls[KUBE_STATE_METRICS])
        if self._blueprint.prefect:
            await_prefect(self.child("prefect"), self.urls["prefect"], self.prefect_password)
            if not self._migrated:
                keep_template(self.folder / "prefect")
        for name in self.dead():
            raise self.child(name).error("died while the others started")

    def _start_repair(self, kubeconfig: Path) -> None:
        profile = self.folder / "repair-profile.yaml"
        write_profile(profile, self._blueprint, self.urls, kubeconfig)
        self._spawn(self._programs.repair(profile, self.prefect_client)).await_ready_line()
