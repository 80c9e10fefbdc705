"""Step 4 sends a target a pod that no single NUMA node can serve: its Topology Manager must reject it.

Unlike the canary it measures nothing; the finding is the kubelet's answer at admission.
"""

from __future__ import annotations

from gameday.cluster.manifests import misaligned_pod
from gameday.cluster.pods import PodSeen
from gameday.errors import KubernetesError
from gameday.expect.topology_manager_rejects import MisalignedPod
from gameday.history.events import WorkloadSeen
from gameday.ledger.entries import DeletePod
from gameday.observe.injected_fault import InjectedFault
from gameday.run.agents import AGENT_START_TIMEOUT
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget

ORDER = 4
# The kubelet's reason (pkg/kubelet/cm/topologymanager).
_REJECTED = "TopologyAffinityError"


def during_fault(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Send the plan's pod if there is room for it, and note whether the kubelet rejects it."""
    wanted, target = run.plan.expect.topology_manager_rejects, fault.target
    if wanted is None:
        return
    name = run.record.object_name("misaligned", target.index)
    free = max(0, run.nodes.free_gpus(target.node))
    if free < wanted.gpus:
        why = f"{free} GPU(s) of {target.node} are free; it asks for {wanted.gpus}"
        _note(run, result, target, name, None, None, why)
        return
    duration, template = run.plan.guardrails.max_duration, run.gpu_pod_template
    undo = DeletePod(pod=name)
    entry = run.intend(f"misaligned-{target.index}", f"create pod {name}", undo, target.node, duration)
    manifest = misaligned_pod(
        name, run_id=run.id, node=target.node, template=template, gpus=wanted.gpus, cpus=wanted.cpus
    )
    try:
        run.kubernetes.create_pod(manifest)
    except KubernetesError as error:  # rejected by a quota, for example, and not by the kubelet
        _note(run, result, target, name, None, None, f"it could not be created: {error}")
        run.undo(entry)
        return

    def decided() -> PodSeen | None:
        pod = run.pods.seen(name)
        is_decided = pod and (pod.ended or pod.unschedulable or pod.phase == "Running")
        return pod if is_decided else None

    run.wait(f"the kubelet's decision on pod {name}", AGENT_START_TIMEOUT, decided)
    pod = run.pods.seen(name)
    _note(run, result, target, name, pod, *judge_rejection(pod, wanted))
    run.undo(entry)


def judge_rejection(pod: PodSeen | None, wanted: MisalignedPod) -> tuple[bool | None, str]:
    """Return True if the pod was rejected for its topology, and why; None if that is unknown."""
    if pod is None:
        return None, "the pod was never seen"
    if pod.phase == "Failed" and pod.reason == _REJECTED:
        return True, f"rejected: {_REJECTED}"
    if pod.phase in ("Running", "Succeeded"):
        return False, f"{pod.node} admitted it: its policy is not single-numa-node, or a NUMA node has {wanted.size}"
    if pod.unschedulable:
        return None, f"there is no room for it: {pod.unschedulable}"
    return None, f"it neither ran nor was rejected for its topology: {f'{pod.phase} {pod.reason}'.strip()}"


def _note(
    run: Run, result: StepResult, target: ChosenTarget, name: str, pod: PodSeen | None, ok: bool | None, detail: str
) -> None:
    run.note(
        WorkloadSeen(
            purpose="misaligned",
            pod=name,
            node=pod.node if pod else None,
            phase=pod.phase if pod else "",
            wanted=f"rejected by the kubelet of {target.node}",
            ok=ok,
            detail=detail,
        )
    )
    if ok is None:
        result.mark_unknown(f"whether {target.node} rejects a misaligned pod is not known: {detail}")
    elif not ok:
        result.mark_broken(f"a misaligned pod was not rejected: {detail}")
