"""A real kube-apiserver for the scripts: the lab's, with only those controllers that the embedded server imitates.

The lab's other controllers and its scheduler would write to the scripts' objects at times of their own.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from gameday.processes.children import Child
from gameday.processes.ports import HeldPorts
from gameday_rehearsal.lab.components import Component, Ports, apiserver, controller_manager, etcd, port_count
from gameday_rehearsal.lab.control_plane import bind_first_rights
from gameday_rehearsal.lab.identities import Secrets, make_secrets, write_kubeconfigs
from gameday_rehearsal.lab.programs import find_programs
from gameday_rehearsal.lab.settings import STOCK
from tests.kubesim.conformance.exchange import Server

_CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
)


@contextmanager
def real_server(folder: Path) -> Iterator[Server]:
    """etcd, kube-apiserver and a few controllers. Raises ChildError, ProgramMissingError."""
    programs, secrets = find_programs(), make_secrets(folder)
    held = HeldPorts(port_count(STOCK))
    ports = Ports.among(held.numbers)
    url = f"https://127.0.0.1:{ports.apiserver}"
    write_kubeconfigs(folder, secrets, url)
    tls = ssl.create_default_context(cafile=str(secrets.ca.certificate))
    with ExitStack() as ending:
        ending.enter_context(held)

        def start(component: Component) -> Child:
            argv = [str(programs[component.name].path), *component.flags]
            child = Child(component.name, argv, folder / f"{component.name}.log", says_ready=False)
            ending.callback(child.end)
            child.start()
            child.await_url(component.ready_url, tls)
            return child

        def forget() -> None:
            """Compact etcd's history, and restart the API server, which has a memory of its own."""
            _compact(f"https://127.0.0.1:{ports.etcd}", secrets)
            serving.end()
            serving.start()
            serving.await_url(f"{url}/readyz", tls)

        start(etcd(folder, ports, secrets, STOCK))
        serving = start(apiserver(folder, ports, secrets, STOCK, 1))
        bind_first_rights(url, secrets)
        manager = controller_manager(folder, ports, secrets, STOCK)
        flags = [flag for flag in manager.flags if not flag.startswith("--controllers=")]
        start(replace(manager, flags=(*flags, f"--controllers={','.join(_CONTROLLERS)}")))
        yield Server(url, folder / "admin.kubeconfig", forget)


def _compact(url: str, secrets: Secrets) -> None:
    tls = ssl.create_default_context(cafile=str(secrets.etcd_ca.certificate))
    tls.load_cert_chain(secrets.etcd_client.certificate, secrets.etcd_client.key)
    with httpx.Client(base_url=url, verify=tls, trust_env=False) as http:
        latest = http.post("/v3/kv/range", json={"key": base64.b64encode(b"/").decode()}).raise_for_status()
        revision = latest.json()["header"]["revision"]
        http.post("/v3/kv/compaction", json={"revision": revision, "physical": True}).raise_for_status()
