"""The changes that a run would make in the cluster, for the dry run and for the person who approves.

They use the same manifests and orders as the steps. A test compares the list with what a real run writes into its
history.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from gameday.agent.task import InjectTask, RemediateTask
from gameday.cluster.manifests import gang_pod, gpu_canary, gpu_job, misaligned_pod, probe_job
from gameday.cluster.operands import AWAY
from gameday.documents.fields import format_duration
from gameday.errors import ForeignPauseError, StepFailedError
from gameday.expect.canary import ExpectedAllReduce
from gameday.faults.optional import needs_of, warnings_of
from gameday.guard.preflight import preflight_modules
from gameday.ledger.lease import CLUSTER_LEASE, node_lease
from gameday.ledger.ledger import ledger_name
from gameday.plan.fault import FaultParameters
from gameday.remediations.registry import remediation_for
from gameday.run.agents import (
    AGENT_START_TIMEOUT,
    SAMPLE_EVERY_S,
    SentTask,
    agent_manifest,
    injector_deadline,
    mark_task,
    qa_task,
    sample_task,
    samples_nvml,
)
from gameday.run.all_reduce import ALL_REDUCE_TIMEOUT, all_reduce_task, choose_peers
from gameday.run.canary import CANARY_TIMEOUT, CanaryPhase, canary_task, is_told_by_injector
from gameday.run.drain import pods_to_drain
from gameday.run.operands import movable_operands
from gameday.run.probes import probe_order
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import ChosenTarget, Targets, pool_labels
from gameday.values.nodes import NodeRole
from gameday.values.results import Step

Json = dict[str, Any]
_LATER = "made when the run sends it"


@dataclass(frozen=True)
class PlannedChange:
    """A change that the run would make in the cluster."""

    step: Step
    verb: Literal["create", "patch", "evict"]
    object: str
    """The object as the ledger names it, `kind/name`."""
    why: str
    node: str | None = None
    manifest: Json | None = None
    """The object that would be sent; None if it depends on the cluster's state during the run."""


def planned_changes(run: ReadOnlyRun, targets: Targets) -> list[PlannedChange]:
    """Return every change that the run would make, in the order of the steps; it deletes again what it creates."""
    found = list(_locks(run, targets))
    for module in preflight_modules("planned_changes"):
        found += module.planned_changes(run, targets)
    found += _probe_jobs(run, [target.node for target in targets])
    for target in targets:
        if run.plan.fault.runs_on is NodeRole.API_CLIENT:
            found.append(_injector(run, Step.INJECT, "inject", target, run.plan.fault))
        else:
            found += _changes_on_target(run, target)
    found += _gang(run)
    return sorted(found, key=lambda change: list(Step).index(change.step))


def _locks(run: ReadOnlyRun, targets: Targets) -> Iterator[PlannedChange]:
    leases = [CLUSTER_LEASE] if run.member is None else []
    for name in (*leases, *(node_lease(target.node) for target in targets)):
        manifest = _object("coordination.k8s.io/v1", "Lease", run, name, {"spec": {"holderIdentity": run.id}})
        yield PlannedChange(Step.BASELINE, "create", f"lease/{name}", "one game-day at a time", manifest=manifest)
    name = ledger_name(run.id)
    why = "the ledger: every intent with its undo, patched as the run goes on"
    yield PlannedChange(
        Step.BASELINE, "create", f"configmap/{name}", why, manifest=_object("v1", "ConfigMap", run, name, {})
    )


def _object(version: str, kind: str, run: ReadOnlyRun, name: str, content: Json) -> Json:
    metadata = {"name": name, "namespace": run.profile.namespace}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def _gang(run: ReadOnlyRun) -> Iterator[PlannedChange]:
    """Yield the gang's pods; none is sent if the fast nodes have no room for all of them."""
    wanted = run.plan.expect.placement
    if wanted is None:
        return
    for index in range(wanted.pods):
        name = run.record.object_name("gang", index)
        manifest = gang_pod(
            name,
            run_id=run.id,
            selector=pool_labels(run),
            template=run.gpu_pod_template,
            prefers_fast=wanted.prefers_fast,
        )
        why = "a pod of a gang, to see whether it lands on a node with fast GPUs"
        yield PlannedChange(Step.VERIFY_TAINT, "create", f"pod/{name}", why, None, manifest)


def _probe_jobs(run: ReadOnlyRun, nodes: Sequence[str]) -> Iterator[PlannedChange]:
    """Yield the first job of each probe; the number of later ones depends on when they end."""
    for probe in run.plan.expect.probes:
        if probe.job:
            name = run.record.object_name(f"probe-{probe.name}-0")
            order = probe_order(probe.job, nodes, run.gpu_pod_template)
            manifest = probe_job(name, run_id=run.id, job=order, template=run.gpu_pod_template)
            why = f"the first job of probe {probe.name}; more follow while the fault is in, or after it"
            yield PlannedChange(Step.BASELINE, "create", f"job/{name}", why, order.node, manifest)


def _changes_on_target(run: ReadOnlyRun, target: ChosenTarget) -> Iterator[PlannedChange]:
    plan, node, template = run.plan, target.node, run.gpu_pod_template
    why = "a harmless line in the kernel log"
    yield agent_change(run, Step.BASELINE, "mark", target, mark_task(run, target), AGENT_START_TIMEOUT, why)
    if samples_nvml(plan):
        longest, why = plan.guardrails.max_duration, f"read NVML every {SAMPLE_EVERY_S:g} s, until the fault is out"
        yield agent_change(run, Step.BASELINE, "sample", target, sample_task(run, target), longest, why)
    yield from _canary(run, Step.BASELINE, "before", target)
    needs = needs_of(plan.fault)
    if needs.operands_away:
        yield from _operands(run, Step.INJECT, node, "reset" if needs.operands_away_to_undo else "removal")
    yield _injector(run, Step.INJECT, "inject", target, plan.fault)
    yield from _canary(run, Step.VERIFY_TAINT, "during", target)
    probe = plan.expect.topology_manager_rejects
    if probe and run.nodes.free_gpus(node) >= probe.gpus:
        name, why = _name(run, "misaligned", target), "a pod that no NUMA node can serve alone: to be rejected"
        manifest = misaligned_pod(name, run_id=run.id, node=node, template=template, gpus=probe.gpus, cpus=probe.cpus)
        yield PlannedChange(Step.VERIFY_TAINT, "create", f"pod/{name}", why, node, manifest)
    if plan.expect.expects_quarantine and not plan.recover.is_hands_off:
        name, why = _name(run, "canary", target), "a GPU pod that the quarantine must keep off this node"
        manifest = gpu_canary(name, run_id=run.id, node=node, template=template)
        yield PlannedChange(Step.VERIFY_TAINT, "create", f"pod/{name}", why, node, manifest)
        name, why = _name(run, "resubmit", target), "a GPU job that must run on a healthy node"
        manifest = gpu_job(name, run_id=run.id, selector=pool_labels(run), template=template)
        yield PlannedChange(Step.VERIFY_TAINT, "create", f"job/{name}", why, None, manifest)
    if needs.operands_away_to_undo:
        yield from _operands(run, Step.RECOVER, node, "reset")
    if plan.recover.repairs_node:
        yield from _repair(run, target)
    if not plan.recover.gives_node_back:
        return
    yield agent_change(run, Step.QA_NODE, "qa", target, qa_task(run, target), plan.qa.longest, "prove the node good")
    yield from _canary(run, Step.QA_NODE, "after", target)
    yield from _return(run, target)


def _canary(run: ReadOnlyRun, step: Step, phase: CanaryPhase, target: ChosenTarget) -> Iterator[PlannedChange]:
    """Yield the canary's pod, which is not sent if it needs GPUs and none is free; then those of an all-reduce."""
    expected = run.plan.expect.canary
    gpus = run.nodes.free_gpus(target.node) if expected and expected.measure.owns_gpus else 0
    if expected and (gpus > 0 or not (expected.measure.owns_gpus or is_told_by_injector(expected, phase))):
        task, why = canary_task(run, expected, target, phase, gpus), f"measure {expected.measure} {phase}"
        yield agent_change(run, step, f"canary-{phase}", target, task, CANARY_TIMEOUT, why)
    if run.plan.expect.all_reduce:
        yield from _all_reduce(run, step, phase, target, run.plan.expect.all_reduce)


def _all_reduce(
    run: ReadOnlyRun, step: Step, phase: CanaryPhase, target: ChosenTarget, expected: ExpectedAllReduce
) -> Iterator[PlannedChange]:
    """Yield a pod for each node; with too few peers none is sent and the measurement is unknown."""
    with suppress(StepFailedError):
        if expected.gpus and run.nodes.free_gpus(target.node) < expected.gpus:
            return
        nodes = (target.node, *choose_peers(run, target.node, expected.nodes - 1, {}, gpus=expected.gpus))
        for rank, node in enumerate(nodes):
            purpose = f"all-reduce-{phase}" + (f"-rank-{rank}" if rank else "")
            task = all_reduce_task(run, expected, nodes, rank, phase, _LATER, 0)
            name, why = _name(run, purpose, target), f"rank {rank} of an all-reduce of {len(nodes)} nodes {phase}"
            manifest = agent_manifest(run, name, task, ALL_REDUCE_TIMEOUT)
            yield PlannedChange(step, "create", f"pod/{name}", why, node, manifest)


def _repair(run: ReadOnlyRun, target: ChosenTarget) -> Iterator[PlannedChange]:
    recover, node = run.plan.recover, target.node
    if remediation_for(recover.remediation).drains_node:
        yield from _drain(run, node)
    if remediation_for(recover.remediation).needs_idle_gpu:
        yield from _operands(run, Step.RECOVER, node, "reset")
    if recover.fault_during:
        yield _injector(run, Step.RECOVER, "disturb", target, recover.fault_during)
    task = RemediateTask(run_id=run.id, node=node, gpu=target.gpu, action=recover.remediation)
    within = recover.within + AGENT_START_TIMEOUT
    yield agent_change(run, Step.RECOVER, "remediate", target, task, within, f"repair: {recover.remediation}")


def _operands(run: ReadOnlyRun, step: Step, node: str, before: Literal["reset", "removal"]) -> Iterator[PlannedChange]:
    """Yield the change that sends the GPU operator's operands away; the baseline refuses if it is impossible."""
    with suppress(ForeignPauseError):
        if labels := movable_operands(run, node):
            metadata = {"name": node, "labels": dict.fromkeys(labels, AWAY)}
            patch = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
            why = f"the GPU operator's operands leave before the {before}, and come back after it"
            yield PlannedChange(step, "patch", f"node/{node}", why, node, patch)


def _drain(run: ReadOnlyRun, node: str) -> Iterator[PlannedChange]:
    cordoned = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"unschedulable": True}}
    yield PlannedChange(Step.RECOVER, "patch", f"node/{node}", "cordon it", node, cordoned)
    for pod in pods_to_drain(run, node):
        metadata = {"name": pod.name, "namespace": pod.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        why = "its node is to be repaired; its PodDisruptionBudgets are asked"
        yield PlannedChange(Step.RECOVER, "evict", f"pod/{pod.namespace}/{pod.name}", why, node, eviction)


def _return(run: ReadOnlyRun, target: ChosenTarget) -> Iterator[PlannedChange]:
    cordoned = run.plan.expect.cordoned or remediation_for(run.plan.recover.remediation).drains_node
    what = f"taints {', '.join(run.quarantine_keys)}" + (" and the cordon" if cordoned else "")
    why = f"take off {what} if they came meanwhile"
    if not run.plan.recover.is_hands_off:
        yield PlannedChange(Step.QA_NODE, "patch", f"node/{target.node}", why, target.node)
    name, why = _name(run, "return", target), "a GPU pod that must run there again"
    manifest = gpu_canary(name, run_id=run.id, node=target.node, template=run.gpu_pod_template)
    yield PlannedChange(Step.QA_NODE, "create", f"pod/{name}", why, target.node, manifest)


def _injector(
    run: ReadOnlyRun, step: Step, purpose: str, target: ChosenTarget, fault: FaultParameters
) -> PlannedChange:
    task = InjectTask(
        run_id=run.id,
        node=target.node,
        gpu=target.gpu or 0,
        fault=fault.model_dump(mode="json"),
        hold_s=fault.hold.total_seconds(),
    )
    return agent_change(run, step, purpose, target, task, injector_deadline(fault), f"inject fault {fault.type}")


def agent_change(
    run: ReadOnlyRun,
    step: Step,
    purpose: str,
    target: ChosenTarget,
    task: SentTask,
    deadline: timedelta,
    why: str,
) -> PlannedChange:
    name = _name(run, purpose, target)
    return PlannedChange(step, "create", f"pod/{name}", why, task.node, agent_manifest(run, name, task, deadline))


def _name(run: ReadOnlyRun, purpose: str, target: ChosenTarget) -> str:
    return run.record.object_name(purpose, target.index)


def fault_warnings(run: ReadOnlyRun) -> list[str]:
    """Return the side effects of the plan's faults, and why they are dangerous if they are."""
    plan = run.plan
    faults = [plan.fault, *([plan.recover.fault_during] if plan.recover.fault_during else [])]
    side_effects = [warning for fault in faults for warning in warnings_of(fault)]
    if plan.recover.restart_api_servers:
        refused = "" if run.profile.lab_control else "; this cluster is no lab, and the run is refused"
        side_effects.append(f"every API server is restarted once the load is gone{refused}")
    return [*side_effects, *(f"{name} is dangerous: {why}" for name, why in plan.dangers().items())]


def approval_question(run: ReadOnlyRun, targets: Targets) -> str:
    """Return Markdown for the person who has to approve: the fault, the targets, the duration and the repair."""
    plan = run.plan
    parameters = plan.fault.model_dump(mode="json", exclude={"type", "hold"}, exclude_defaults=True)
    shown = ", ".join(f"{escape_markdown(key)} {escape_markdown(value)}" for key, value in parameters.items())
    broken = ", ".join(escape_markdown(target.target) for target in targets)
    detector_warnings = [f"{found.detector}: {found.what} {found.fix}" for found in run.record.loaded.detector_warnings]
    lines = [
        f"**{escape_markdown(plan.title)}** on cluster {escape_markdown(run.profile.name)}",
        "",
        escape_markdown(plan.hypothesis),
        "",
        f"* fault: `{plan.fault.type}`" + (f" ({shown})" if shown else ""),
        f"* targets: {broken}",
        f"* stays in for {format_duration(plan.fault.hold)} at most, then it comes out by itself",
        f"* GPU pods there now: {sum(len(run.nodes.gpu_pods_on(target.node)) for target in targets)}",
        f"* repair: {plan.recover.repair}",
        *(f"* {escape_markdown(warning)}" for warning in fault_warnings(run)),
        *(f"* warning: detector {escape_markdown(warning)}" for warning in detector_warnings),
    ]
    return "\n".join(lines)


def escape_markdown(text: object) -> str:
    """Return text on one line that Markdown shows literally; a plan's or a label's text is hostile input."""
    one_line = " ".join(str(text).split())
    return "".join(f"\\{mark}" if mark in "\\`*_{}[]<>()#+!|~&" else mark for mark in one_line if mark.isprintable())
