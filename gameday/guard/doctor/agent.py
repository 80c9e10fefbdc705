"""The agent on a target: image, clock, DCGM engines, and whether the GPU can be reset."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gameday.agent.security import security_of
from gameday.agent.task import DcgmEnginesNote
from gameday.cluster.manifests import agent_pod
from gameday.cluster.pods import PodFollower
from gameday.faults.optional import needs_of
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.ledger.termination_message import termination_message
from gameday.run.agents import (
    AGENT_START_TIMEOUT,
    ENGINES_HINT,
    GPU_RESET_HINT,
    engines_in,
    gpu_users_left,
    mark_task,
)
from gameday.run.operands import uids_before_reset
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole

# Seconds. Several clocks time the chains, and the report names a drift above half a second; our own choice.
_MOST_CLOCK_OFFSET_S = 1.0
_POD_GONE_TIMEOUT_S = 10.0
_ENGINES = "DCGM's readers see the fault"


def check_agent_by_reading(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that a target has the image and the right time, by its list of images and by node_exporter's clock.

    Nothing is changed; facts that only the agent can find are unknown.

    Raises:
        AdapterError: The API server or Prometheus does not answer.
    """
    if not targets:
        return
    node, image = targets[0].node, run.profile.agent_image
    if needs_of(run.plan.fault).dcgm:
        detail = f"{node}: only the agent can look for the engines that programs run themselves"
        yield Prerequisite("agent", _ENGINES, None, detail, "--send-pod looks")
    images = run.kubernetes.node(node).status.images or []
    pulled = any(image in (listed.names or []) for listed in images)
    found = "is in" if pulled else "is not in"
    by_pod = run.plan.fault.runs_on is NodeRole.GPU
    tells = "--send-pod pulls it" if by_pod else "the baseline refuses if it cannot start there"
    fix = "" if pulled else f"{tells}; a node lists only its largest images"
    detail = f"{image} {found} the node's list of {len(images)} images"
    yield Prerequisite("agent", "image", pulled or None, f"{node}: {detail}", fix)
    label = run.profile.prometheus_node_label
    query = (
        f"node_time_seconds{{{label}={json.dumps(node)}}} - timestamp(node_time_seconds{{{label}={json.dumps(node)}}})"
    )
    offsets = run.servers.prometheus.query(query)
    if not offsets:
        fix = "--send-pod asks the node" if by_pod else "scrape node-exporter there"
        yield Prerequisite("agent", "clock", None, f"Prometheus holds no node_time_seconds of {node}", fix)
    else:
        yield _clock(node, offsets[0].value, "node-exporter's clock against Prometheus'")


def check_agent_by_pod(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Send the agent to write a harmless line into a target's kernel log, which tests image, admission and clock.

    Raises:
        KubernetesError: The API server does not answer, or refuses the pod.
    """
    if not targets:
        return
    node, name = targets[0].node, run.record.object_name("doctor")
    task = mark_task(run, targets[0])
    manifest = agent_pod(
        name,
        task=task.model_dump_json(),
        role=task.role,
        run_id=run.id,
        node=node,
        profile=run.profile,
        deadline=AGENT_START_TIMEOUT,
        security=security_of(task),
    )
    with PodFollower(run.kubernetes, run.id) as pods:
        pods.wait_synced()
        sent = run.clock.now()
        run.kubernetes.create_pod(manifest)
        try:
            ended = pods.wait(
                lambda: (seen := pods.seen(name)) is not None and seen.ended, AGENT_START_TIMEOUT.total_seconds()
            )
            seen_at, outcome, pod = run.clock.now(), termination_message(pods, name), pods.seen(name)
            prints = task.reset_gpu is not None or task.dcgm_engines
            log = run.kubernetes.pod_log(name) if outcome and prints else ""
        finally:
            uid = run.kubernetes.delete_pod(name)
            pods.wait_gone(name, uid, _POD_GONE_TIMEOUT_S)
    image = run.profile.agent_image
    if not ended or outcome is None:
        state = f"{pod.phase} {pod.reason}".strip() if pod else "never seen"
        fix = f"can {node} pull {image}? kubectl -n {run.profile.namespace} get events"
        yield Prerequisite("agent", "image", False, f"pod {name} on {node} left no message: {state}", fix)
        return
    yield Prerequisite(
        "agent", "image", outcome.ok, outcome.error or f"{image} ran on {node}", "see the agent's own error"
    )
    if task.reset_gpu is not None and outcome.ok:
        users = gpu_users_left(log, uids_before_reset(run, node))
        detail = f"open in: {'; '.join(users)}" if users else "no process that a drain leaves has it open"
        fix = GPU_RESET_HINT if users else ""
        yield Prerequisite("agent", f"GPU {task.reset_gpu} can be reset", not users, detail, fix)
    if task.dcgm_engines and outcome.ok:
        yield _engines(node, engines_in(log))
    if outcome.written_at:
        early, late = (sent - outcome.written_at).total_seconds(), (outcome.written_at - seen_at).total_seconds()
        ahead = max(late, 0.0) - max(early, 0.0)
        span = (seen_at - sent).total_seconds()
        yield _clock(node, ahead, f"the agent's clock against ours, known to {span:.1f} s")


def _engines(node: str, seen: DcgmEnginesNote | None) -> Prerequisite:
    """Check that all of the node's readers of DCGM can see a fault in its host engine."""
    if seen is None:
        return Prerequisite(
            "agent", _ENGINES, None, f"{node}: the agent printed nothing of the engines", "run it once more"
        )
    if seen.blind:
        return Prerequisite("agent", _ENGINES, False, f"{node}: {'; '.join(seen.blind)}", ENGINES_HINT)
    doubts = [f"not {one}" for one in seen.others] + [f"cannot see {one}" for one in seen.unseen]
    detail = "; ".join(doubts) or "no process has a DCGM host engine beside the node's"
    return Prerequisite(
        "agent", _ENGINES, None if doubts else True, f"{node}: {detail}", ENGINES_HINT if doubts else ""
    )


def _clock(node: str, ahead_s: float, how: str) -> Prerequisite:
    ok = abs(ahead_s) <= _MOST_CLOCK_OFFSET_S
    offset = f"{abs(ahead_s):.2f} s {'ahead' if ahead_s > 0 else 'behind'}" if ahead_s else "no offset seen"
    fix = "" if ok else f"synchronise the clocks of {node} and of this machine (chrony, NTP): chains are timed by both"
    return Prerequisite("agent", "clock", ok, node, fix, f"{offset} ({how})")
