"""The addresses in a real node's network namespace."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

NODE = "10.213.255.1"
"""The node's address. The ranges are our own choice: only connections through the gateway ever use them."""
API_SERVER = "10.213.255.2"
"""The gateway's address for the API server, at port 443."""
DNS = "10.213.255.3"
"""CoreDNS's address; kube-proxy drops what goes to addresses of the Services' range that no Service has."""
SERVICE = "10.96.0.1"
"""The address of the Service `kubernetes`, the first of the API server's range."""
PODS = ip_network("10.213.0.0/24")
INSIDE = (ip_network("10.213.0.0/16"), ip_network("10.96.0.0/16"))
"""The networks that are reached only in the namespace."""
REAL_NODE = "real-0"
"""The node's name."""


def api_server_endpoints() -> tuple[str, dict[str, Any]]:
    """Return the endpoints of the Service `kubernetes`, and their collection; the lab's API server writes none."""
    name = "kubernetes"
    return "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [API_SERVER], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": 443, "protocol": "TCP"}],
    }
