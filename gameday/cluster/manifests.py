"""Our pods and jobs as data: the agent on a node, and the canaries that prove what a taint is for.

Built as plain data, never from a text template, so that no parameter can
become syntax.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from gameday.cluster.kubernetes import GPU
from gameday.cluster.profile import ClusterProfile

RUN_LABEL = "gameday.dev/run"
ROLE_LABEL = "gameday.dev/role"
_STATE_DIR = "/run/gameday"
# A pod that only asks for a GPU and sleeps; the pause image is on every node.
_CANARY_IMAGE = "registry.k8s.io/pause:3.10"
# Everything, so that the agent reaches a node whatever taint it carries.
_TOLERATE_ALL = [{"operator": "Exists"}]
# Seconds an agent gets to undo after SIGTERM before the kubelet kills it: three attempts, each with host calls of
# up to 10 s (gameday/agent/inject.py), and the pauses between them.
AGENT_GRACE_S = 60


def agent_pod(
    name: str,
    *,
    task: str,
    role: str,
    run_id: str,
    node: str,
    profile: ClusterProfile,
    deadline: timedelta,
) -> dict[str, Any]:
    """The agent on one node. `task` is the order as JSON; `deadline` is the pod's own, the dead-man's switch.

    Privileged with hostPID: writing /dev/kmsg and entering the host's
    namespaces for nvidia-smi and systemctl need both. It has no API token.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, run_id, role),
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "serviceAccountName": "gameday-agent",
            "automountServiceAccountToken": False,
            "hostPID": True,
            "activeDeadlineSeconds": max(1, round(deadline.total_seconds())),
            "terminationGracePeriodSeconds": AGENT_GRACE_S,
            "tolerations": _TOLERATE_ALL,
            "containers": [
                {
                    "name": "agent",
                    "image": profile.agent_image,
                    "args": ["-m", "gameday.agent"],
                    "env": [
                        {"name": "GAMEDAY_TASK", "value": task},
                        {"name": "GAMEDAY_STATE_DIR", "value": _STATE_DIR},
                    ],
                    "securityContext": {"privileged": True},
                    "readinessProbe": {
                        "exec": {"command": ["cat", f"{_STATE_DIR}/ready"]},
                        "periodSeconds": 1,
                        "failureThreshold": 1,
                    },
                    "volumeMounts": [{"name": "state", "mountPath": _STATE_DIR}],
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                }
            ],
            "volumes": [{"name": "state", "emptyDir": {}}],
        },
    }


def gpu_canary(name: str, *, run_id: str, node: str) -> dict[str, Any]:
    """A pod that asks for one GPU on exactly this node, through the scheduler, with no toleration of ours."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, run_id, "canary"),
        "spec": _gpu_sleeper({"kubernetes.io/hostname": node}),
    }


def gpu_job(name: str, *, run_id: str, selector: dict[str, str]) -> dict[str, Any]:
    """A one-pod GPU job any matching node may take: what a user's controller would resubmit."""
    template = {"metadata": {"labels": _labels(run_id, "resubmitted")}, "spec": _gpu_sleeper(selector)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, run_id, "resubmitted"),
        "spec": {"backoffLimit": 0, "template": template},
    }


def _gpu_sleeper(selector: dict[str, str]) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # Gone by itself within ten minutes, should everybody who could delete it be dead.
        "activeDeadlineSeconds": 600,
        "nodeSelector": selector,
        "containers": [
            {
                "name": "gpu",
                "image": _CANARY_IMAGE,
                "resources": {"limits": {GPU: "1"}, "requests": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 65534},
            }
        ],
    }


def _labels(run_id: str, role: str) -> dict[str, str]:
    return {RUN_LABEL: run_id, ROLE_LABEL: role, "app.kubernetes.io/managed-by": "gameday"}


def _metadata(name: str, run_id: str, role: str) -> dict[str, Any]:
    return {"name": name, "labels": _labels(run_id, role)}
