"""Start the lab's programs in order and keep them running: etcd, kube-apiserver, then everything that needs it.

With several API servers, every kubeconfig has HAProxy's address.
"""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import httpx

from gameday.cluster.lab_control import Configure, Fresh
from gameday.errors import ChildError, ControlError, ProgramMissingError
from gameday.plan.rehearsal import LabComponent
from gameday.processes.children import Child
from gameday.processes.ports import HeldPorts, start_on_free_ports
from gameday_rehearsal.lab.balancer import balancer
from gameday_rehearsal.lab.components import (
    Component,
    Ports,
    apiserver,
    controller_manager,
    etcd,
    port_count,
    scheduler,
    topology_scheduler,
)
from gameday_rehearsal.lab.control import Control
from gameday_rehearsal.lab.identities import Secrets, first_bindings, make_secrets, write_kubeconfigs
from gameday_rehearsal.lab.programs import (
    BALANCER,
    Program,
    find_api_server,
    find_balancer,
    find_node_programs,
    find_programs,
    find_topology_scheduler,
)
from gameday_rehearsal.lab.real_node.files import EGRESS_SOCKET, write_egress
from gameday_rehearsal.lab.real_node.network import REAL_NODE, api_server_endpoints
from gameday_rehearsal.lab.real_node.node import RealNode
from gameday_rehearsal.lab.real_node.volumes import volume_objects
from gameday_rehearsal.lab.settings import STOCK, LabSettings, changed
from gameday_rehearsal.lab.supervisor import Supervision, Supervisor, log
from gameday_rehearsal.lab.topology import TopologyObjects, write_configuration
from kubesim.kubeconfig import Kubeconfig

_DISK_FULL = "no space left on device"
_NO_SERVERS = (LabComponent.ETCD, LabComponent.CONTROLLER_MANAGER, LabComponent.SCHEDULER)


class ControlPlane:
    """A control plane for the length of a block; `supervise` keeps it running until asked to stop."""

    def __init__(self, folder: Path, settings: LabSettings = STOCK, say: Callable[[str], None] = log.warning) -> None:
        """Prepare; `say` gets a line when a component crashes."""
        self.folder = folder
        self.url = ""
        self.ports: Ports | None = None
        self._settings = settings.model_copy(update={"api_server_release": None})
        self._started_with = settings
        self._programs: Mapping[str, Program] = {}
        self._secrets: Secrets | None = None
        self._held_ports: HeldPorts | None = None
        self._control: Control | None = None
        self._real_node: RealNode | None = None
        self.supervisor = Supervisor(folder, say)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Start the control plane. The caller must call `end` afterwards, even after an error.

        Raises ChildError, ProgramMissingError, StartError and OSError.
        """
        programs = find_programs()
        if self._settings.has_balancer:
            programs[BALANCER] = find_balancer()
        if self._settings.topology:
            apiserver = programs[LabComponent.API_SERVER]
            programs[LabComponent.TOPOLOGY_SCHEDULER] = find_topology_scheduler(apiserver)
        if self._settings.real_node:
            node_programs = find_node_programs(programs[LabComponent.API_SERVER])
            self._real_node = RealNode(self.folder, node_programs, self.supervisor)
        self._programs = programs
        self._secrets = make_secrets(self.folder)

        def start() -> None:
            self._held_ports = HeldPorts(port_count(self._settings))
            self.ports = Ports.among(self._held_ports.numbers)
            self._start(self.ports)

        try:
            start_on_free_ports(start, self.supervisor.wrote, self.end)
        except ChildError as error:
            if self.supervisor.wrote(_DISK_FULL):
                raise ChildError(f"no space is left where {self.folder} lies: {error}") from None
            raise
        if self._started_with.api_server_release:
            self._run_with(self._started_with, _NO_SERVERS)
        self._control = Control(self.folder)

    def _start(self, ports: Ports) -> None:
        assert self._secrets
        secrets, settings = self._secrets, self._settings
        self.url = f"https://127.0.0.1:{ports.apiserver}"
        write_kubeconfigs(self.folder, secrets, self.url)
        if settings.real_node:
            write_egress(self.folder)
        tls = ssl.create_default_context(cafile=str(secrets.ca.certificate))
        front = balancer(self.folder, ports, settings, secrets.ca.certificate) if settings.has_balancer else None
        # It takes servers for healthy until it has checked them, so it starts before any of them listens.
        front_child = self._spawn(front) if front else None
        store, first, *last = self._components(ports, secrets, settings)
        for component in (store, first):
            self._spawn(component).await_url(component.ready_url, tls)
        if front and front_child:
            front_child.await_url(front.ready_url)
        bind_first_rights(self.url, secrets)
        children = {component.name: self._spawn(component) for component in last}
        for component in last:
            if component.name not in settings.hold:
                children[component.name].await_url(component.ready_url, tls)
        # Without the account that a controller makes here, the API server refuses every pod of the namespace.
        admin = Kubeconfig.load(self.folder / "admin.kubeconfig")
        children[LabComponent.CONTROLLER_MANAGER].await_url(
            f"{self.url}/api/v1/namespaces/default/serviceaccounts/default", admin.tls
        )
        if settings.topology:
            TopologyObjects(admin, self.url).grant()
            self._switch_topology(ports, secrets, settings)
        if self._real_node:
            _create(self.url, admin.tls, [api_server_endpoints(), *volume_objects()])
            kubelet = self._real_node.start(secrets, self.folder / EGRESS_SOCKET, ports.gateway, ports.apiserver)
            # Until it is Ready, no pod would be placed on it.
            kubelet.await_url(f"{self.url}/api/v1/nodes/{REAL_NODE}", admin.tls)

    def _switch_topology(self, ports: Ports, secrets: Secrets, settings: LabSettings) -> None:
        """Start the topology-aware scheduler and the kind of object that it reads, or end both.

        Raises ChildError and OSError.
        """
        objects = TopologyObjects(Kubeconfig.load(self.folder / "admin.kubeconfig"), self.url)
        self.supervisor.forget(LabComponent.TOPOLOGY_SCHEDULER)
        objects.remove()
        if settings.topology:
            objects.define()
        configuration = write_configuration(self.folder, settings)
        component = topology_scheduler(self.folder, ports, secrets, settings, configuration)
        child = self._spawn(component)
        if settings.topology:
            child.await_url(component.ready_url, ssl.create_default_context(cafile=str(secrets.ca.certificate)))

    def _components(self, ports: Ports, secrets: Secrets, settings: LabSettings) -> tuple[Component, ...]:
        """Return every component except the balancer, in their order of start."""
        servers = (apiserver(self.folder, ports, secrets, settings, one) for one in range(1, settings.api_servers + 1))
        return (
            etcd(self.folder, ports, secrets, settings),
            *servers,
            controller_manager(self.folder, ports, secrets, settings),
            scheduler(self.folder, ports, secrets, settings),
        )

    def _spawn(self, component: Component) -> Child:
        return self.supervisor.spawn(*self._child(component, self._settings))

    def _child(self, component: Component, settings: LabSettings) -> tuple[Child, Supervision]:
        is_server = component.program == LabComponent.API_SERVER
        other = settings.api_server_release if is_server else None
        program = find_api_server(other) if other else self._programs[component.program]
        # After SIGTERM, an API server without its etcd runs for another minute.
        child = Child(
            component.name,
            [str(program.path), *component.flags],
            self.folder / f"{component.name}.log",
            component.environment,
            says_ready=False,
            dies_by=signal.SIGKILL,
        )
        facts = Supervision(
            program.release,
            component.ready_url,
            component.metrics_url,
            settings.api_server_memory if is_server else None,
            component.name in settings.hold
            or (component.program == LabComponent.TOPOLOGY_SCHEDULER and not settings.topology),
        )
        return child, facts

    def supervise(self) -> NoReturn:
        """Restart components that end, and carry out orders, forever; only a signal handler that raises ends it."""
        self.supervisor.supervise(self._control, self._change)

    def _change(self, asked: Configure | Fresh) -> None:
        """Restart the API servers in turn, and everything else that the settings change. Raises ControlError.

        `configure` also holds the servers again that were held at the lab's start, and restarts the clients of the API
        servers: a scheduler keeps memory of earlier pods, and a watch that lost its server may wait half a minute
        before it tries again. It does not restart them under another release: a restarted scheduler would never become
        ready, because it waits for kinds of objects that an older server lacks.
        """
        settings = changed(self._started_with, asked.rehearsal) if isinstance(asked, Configure) else self._settings
        with_clients = isinstance(asked, Configure) and not settings.api_server_release
        kept = (LabComponent.ETCD,) if with_clients else _NO_SERVERS
        try:
            self._run_with(settings, kept)
        except (ChildError, OSError, ProgramMissingError) as error:
            raise ControlError(str(error)) from None

    def _run_with(self, settings: LabSettings, kept: Collection[LabComponent]) -> None:
        """Restart every component with these settings and wait until it is ready. A missing program changes nothing.

        Args:
            settings: The settings from now on.
            kept: Programs that restart only if the settings change them.

        Raises:
            ChildError: A component does not start.
            ProgramMissingError: The settings need a program that is not here.
            OSError: A process cannot be started.
        """
        assert self.ports and self._secrets
        before = self._settings
        if settings.api_server_release:
            find_api_server(settings.api_server_release)
        tls = ssl.create_default_context(cafile=str(self._secrets.ca.certificate))
        old = self._components(self.ports, self._secrets, before)
        new = self._components(self.ports, self._secrets, settings)
        # Also for a component that does not start with them: the supervisor keeps trying until the next change.
        self._settings = settings
        for was, component in zip(old, new, strict=True):
            if component == was and component.program in kept:
                continue
            child, facts = self._child(component, settings)
            if settings is before:  # unchanged: what was started since stays, and so does what was held
                facts = replace(facts, held=self.supervisor.is_held(component.name))
            if self.supervisor.replace(child, facts):
                child.await_url(component.ready_url, tls)
        if self._started_with.topology:
            self._switch_topology(self.ports, self._secrets, settings)

    def end(self) -> None:
        """End every process: the API server's clients before it, etcd last."""
        self.supervisor.end()
        if self._control:
            self._control.close()
            self._control = None
        if self._held_ports:
            self._held_ports.release()


def bind_first_rights(url: str, secrets: Secrets) -> None:
    """Create the first role bindings, with a master's certificate that was never in a file. Raises ChildError."""
    tls = ssl.create_default_context(cafile=str(secrets.ca.certificate))
    master = os.memfd_create("first-master")  # the ssl module takes a client key only from a file
    try:
        os.write(master, secrets.ca.client_in_memory("gameday-first-master", ("system:masters",)))
        tls.load_cert_chain(f"/proc/self/fd/{master}")
    finally:
        os.close(master)
    _create(url, tls, first_bindings())


def _create(url: str, tls: ssl.SSLContext | None, objects: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Create objects in their collections; those that are there stay as they are. Raises ChildError."""
    with httpx.Client(base_url=url, verify=tls or True, trust_env=False, timeout=30.0) as http:
        for path, body in objects:
            try:
                answer = http.post(path, json=body)
            except httpx.HTTPError as error:
                raise ChildError(f"kube-apiserver: POST {path}: {type(error).__name__}: {error}") from None
            if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
                raise ChildError(f"kube-apiserver refused POST {path}: {answer.status_code}: {answer.text[:300]}")
