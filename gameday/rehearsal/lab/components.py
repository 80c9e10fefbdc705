"""The command lines of the lab's programs: stock flags, loopback only, everything in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from gameday.rehearsal.lab.audit import audit_flags
from gameday.rehearsal.lab.identities import Secrets

# etcd's default of 2 GiB is too small for the scaling experiments; 8 GiB is the most it advises
# (https://etcd.io/docs/latest/dev-guide/limit/).
_ETCD_QUOTA_BYTES = 8 * 1024**3
_OPEN_PATHS = "/healthz,/readyz,/livez,/metrics"
# Controllers that act on clouds, volumes, certificates and metrics servers, which no lab has.
_CONTROLLERS_OFF = (
    "horizontal-pod-autoscaler-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "certificatesigningrequest-signing-controller",
)


@dataclass(frozen=True)
class Ports:
    """Loopback ports of one lab."""

    etcd: int
    etcd_peer: int
    etcd_metrics: int
    apiserver: int
    controller_manager: int
    scheduler: int
    nodes: int
    """The virtual nodes' plain HTTP."""


PORT_COUNT = len(fields(Ports))


@dataclass(frozen=True)
class Component:
    """A program's command line, and the URL that answers 200 when it serves."""

    name: str
    flags: tuple[str, ...]
    ready_url: str


def etcd(folder: Path, ports: Ports, secrets: Secrets) -> Component:
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
        # The kernel writes what a killed lab had stored. Only a machine that loses its power loses some of it, and no
        # write waits for a disk that other programs use.
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }
    return Component("etcd", _flags(flags), f"{metrics}/health")


def apiserver(folder: Path, ports: Ports, secrets: Secrets) -> Component:
    url = f"https://127.0.0.1:{ports.apiserver}"
    flags = {
        "etcd-servers": f"https://127.0.0.1:{ports.etcd}",
        "etcd-cafile": secrets.etcd_ca.certificate,
        "etcd-certfile": secrets.etcd_client.certificate,
        "etcd-keyfile": secrets.etcd_client.key,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": ports.apiserver,
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
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": secrets.service_accounts.certificate,
        "service-account-signing-key-file": secrets.service_accounts.key,
        # The agent's pod is privileged.
        "allow-privileged": "true",
        **audit_flags(folder),
    }
    return Component("kube-apiserver", _flags(flags), f"{url}/readyz")


def controller_manager(folder: Path, ports: Ports, secrets: Secrets) -> Component:
    flags = {
        **_delegating(folder / "controller-manager.kubeconfig", ports.controller_manager),
        "tls-cert-file": secrets.controller_manager.certificate,
        "tls-private-key-file": secrets.controller_manager.key,
        "root-ca-file": secrets.ca.certificate,
        "service-account-private-key-file": secrets.service_accounts.key,
        "use-service-account-credentials": "true",
        "controllers": ",".join(("*", *(f"-{name}" for name in _CONTROLLERS_OFF))),
    }
    url = f"https://127.0.0.1:{ports.controller_manager}/healthz"
    return Component("kube-controller-manager", _flags(flags), url)


def scheduler(folder: Path, ports: Ports, secrets: Secrets) -> Component:
    flags = {
        **_delegating(folder / "scheduler.kubeconfig", ports.scheduler),
        "tls-cert-file": secrets.scheduler.certificate,
        "tls-private-key-file": secrets.scheduler.key,
    }
    return Component("kube-scheduler", _flags(flags), f"https://127.0.0.1:{ports.scheduler}/healthz")


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


def _flags(values: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(f"--{name}={value}" for name, value in values.items())
