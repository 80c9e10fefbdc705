"""The files that a real node's programs start with."""

from __future__ import annotations

import json
from pathlib import Path

from gameday_rehearsal.lab.identities import DNS_USER, Identity, Secrets
from gameday_rehearsal.lab.real_node.image import BUSYBOX
from gameday_rehearsal.lab.real_node.network import API_SERVER, DNS, PODS, REAL_NODE
from kubesim.certificates import KeyPair
from kubesim.kubeconfig import write_kubeconfig

EGRESS = "egress.json"
"""The API servers' egress selector, in the control plane's folder."""
EGRESS_SOCKET = "egress.sock"
SOCKET = "/run/containerd/containerd.sock"
CONTAINERD_METRICS = "127.0.0.1:1338"
KUBELET_HEALTH = "127.0.0.1:10248"
PROXY_HEALTH = "127.0.0.1:10256"
PROXY_METRICS = "127.0.0.1:10249"
DNS_HEALTH = "127.0.0.1:8080"
DNS_METRICS = "127.0.0.1:9153"

# `opt` would make /opt/containerd on this machine. The floor for scores of the OOM killer is containerd's own score:
# without CAP_SYS_RESOURCE a lower one cannot be set, and runc ends with "can't get final child's PID".
_CONTAINERD = """\
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
address = "{socket}"

[metrics]
address = "{metrics}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox}"
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = {plugins}
conf_dir = {networks}

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
BinaryName = {runc}
"""


_COREFILE = """\
.:53 {{
    bind {address}
    health {health}
    prometheus {metrics}
    errors
    kubernetes {domain} in-addr.arpa {{
        kubeconfig {kubeconfig}
    }}
}}
"""
_DOMAIN = "cluster.local"


def write_egress(folder: Path) -> None:
    """Write the file by which API servers reach kubelets and pods through the gateway. Raises OSError."""
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": str(folder / EGRESS_SOCKET)}}}
    content = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }
    (folder / EGRESS).write_text(json.dumps(content), encoding="utf-8")


def write_containerd(folder: Path, plugins: Path, runc: Path) -> Path:
    """Write containerd's configuration and its network; return the former. Raises OSError.

    Args:
        folder: The folder for the files.
        plugins: The folder of the CNI plugins.
        runc: The program.
    """
    networks = folder / "networks"
    networks.mkdir(exist_ok=True)
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": str(PODS)}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    conflist = {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge]}
    (networks / "lab.conflist").write_text(json.dumps(conflist), encoding="utf-8")
    quoted = {name: json.dumps(str(path)) for name, path in (("plugins", plugins), ("networks", networks))}
    config = folder / "containerd.toml"
    values = {"socket": SOCKET, "metrics": CONTAINERD_METRICS, "sandbox": BUSYBOX, "runc": json.dumps(str(runc))}
    config.write_text(_CONTAINERD.format(**values, **quoted), encoding="utf-8")
    return config


def write_kubelet(folder: Path, secrets: Secrets, serving: KeyPair, cgroup: str) -> tuple[Path, Path]:
    """Write kubelet's configuration and its kubeconfig, and return both. Raises OSError.

    Args:
        folder: The folder for the files.
        secrets: The lab's.
        serving: The certificate of kubelet's own port.
        cgroup: The name of the node's control groups.
    """
    host, _, port = KUBELET_HEALTH.rpartition(":")
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(secrets.ca.certificate)}},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "healthzBindAddress": host,
        "healthzPort": int(port),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupRoot": f"/{cgroup}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [DNS],
        "clusterDomain": _DOMAIN,
        "resolvConf": "",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # An image that is gone cannot be fetched again, and a workstation's disk may be fuller than a node's.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1Gi", "imagefs.available": "1Gi"},
    }
    file = folder / "kubelet.json"
    file.write_text(json.dumps(config, indent=1), encoding="utf-8")
    identity = Identity(f"system:node:{REAL_NODE}", ("system:nodes",))
    return file, write_node_kubeconfig(folder, secrets, "kubelet", identity)


def write_proxy(folder: Path, secrets: Secrets) -> Path:
    """Write kube-proxy's configuration and return it. Raises OSError."""
    kubeconfig = write_node_kubeconfig(folder, secrets, "kube-proxy", Identity("system:kube-proxy"))
    config = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "hostnameOverride": REAL_NODE,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": PROXY_HEALTH,
        "metricsBindAddress": PROXY_METRICS,
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": str(PODS),
        # The machine's, all three.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
    file = folder / "kube-proxy.json"
    file.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return file


def write_dns(folder: Path, secrets: Secrets) -> Path:
    """Write CoreDNS's configuration and return it. Raises OSError."""
    kubeconfig = write_node_kubeconfig(folder, secrets, "coredns", Identity(DNS_USER))
    values = {"address": DNS, "health": DNS_HEALTH, "metrics": DNS_METRICS, "domain": _DOMAIN}
    file = folder / "Corefile"
    file.write_text(_COREFILE.format(**values, kubeconfig=kubeconfig), encoding="utf-8")
    return file


def write_node_kubeconfig(folder: Path, secrets: Secrets, name: str, identity: Identity) -> Path:
    """Write the kubeconfig of a program in the node, and return it. Raises OSError."""
    pair = secrets.ca.client(f"{REAL_NODE}-{name}-client", identity.user, identity.groups)
    kubeconfig = folder / f"{name}.kubeconfig"
    write_kubeconfig(
        kubeconfig,
        name,
        cluster={"server": f"https://{API_SERVER}", "certificate-authority": str(secrets.ca.certificate)},
        user={"client-certificate": str(pair.certificate), "client-key": str(pair.key)},
        context="gameday",
    )
    return kubeconfig
