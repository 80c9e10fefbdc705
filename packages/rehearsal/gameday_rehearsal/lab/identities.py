"""The lab's identities: by certificate, every component has the one that kubeadm gives it.

One certificate of the masters group for all would exempt every component from RBAC and from API Priority and Fairness
(system:masters is exempt, https://kubernetes.io/docs/concepts/cluster-administration/flow-control).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gameday_rehearsal.lab.real_node.network import API_SERVER, SERVICE
from kubesim.certificates import Authority, KeyPair, signing_key
from kubesim.kubeconfig import write_kubeconfig

ADMINS = "gameday:cluster-admins"
"""The administrators' group. A ClusterRoleBinding binds it to cluster-admin, so that RBAC and APF treat it like any
other.
"""

NODES_USER = "gameday:virtual-nodes"
"""The user of all virtual nodes, which share one process; the Node authorizer would want one user for each node."""


TOPOLOGY_USER = "system:serviceaccount:kube-system:topology-scheduler"
"""The topology-aware scheduler's user: a service account, as its pod has in a cluster, so that the flow schema for
service accounts of kube-system applies to it.
"""


DNS_USER = "gameday:dns"
"""The user of a real node's CoreDNS."""


@dataclass(frozen=True)
class Identity:
    user: str
    groups: tuple[str, ...] = ()


KUBECONFIGS: Mapping[str, Identity] = {
    "admin": Identity("gameday-admin", (ADMINS,)),
    "controller-manager": Identity("system:kube-controller-manager"),
    "scheduler": Identity("system:kube-scheduler"),
    "topology-scheduler": Identity(TOPOLOGY_USER, ("system:serviceaccounts", "system:serviceaccounts:kube-system")),
    # The group puts their heartbeats into APF's level node-high, like those of a real fleet.
    "nodes": Identity(NODES_USER, ("system:nodes",)),
    # Every cluster binds this group to the role system:monitoring: /metrics and health, and nothing else of the API.
    "prometheus": Identity("gameday:prometheus", ("system:monitoring",)),
}


@dataclass(frozen=True)
class Secrets:
    """The files that the components start with, in a folder that only its owner can enter."""

    ca: Authority
    etcd_ca: Authority
    front_proxy_ca: Authority
    etcd: KeyPair
    etcd_client: KeyPair
    apiserver: KeyPair
    controller_manager: KeyPair
    scheduler: KeyPair
    kubelet: KeyPair
    kubelet_client: KeyPair
    front_proxy_client: KeyPair
    service_accounts: KeyPair


def make_secrets(folder: Path) -> Secrets:
    """Make all secrets except the kubeconfigs, which need the API server's address. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    ca, etcd_ca, front = Authority(folder, "ca"), Authority(folder, "etcd-ca"), Authority(folder, "front-proxy-ca")
    return Secrets(
        ca=ca,
        etcd_ca=etcd_ca,
        front_proxy_ca=front,
        etcd=etcd_ca.server("etcd", among_peers=True),
        etcd_client=etcd_ca.client("apiserver-etcd-client", "kube-apiserver-etcd-client"),
        apiserver=ca.server(
            "kube-apiserver", ("kubernetes", "kubernetes.default", "kubernetes.default.svc"), (API_SERVER, SERVICE)
        ),
        controller_manager=ca.server("kube-controller-manager"),
        scheduler=ca.server("kube-scheduler"),
        kubelet=ca.server("kubelet"),
        kubelet_client=ca.client("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        front_proxy_client=front.client("front-proxy-client", "front-proxy-client"),
        service_accounts=signing_key(folder, "service-accounts"),
    )


def write_kubeconfigs(folder: Path, secrets: Secrets, url: str) -> None:
    """Write `<name>.kubeconfig` into `folder` for each of KUBECONFIGS, with mode 0600."""
    for name, identity in KUBECONFIGS.items():
        pair = secrets.ca.client(f"{name}-client", identity.user, identity.groups)
        write_kubeconfig(
            folder / f"{name}.kubeconfig",
            name,
            cluster={"server": url, "certificate-authority": str(secrets.ca.certificate)},
            user={"client-certificate": str(pair.certificate), "client-key": str(pair.key)},
            context="gameday",
        )


def first_bindings() -> Sequence[tuple[str, dict[str, Any]]]:
    """Return what RBAC needs before identities outside the masters group can work, as (collection, object)."""
    group = "rbac.authorization.k8s.io"
    roles, bindings = f"/apis/{group}/v1/clusterroles", f"/apis/{group}/v1/clusterrolebindings"

    def binding(name: str, role: str, kind: str, subject: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
        }

    return (
        (bindings, binding(ADMINS, "cluster-admin", "Group", ADMINS)),
        # RBAC also decides what an API server may do on kubelets: kubeadm binds the same stock role to the same user.
        (
            bindings,
            binding("gameday:apiserver-kubelet", "system:kubelet-api-admin", "User", "kube-apiserver-kubelet-client"),
        ),
        (roles, {"metadata": {"name": NODES_USER}, "rules": _NODES_RULES}),
        (bindings, binding(NODES_USER, NODES_USER, "User", NODES_USER)),
        (roles, {"metadata": {"name": DNS_USER}, "rules": _DNS_RULES}),
        (bindings, binding(DNS_USER, DNS_USER, "User", DNS_USER)),
    )


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_DNS_RULES = [
    _rule("", ["services", "namespaces", "pods"], ["list", "watch"]),
    _rule("discovery.k8s.io", ["endpointslices"], ["list", "watch"]),
]
# What a kubelet does, but no Secret: of its pods' volumes only the service accounts' tokens are mounted.
_NODES_RULES = [
    _rule("", ["nodes"], ["create", "list", "watch", "patch"]),
    _rule("", ["nodes/status"], ["patch"]),
    _rule("", ["pods"], ["list", "watch", "delete"]),
    _rule("", ["pods/status"], ["patch"]),
    # The Node authorizer would grant it only for the accounts of a node's own pods.
    _rule("", ["serviceaccounts/token"], ["create"]),
    _rule("", ["events"], ["create", "patch"]),
    _rule("coordination.k8s.io", ["leases"], ["create", "get", "update"]),
    # A DRA driver's, with which `rehearsal.dra` has the nodes publish their GPUs.
    _rule("resource.k8s.io", ["resourceslices"], ["create", "get", "list", "watch", "update"]),
    _rule("resource.k8s.io", ["resourceclaims"], ["get"]),
]
