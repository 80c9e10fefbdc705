"""The API account of a pod: the files from its kubelet with which it can use the API server."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

from gameday.errors import HostError
from gameday.host.base import ApiServer

IN_CLUSTER_FOLDER = "var/run/secrets/kubernetes.io/serviceaccount"
"""The folder of a pod's token below `/`, as the admission plugin ServiceAccount writes it into the pod
(kubernetes.io, Managing Service Accounts)."""
TOKEN, AUTHORITY, NAMESPACE = "token", "ca.crt", "namespace"
API_SERVER_VARIABLE = "GAMEDAY_API_SERVER"
"""The API server's URL, which a virtual kubelet gives to pods with an API account."""
NODE_VARIABLE = "GAMEDAY_NODE"
"""The name of the agent's node, in agents with an API account."""
API_ACCOUNT_VARIABLE = "GAMEDAY_API_ACCOUNT"
"""The folder with the files of such a pod's account."""


def in_cluster(environment: Mapping[str, str], folder: Path) -> ApiServer:
    """Return how a pod of a real cluster reaches the API server.

    Raises:
        HostError: The pod has no account, or its environment does not name the API server.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise HostError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod of a cluster, and has no"
            " way to the API server"
        )
    return _with_files(f"https://{_in_url(host)}:{port}", folder, environment)


def on_virtual_node(environment: Mapping[str, str]) -> ApiServer:
    """Return how a pod of a virtual node reaches the API server.

    Raises:
        HostError: The pod has no account.
    """
    url, folder = environment.get(API_SERVER_VARIABLE, ""), environment.get(API_ACCOUNT_VARIABLE, "")
    if not url or not folder:
        raise HostError(f"the virtual node gave this pod no API account; {_REMEDY}")
    return _with_files(url, Path(folder), environment)


_REMEDY = "create it with a serviceAccountName and automountServiceAccountToken: true"


def _with_files(url: str, folder: Path, environment: Mapping[str, str]) -> ApiServer:
    for name in (TOKEN, AUTHORITY):
        if not (folder / name).is_file():
            raise HostError(f"this pod has no API account: {folder / name} is missing; {_REMEDY}")
    node = environment.get(NODE_VARIABLE, "")
    return ApiServer(url=url, ca_file=folder / AUTHORITY, token_file=folder / TOKEN, node=node)


def _in_url(host: str) -> str:
    """Return the host as it stands in a URL: an IPv6 address in brackets."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host
