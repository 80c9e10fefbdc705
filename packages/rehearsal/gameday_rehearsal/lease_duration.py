"""The duration of the nodes' Leases, by the number of virtual nodes."""

from __future__ import annotations

import math

_STOCK_S = 40  # kubelet's nodeLeaseDurationSeconds
_RENEWALS_PER_S = 100  # our choice: what the control plane of two cores can handle beside its other work
RENEWALS = 4
"""Renewals within one duration, the same as kubelet's."""
_SLACK_S = 10  # stock: node-monitor-grace-period of 50 s beside Leases of 40 s (Kubernetes 1.32 and later)


def lease_duration_s(nodes: int) -> int:
    """Return leaseDurationSeconds: kubelet's 40 up to 1,000 nodes, and more above, so that 100 are renewed a second.

    Kubelets of large clusters are configured like this, too: 5,000 stock ones send 500 renewals a second.
    """
    return max(_STOCK_S, math.ceil(nodes * RENEWALS / _RENEWALS_PER_S))


def monitor_grace_s(nodes: int) -> int:
    """Return the silence after which the cluster counts a node as gone (node-monitor-grace-period)."""
    return lease_duration_s(nodes) + _SLACK_S
