"""Our pods and jobs as data: the agent on a node, and the canaries that show where GPU work lands.

They are built as plain data, never from a text template, so that no parameter can become syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gameday.cluster.nodes import GPU_RESOURCE
from gameday.cluster.profile import ClusterProfile
from gameday.host.api_account import NODE_VARIABLE
from gameday.host.privileges import PodSecurity
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass

RUN_LABEL = "gameday.dev/run"
EPISODE_LABEL = "gameday.dev/repair-episode"
"""The label of an agent's pod that repairs a node for the node-health controller, and belongs to no run."""
ROLE_LABEL = "gameday.dev/role"
_STATE_DIR = "/run/gameday"
# The agent has to reach a node with any taint.
_TOLERATE_ALL = [{"operator": "Exists"}]
_AGENT = "agent"
# NVIDIA's container runtime reads these to bring NVML and CUDA into a pod without GPUs from a device plugin; the GPU
# operator's NRI plugin reads the annotation, in namespaces that it allows (docs/sources.md, GPU operator).
_ALL_GPUS = (
    {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
)
NRI_ANNOTATION = "nvidia.cdi.k8s.io/container."
"""The prefix of the annotation by which a container, named after it, asks NVIDIA's NRI plugin for devices."""
_ALL_GPUS_BY_NRI = {f"{NRI_ANNOTATION}{_AGENT}": "management.nvidia.com/gpu=all"}
# Seconds an agent gets to undo after SIGTERM before the kubelet kills it: three attempts, each with host calls of up to
# 10 s (gameday/agent/inject.py), and the pauses between them.
AGENT_GRACE_S = 60


@dataclass(frozen=True)
class GpuPodTemplate:
    """A cluster's settings for our GPU pods that go through the scheduler; they ask for GPUs and sleep."""

    image: str
    priority_class: str
    """A class that never preempts: otherwise the scheduler would delete a user's pod of lower priority on a full
    node."""
    tolerated_taint_keys: tuple[str, ...]
    """Keys of the taints that every GPU node of the cluster may carry. A pod that asks for GPUs tolerates these by
    itself only if the admission plugin ExtendedResourceToleration is on, which is not the default."""


def agent_pod(
    name: str,
    *,
    task: str,
    role: str,
    run_id: str,
    node: str,
    profile: ClusterProfile,
    deadline: timedelta,
    security: PodSecurity,
    gpus: int = 0,
    priority_class: str | None = None,
    owner_label: str = RUN_LABEL,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the agent's pod for one node; it has an API token only with an `account`.

    Args:
        name: The pod's name.
        task: The agent's task as JSON.
        role: The task's role, as a label.
        run_id: The run, as a label; the episode, if `owner_label` is EPISODE_LABEL.
        node: The node; the pod goes there without the scheduler.
        profile: The cluster's.
        deadline: The pod's own activeDeadlineSeconds, the dead-man's switch.
        security: The privileges that the task needs on the node.
        gpus: The GPUs to ask the device plugin for.
        priority_class: None for the cluster's default.
        owner_label: The label that names the pod's owner. Pods with RUN_LABEL are deleted when their run is dead.
        account: The service account of the pod at the API server; None: none, as on every GPU node.
    """
    takes_all_gpus = security.privileged and not gpus
    annotations = {"annotations": _ALL_GPUS_BY_NRI} if takes_all_gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, run_id, role, owner_label) | annotations,
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "serviceAccountName": account or "gameday-agent",
            "automountServiceAccountToken": account is not None,
            **({"runtimeClassName": profile.agent_runtime_class} if profile.agent_runtime_class else {}),
            **({"priorityClassName": priority_class} if priority_class else {}),
            "hostPID": security.host_pid,
            "activeDeadlineSeconds": max(1, round(deadline.total_seconds())),
            "terminationGracePeriodSeconds": AGENT_GRACE_S,
            "tolerations": _TOLERATE_ALL,
            "containers": [
                _agent(
                    profile.agent_image,
                    task,
                    security,
                    gpus,
                    pod=f"{profile.namespace}/{name}",
                    node=node if account else "",
                )
            ],
            "volumes": [{"name": "state", "emptyDir": {}}],
        },
    }


_PROBE_GRACE_S = 10
"""Seconds that a probe gets to end: its loads check for that four times a second, its last measurements take one."""


def probe_pod(
    name: str,
    *,
    task: str,
    run_id: str,
    node: str,
    gpus: int,
    profile: ClusterProfile,
    deadline: timedelta,
    security: PodSecurity,
    template: GpuPodTemplate,
) -> dict[str, Any]:
    """Return the agent's pod that measures free GPUs of exactly this node, and comes through the scheduler.

    So it never gets another pod's GPU, the scheduler counts its own as used, and it gives way to any pod of higher
    priority that waits for one.

    Args:
        name: The pod's name.
        task: The agent's task as JSON.
        run_id: The fleet run, as a label.
        node: The node.
        gpus: The GPUs to ask for.
        profile: The cluster's.
        deadline: The pod's own activeDeadlineSeconds.
        security: The privileges that the task needs on the node.
        template: Its priority class, and the taints that it tolerates.
    """
    pod = agent_pod(
        name,
        task=task,
        role="probe",
        run_id=run_id,
        node=node,
        profile=profile,
        deadline=deadline,
        security=security,
        gpus=gpus,
        priority_class=template.priority_class,
    )
    del pod["spec"]["nodeName"]
    pod["spec"] |= _only_on(node) | {
        "terminationGracePeriodSeconds": _PROBE_GRACE_S,
        "tolerations": [{"key": key, "operator": "Exists"} for key in template.tolerated_taint_keys],
    }
    return pod


def _agent(image: str, task: str, security: PodSecurity, gpus: int, *, pod: str, node: str) -> dict[str, Any]:
    """Return the container of an agent's pod; an empty `node` leaves the node's name out."""
    return {
        "name": _AGENT,
        "image": image,
        # The agent that undoes must not need the registry: the first agent brought the image.
        "imagePullPolicy": "IfNotPresent",
        "args": ["-m", "gameday.agent"],
        "env": [
            {"name": "GAMEDAY_TASK", "value": task},
            {"name": "GAMEDAY_STATE_DIR", "value": _STATE_DIR},
            *([{"name": "GAMEDAY_POD", "value": pod}] if gpus else ()),
            *([{"name": NODE_VARIABLE, "value": node}] if node else ()),
            *(_ALL_GPUS if security.privileged and not gpus else ()),
        ],
        "securityContext": _security_context(security),
        "readinessProbe": {
            "exec": {"command": ["cat", f"{_STATE_DIR}/ready"]},
            "periodSeconds": 1,
            "failureThreshold": 1,
        },
        "volumeMounts": [{"name": "state", "mountPath": _STATE_DIR}],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            **({"limits": {GPU_RESOURCE: str(gpus)}} if gpus else {}),
        },
    }


def _security_context(security: PodSecurity) -> dict[str, Any]:
    """Return the container's security context; always root, because the host's files and daemons belong to root.

    AppArmor's default profile forbids the uses for which the capabilities are granted, so it is off with them.
    """
    if security.privileged:
        return {"privileged": True, "runAsUser": 0}
    return {
        "runAsUser": 0,
        "capabilities": {"drop": ["ALL"], "add": list(security.capabilities)},
        "seccompProfile": {"type": "RuntimeDefault"},
        "appArmorProfile": {"type": "Unconfined" if security.capabilities else "RuntimeDefault"},
    }


def gpu_canary(name: str, *, run_id: str, node: str, template: GpuPodTemplate) -> dict[str, Any]:
    """Return a pod that asks for one GPU on exactly this node, through the scheduler."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, run_id, "canary"),
        "spec": _gpu_sleeper(template) | _only_on(node),
    }


def misaligned_pod(
    name: str, *, run_id: str, node: str, template: GpuPodTemplate, gpus: int, cpus: int
) -> dict[str, Any]:
    """Return a pod of QoS Guaranteed for exactly this node, with whole CPUs, so that a static CPU Manager pins it.

    It comes through the scheduler, because only that tells "no room" from "not from one NUMA node".
    """
    spec = _gpu_sleeper(template) | _only_on(node)
    asked = {GPU_RESOURCE: str(gpus), "cpu": str(cpus), "memory": "16Mi"}
    spec["containers"][0]["resources"] = {"limits": asked, "requests": asked}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, run_id, "misaligned"),
        "spec": spec,
    }


def gpu_job(name: str, *, run_id: str, selector: dict[str, str], template: GpuPodTemplate) -> dict[str, Any]:
    """Return a job of one GPU pod that any matching node may take, like one that a user's controller resubmits."""
    spec = _gpu_sleeper(template) | {"nodeSelector": selector}
    pod = {"metadata": {"labels": _labels(run_id, "resubmitted")}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, run_id, "resubmitted"),
        "spec": {"backoffLimit": 0, "template": pod},
    }


def gang_pod(
    name: str, *, run_id: str, selector: dict[str, str], template: GpuPodTemplate, prefers_fast: bool
) -> dict[str, Any]:
    """Return a pod of one GPU that any matching node may take, a member of a gang.

    Args:
        name: The pod's name.
        run_id: The run, as a label.
        selector: Labels of the nodes that may take it.
        template: The cluster's settings.
        prefers_fast: Give it the node affinity by GPU classes in docs/fleet.md.
    """
    spec = _gpu_sleeper(template) | {"nodeSelector": selector} | (_prefers_fast() if prefers_fast else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name, run_id, "gang"), "spec": spec}


def _prefers_fast() -> dict[str, Any]:
    """Return the node affinity of docs/fleet.md: 100 for a fast node, 50 for one that is not slow, 0 for a slow one."""
    terms = (("NotIn", GpuClass.SLOW), ("In", GpuClass.FAST))
    preferred = [
        {"weight": 50, "preference": {"matchExpressions": [_gpu_class(operator, value)]}} for operator, value in terms
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def _gpu_class(operator: str, value: GpuClass) -> dict[str, Any]:
    return {"key": GPU_CLASS_LABEL, "operator": operator, "values": [str(value)]}


_JOB_OUTLASTS_POD_S = 60


@dataclass(frozen=True)
class ProbeJob:
    """The parts of a probe's job that its plan chooses."""

    command: tuple[str, ...]
    image: str
    gpus: int
    node: str | None
    """The node that its pod must run on; None: any."""
    ends_within: timedelta


def probe_job(name: str, *, run_id: str, job: ProbeJob, template: GpuPodTemplate) -> dict[str, Any]:
    """Return a job of one pod without privileges, account or second try, which ends by itself and is then removed."""
    spec = _gpu_sleeper(template) | (_only_on(job.node) if job.node else {})
    seconds = max(1, round(job.ends_within.total_seconds()))
    container = spec["containers"][0] | {
        "name": "probe",
        "image": job.image,
        "command": list(job.command),
        "resources": {
            "limits": {"cpu": "1", "memory": "1Gi", **({GPU_RESOURCE: str(job.gpus)} if job.gpus else {})},
            "requests": {"cpu": "10m", "memory": "16Mi"},
        },
    }
    container["securityContext"] |= {
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec |= {"activeDeadlineSeconds": seconds, "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, run_id, "probe"),
        "spec": {
            "backoffLimit": 0,
            # The pod's own deadline comes first, and leaves a failed pod; this one removes a pod that found no place.
            "activeDeadlineSeconds": seconds + _JOB_OUTLASTS_POD_S,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": _labels(run_id, "probe")}, "spec": spec},
        },
    }


def _only_on(node: str) -> dict[str, Any]:
    """Return an affinity like that of DaemonSet pods: the scheduler then judges and names only this node.

    With a node selector the message would name other nodes' taints, too, such as a control plane's.
    """
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [named]}}
    return {"affinity": {"nodeAffinity": required}}


def _gpu_sleeper(template: GpuPodTemplate) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "priorityClassName": template.priority_class,
        "tolerations": [{"key": key, "operator": "Exists"} for key in template.tolerated_taint_keys],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        # It ends by itself within ten minutes, even if everybody who could delete it is dead.
        "activeDeadlineSeconds": 600,
        "containers": [
            {
                "name": "gpu",
                "image": template.image,
                "resources": {"limits": {GPU_RESOURCE: "1"}, "requests": {"cpu": "10m", "memory": "16Mi"}},
                "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 65534},
            }
        ],
    }


def _labels(owner: str, role: str, owner_label: str = RUN_LABEL) -> dict[str, str]:
    return {owner_label: owner, ROLE_LABEL: role, "app.kubernetes.io/managed-by": "gameday"}


def _metadata(name: str, owner: str, role: str, owner_label: str = RUN_LABEL) -> dict[str, Any]:
    return {"name": name, "labels": _labels(owner, role, owner_label)}
