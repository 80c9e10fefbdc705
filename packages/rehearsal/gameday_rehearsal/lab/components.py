"""The command lines of the lab's programs: stock flags and those of the settings, loopback only, one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Self

from gameday.plan.rehearsal import LabComponent
from gameday_rehearsal.lab.audit import audit_flags
from gameday_rehearsal.lab.identities import Secrets
from gameday_rehearsal.lab.real_node.files import EGRESS
from gameday_rehearsal.lab.settings import LabSettings, server_name

# etcd's default of 2 GiB is too small for the scaling experiments; 8 GiB is the most it advises
# (https://etcd.io/docs/latest/dev-guide/limit/).
_ETCD_QUOTA_BYTES = 8 * 1024**3
_OPEN_PATHS = "/healthz,/readyz,/livez,/metrics"
# Controllers for clouds, certificates and metrics servers, which no lab has, and for volumes.
_CONTROLLERS_OFF = (
    "horizontal-pod-autoscaler-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "certificatesigningrequest-signing-controller",
)
_VOLUMES = "persistentvolume-binder-controller"
"""The controller for the volumes that only a real node has."""


@dataclass(frozen=True)
class Ports:
    """Loopback ports of one lab."""

    etcd: int
    etcd_peer: int
    etcd_metrics: int
    apiserver: int
    """Port of all clients: of the only API server, or of the load balancer."""
    controller_manager: int
    scheduler: int
    nodes: int
    """Port of the virtual nodes' plain HTTP."""
    topology_scheduler: int
    gateway: int
    """Port of the real node's gateway."""
    balancer_metrics: int | None = field(default=None, kw_only=True)
    """Port of the load balancer's plain HTTP; None without one."""
    servers: tuple[int, ...] = field(default=(), kw_only=True)
    """Ports of the API servers behind the load balancer, in order; empty without one."""

    @classmethod
    def among(cls, numbers: Sequence[int]) -> Self:
        """Assign as many ports as `port_count` said."""
        alone = cls(*numbers[:_ALONE])
        metrics_and_servers = numbers[_ALONE:]
        if not metrics_and_servers:
            return alone
        return replace(alone, balancer_metrics=metrics_and_servers[0], servers=tuple(metrics_and_servers[1:]))

    def server(self, number: int) -> int:
        """Return the port of an API server, counted from 1."""
        return self.servers[number - 1] if self.servers else self.apiserver


_ALONE = len([one for one in fields(Ports) if not one.kw_only])


def port_count(settings: LabSettings) -> int:
    """Return the number of ports that a lab needs."""
    return _ALONE + (1 + settings.api_servers if settings.has_balancer else 0)


@dataclass(frozen=True)
class Component:
    """A program's command line and environment, and a URL that answers 200 once it serves."""

    name: str
    """The component's name; each of several API servers has its own."""
    program: str
    flags: tuple[str, ...]
    environment: Mapping[str, str]
    ready_url: str
    metrics_url: str


def etcd(folder: Path, ports: Ports, secrets: Secrets, settings: LabSettings) -> Component:
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.etcd_peer}"
    metrics = f"http://127.0.0.1:{ports.etcd_metrics}"
    flags = {
        "name": "lab",
        "data-dir": folder / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"lab={peer}",
        "listen-metrics-urls": metrics,
        "cert-file": secrets.etcd.certificate,
        "key-file": secrets.etcd.key,
        "client-cert-auth": "true",
        "trusted-ca-file": secrets.etcd_ca.certificate,
        "peer-cert-file": secrets.etcd.certificate,
        "peer-key-file": secrets.etcd.key,
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": secrets.etcd_ca.certificate,
        "quota-backend-bytes": _ETCD_QUOTA_BYTES,
        # The kernel still writes what a killed lab had stored. Only a power failure loses some of it, and no write
        # waits for a disk that other programs use.
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return _component(LabComponent.ETCD, flags, settings, f"{metrics}/health", f"{metrics}/metrics")


def apiserver(folder: Path, ports: Ports, secrets: Secrets, settings: LabSettings, number: int) -> Component:
    """Return the API server of this number, counted from 1."""
    port = ports.server(number)
    url = f"https://127.0.0.1:{port}"
    flags = {
        "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
        "etcd-cafile": secrets.etcd_ca.certificate,
        "etcd-certfile": secrets.etcd_client.certificate,
        "etcd-keyfile": secrets.etcd_client.key,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        # An Endpoints object may not name a loopback address, so the `kubernetes` service has none.
        "endpoint-reconciler-type": "none",
        "service-cluster-ip-range": "10.96.0.0/16",
        "client-ca-file": secrets.ca.certificate,
        "tls-cert-file": secrets.apiserver.certificate,
        "tls-private-key-file": secrets.apiserver.key,
        "kubelet-certificate-authority": secrets.ca.certificate,
        "kubelet-client-certificate": secrets.kubelet_client.certificate,
        "kubelet-client-key": secrets.kubelet_client.key,
        "kubelet-preferred-address-types": "InternalIP",
        "requestheader-client-ca-file": secrets.front_proxy_ca.certificate,
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": secrets.front_proxy_client.certificate,
        "proxy-client-key-file": secrets.front_proxy_client.key,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": secrets.service_accounts.certificate,
        "service-account-signing-key-file": secrets.service_accounts.key,
        # The agent's pod is privileged.
        "allow-privileged": "true",
        **audit_flags(folder, number),
        **({"egress-selector-config-file": folder / EGRESS} if settings.real_node else {}),
    }
    name = server_name(number)
    return _component(LabComponent.API_SERVER, flags, settings, f"{url}/readyz", f"{url}/metrics", name)


def controller_manager(folder: Path, ports: Ports, secrets: Secrets, settings: LabSettings) -> Component:
    off = _CONTROLLERS_OFF if settings.real_node else (*_CONTROLLERS_OFF, _VOLUMES)
    flags = {
        **_delegating(folder / "controller-manager.kubeconfig", ports.controller_manager),
        "tls-cert-file": secrets.controller_manager.certificate,
        "tls-private-key-file": secrets.controller_manager.key,
        "root-ca-file": secrets.ca.certificate,
        "service-account-private-key-file": secrets.service_accounts.key,
        "use-service-account-credentials": "true",
        "controllers": ",".join(("*", *(f"-{name}" for name in off))),
    }
    url = f"https://127.0.0.1:{ports.controller_manager}"
    return _component(LabComponent.CONTROLLER_MANAGER, flags, settings, f"{url}/healthz", f"{url}/metrics")


def scheduler(folder: Path, ports: Ports, secrets: Secrets, settings: LabSettings) -> Component:
    flags = {
        **_delegating(folder / "scheduler.kubeconfig", ports.scheduler),
        "tls-cert-file": secrets.scheduler.certificate,
        "tls-private-key-file": secrets.scheduler.key,
    }
    url = f"https://127.0.0.1:{ports.scheduler}"
    return _component(LabComponent.SCHEDULER, flags, settings, f"{url}/readyz", f"{url}/metrics")


def topology_scheduler(
    folder: Path, ports: Ports, secrets: Secrets, settings: LabSettings, configuration: Path
) -> Component:
    """Return the topology-aware scheduler; its client and profile are in a configuration file."""
    flags = {
        **_delegating(folder / "topology-scheduler.kubeconfig", ports.topology_scheduler),
        "config": configuration,
        "tls-cert-file": secrets.scheduler.certificate,
        "tls-private-key-file": secrets.scheduler.key,
    }
    url = f"https://127.0.0.1:{ports.topology_scheduler}"
    return _component(LabComponent.TOPOLOGY_SCHEDULER, flags, settings, f"{url}/healthz", f"{url}/metrics")


def _delegating(kubeconfig: Path, port: int) -> dict[str, object]:
    return {
        "kubeconfig": kubeconfig,
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "authorization-always-allow-paths": _OPEN_PATHS,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "leader-elect": "false",
    }


def _component(
    program: LabComponent,
    flags: Mapping[str, object],
    settings: LabSettings,
    ready_url: str,
    metrics_url: str,
    name: str | None = None,
) -> Component:
    """Return the component as the settings change it; if both give a flag, the settings' value counts."""
    overrides = settings.of(program)
    words = tuple(f"--{flag}={value}" for flag, value in {**flags, **overrides.flags}.items())
    return Component(name or program, program, words, overrides.environment, ready_url, metrics_url)
