"""The API server's own record of who asked for what: it shows what a game-day costs and which rights it uses."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Without requests of the cluster's own components and heartbeats of nodes, which would drown the rest.
        {
            "level": "None",
            "users": ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler"],
        },
        {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
        # Not the bodies: logging answers of LISTs costs an API server its memory (kubernetes/kubernetes#131720).
        {"level": "Metadata"},
    ],
}


def audit_flags(folder: Path, number: int) -> dict[str, object]:
    """Write the audit policy, and return the flags for kube-apiserver.

    Args:
        folder: The log is `audit.log` here, one JSON event a line; for the second API server it is `audit-2.log`.
        number: The API server, counted from 1.
    """
    policy = folder / "audit-policy.yaml"
    with policy.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(_POLICY, file)
    return {
        "audit-policy-file": policy,
        "audit-log-path": folder / ("audit.log" if number == 1 else f"audit-{number}.log"),
        "audit-log-maxsize": 100,  # MB, then one older file is kept
        "audit-log-maxbackup": 1,
    }
