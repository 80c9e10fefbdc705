"""Start the lab's programs in order and keep them: etcd, kube-apiserver, then the two that are its clients."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import httpx

from gameday.errors import ChildError
from gameday.rehearsal.children import Child
from gameday.rehearsal.lab.components import (
    Component,
    Ports,
    apiserver,
    controller_manager,
    etcd,
    lab_ports,
    scheduler,
)
from gameday.rehearsal.lab.identities import Secrets, first_bindings, make_secrets, write_kubeconfigs
from gameday.rehearsal.lab.programs import Program, find_programs
from gameday.rehearsal.lab.supervisor import Supervisor, log
from kubesim.kubeconfig import Kubeconfig

# A cold start of the API server takes 5 to 10 s on two idle cores.
_READY_WITHIN_S = 120.0
_PORT_TAKEN = "address already in use"
_DISK_FULL = "no space left on device"
_TRIES = 3


class ControlPlane:
    """A context manager; `supervise` keeps it whole until told to stop."""

    def __init__(self, folder: Path, say: Callable[[str], None] = log.warning) -> None:
        """`say` gets one line when a component crashed."""
        self.folder = folder
        self.url = ""
        self.ports: Ports | None = None
        self.supervisor = Supervisor(folder, say)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def start(self) -> None:
        """Raises ChildError, ProgramMissingError, OSError; the caller then owes an `end`."""
        programs = find_programs()
        secrets = make_secrets(self.folder)
        for attempt in range(1, _TRIES + 1):
            self.ports = lab_ports()
            try:
                self._start(self.ports, secrets, programs)
                return
            except ChildError as error:
                taken, full = self.supervisor.said(_PORT_TAKEN), self.supervisor.said(_DISK_FULL)
                self.end()
                if full:
                    raise ChildError(f"no space is left where {self.folder} lies: {error}") from None
                if not taken or attempt == _TRIES:
                    raise
                log.warning("somebody took one of the ports before we listened; trying others")

    def _start(self, ports: Ports, secrets: Secrets, programs: Mapping[str, Program]) -> None:
        self.url = f"https://127.0.0.1:{ports.apiserver}"
        write_kubeconfigs(self.folder, secrets, self.url)
        tls = ssl.create_default_context(cafile=str(secrets.ca.certificate))

        def spawn(component: Component) -> Child:
            program = programs[component.name]
            argv = [str(program.path), *component.flags]
            log_file = self.folder / f"{component.name}.log"
            # Asked politely, an API server whose etcd is gone stays for a minute.
            child = Child(component.name, argv, log_file, says_ready=False, dies_by=signal.SIGKILL)
            return self.supervisor.spawn(child, component.ready_url, program.release)

        for component in (etcd(self.folder, ports, secrets), apiserver(self.folder, ports, secrets)):
            spawn(component).await_url(component.ready_url, _READY_WITHIN_S, tls)
        bind_first_rights(self.url, secrets)
        last = (controller_manager(self.folder, ports, secrets), scheduler(self.folder, ports, secrets))
        for component, child in [(component, spawn(component)) for component in last]:
            child.await_url(component.ready_url, _READY_WITHIN_S, tls)
        _await_first_service_account(self.folder / "admin.kubeconfig")

    def supervise(self) -> NoReturn:
        """Start again whatever ends, for ever: a signal's handler has to raise."""
        self.supervisor.supervise()

    def end(self) -> None:
        """The API server's clients before it, etcd last."""
        self.supervisor.end()


def _await_first_service_account(admin: Path) -> None:
    """Until a controller made namespace default's account, without which every pod there is refused.

    Raises ChildError.
    """
    kubeconfig = Kubeconfig.load(admin)
    path = "/api/v1/namespaces/default/serviceaccounts"
    query = {"watch": "true", "resourceVersion": "0", "fieldSelector": "metadata.name=default"}
    try:
        with httpx.stream(
            "GET", kubeconfig.server + path, params=query, verify=kubeconfig.tls or True, timeout=_READY_WITHIN_S
        ) as answer:
            first = next(answer.iter_lines(), "")
    except httpx.HTTPError as error:
        raise ChildError(f"kube-apiserver: watch of {path}: {type(error).__name__}: {error}") from None
    if '"ADDED"' not in first:
        raise ChildError(f"kube-controller-manager made no service account in namespace default: {first[:300]}")


def bind_first_rights(url: str, secrets: Secrets) -> None:
    """As a master whose certificate no file ever held: nobody else here is one. Raises ChildError."""
    tls = ssl.create_default_context(cafile=str(secrets.ca.certificate))
    master = os.memfd_create("first-master")  # the ssl module takes a client key only from a file
    try:
        os.write(master, secrets.ca.client_in_memory("gameday-first-master", ("system:masters",)))
        tls.load_cert_chain(f"/proc/self/fd/{master}")
    finally:
        os.close(master)
    with httpx.Client(base_url=url, verify=tls, trust_env=False, timeout=30.0) as http:
        for path, body in first_bindings():
            try:
                answer = http.post(path, json=body)
            except httpx.HTTPError as error:
                raise ChildError(f"kube-apiserver: POST {path}: {type(error).__name__}: {error}") from None
            if answer.is_error and answer.status_code != httpx.codes.CONFLICT:
                raise ChildError(f"kube-apiserver refused POST {path}: {answer.status_code}: {answer.text[:300]}")
