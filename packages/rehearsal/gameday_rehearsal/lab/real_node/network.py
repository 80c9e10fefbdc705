"""The addresses in a real node's network namespace."""

from __future__ import annotations

from ipaddress import ip_network

NODE = "10.213.255.1"
"""The node's address. The ranges are our own choice: only connections through the gateway ever use them."""
API_SERVER = "10.213.255.2"
"""The gateway's address for the API server, at port 443."""
SERVICE = "10.96.0.1"
"""The address of the Service `kubernetes`, the first of the API server's range."""
PODS = ip_network("10.213.0.0/24")
INSIDE = (ip_network("10.213.0.0/16"), ip_network("10.96.0.0/16"))
"""The networks that are reached only in the namespace."""
REAL_NODE = "real-0"
"""The node's name."""
