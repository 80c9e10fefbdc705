"""Carry out one step of an episode: write the intent, do it, write the result.

A process that finds an intent without a result continues it: pods have names of their own, a reboot shows in the
bootID, and a pod that is gone without a result is a failed attempt, never a reason for a second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from gameday.agent.task import (
    AgentResult,
    GpuPodsNote,
    GpuUsersTask,
    MarkTask,
    QaResult,
    QaTask,
    RemediateTask,
    notes_in,
    proof_of,
)
from gameday.cluster.drain import Evictions
from gameday.cluster.gpu_pods import GpuPod
from gameday.cluster.json_api import CONFLICT
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, KubernetesError
from gameday.remediations.registry import remediation_for
from gameday.xid.catalogue import Remedy
from gameday_health.episodes import transitions
from gameday_health.episodes.evidence import bundle_of, post
from gameday_health.episodes.leaving import Leaving, of_faulty_gpus
from gameday_health.episodes.marks import clear, give_back
from gameday_health.episodes.model import Attempt, Episode, Scope, State
from gameday_health.episodes.node import NodeSeen
from gameday_health.episodes.operands import bring_operands_back, send_operands_away
from gameday_health.episodes.policy import POWER_CYCLE, RESTART_WORKLOAD
from gameday_health.episodes.redfish import power_cycle
from gameday_health.episodes.transitions import Cancel, Drain, HandOver, NodeGone, Repair, Return, Step, Validate
from gameday_health.episodes.work import EpisodeWork, InterruptedStepError, budget_left_s

_RETURN_TRIES = 8
_MARK_WITHIN_S = 60.0
_LOOK_WITHIN_S = 60.0
_OFFERED_WITHIN_S = 120.0
"""Seconds from the device plugin's label until it has registered: a pod's start, and a look at every GPU."""
_DONE = {
    "gpu-reset": "GPUResetDone",
    "driver-restart": "DriverRestartDone",
    "reboot": "NodeRebootDone",
    POWER_CYCLE: "NodePowerCycleDone",
    RESTART_WORKLOAD: "WorkloadRestarted",
}
"""The Event of a finished repair, by the repair's name; a game-day reads the kind of repair from it. Repairs that a
package adds are `NodeRepairDone`.
"""
_BMC = "bmc"
"""The name of the order to a BMC, among the names of an act's pods."""


def carry_out(work: EpisodeWork, step: Step) -> str:
    """Carry out a step; return in words how it went. An interrupted step is left to the next look at the node.

    Raises:
        LeaseLostError: Another process may be working on the episode.
        KubernetesError: The API server refuses or does not answer; the step can begin again.
    """
    try:
        return _carry_out(work, step)
    except InterruptedStepError:
        return "interrupted"


def _carry_out(work: EpisodeWork, step: Step) -> str:
    if not (isinstance(step, Repair) and _resets_gpus(step)):
        bring_operands_back(work)  # a process that ended during a reset did not bring them back
    match step:
        case Drain():
            done = drain(work, step)
        case Repair():
            done = repair(work, step)
        case Validate():
            done = validate(work)
        case Return():
            done = return_node(work)
        case HandOver():
            done = hand_over(work, step)
        case Cancel(why=why):
            done = _stop(work, State.CANCELLED, why)
        case NodeGone(why=why):
            done = _stop(work, State.NODE_GONE, why)
    return done


def drain(work: EpisodeWork, step: Drain) -> str:
    """Move pods off the node as the policy says."""
    rules = work.policy.drain
    if work.begin(step):
        work.event("NodeDraining", f"{step.scope} leave before {step.before}")
    act = work.episode.act
    assert act
    evictions = Evictions(work.kubernetes)
    choice = _look_at_gpus(work) if step.scope is Scope.FAULTY_GPU else Leaving(step.scope)
    with Follower(
        work.kubernetes.core.list_pod_for_all_namespaces, field_selector=f"spec.nodeName={work.episode.node}"
    ) as pods:
        pods.require_synced()

        def is_empty() -> bool:
            leaving = choice.of(pods.objects())
            if rules.mode == "evict":
                is_time = budget_left_s(act.began, rules.evict_after) <= 0
                evictions.ask(leaving if is_time else choice.at_once(leaving))
            return not leaving

        empty = work.wait(is_empty, budget_left_s(act.began, rules.within))
        left = choice.of(pods.objects())
    why = "" if empty else f"after {rules.within.total_seconds():g} s still there: {_names(left)}"
    work.save(transitions.end_drain(work.episode, step.scope, why, _now()))
    if why:
        return why
    work.event("NodeDrained", f"{step.scope} have left")
    return "drained"


def _look_at_gpus(work: EpisodeWork) -> Leaving:
    """Have an agent find the pods on each GPU. If it cannot, every pod with GPUs has to leave."""
    episode = work.episode
    name = f"gd-{episode.id}-u{len(episode.attempts)}-{len(episode.drained_gpus)}"
    result = work.run_agent(name, GpuUsersTask(run_id=episode.id, node=episode.node), _LOOK_WITHIN_S)
    log = work.keep_log(name)
    if result is None or not result.ok:
        why = (result.error if result else "") or "the agent left no result"
        work.save(work.episode.noting(_now(), f"the pods on the faulty GPU cannot be found: {why}"))
        return Leaving(Scope.FAULTY_GPU)
    return of_faulty_gpus(episode.faulty_gpus, notes_in(log, GpuPodsNote))


def _names(pods: Sequence[GpuPod]) -> str:
    more = f" and {len(pods) - 5} more" if len(pods) > 5 else ""
    return ", ".join(f"{pod.namespace}/{pod.name}" for pod in pods[:5]) + more


def repair(work: EpisodeWork, step: Repair) -> str:
    """Try a rung of the ladder, and verify it."""
    if work.begin(step):
        faults = ", ".join(map(str, work.episode.faults))
        work.delete_agents()
        work.event("NodeRepairBegun", f"{step.rung.repair}, attempt {step.number}, for {faults}")
    attempt = work.episode.attempts[-1]
    if step.rung.repair == RESTART_WORKLOAD:
        why, detail = _await_quiet(work, step, attempt)
    elif step.rung.needs_all_pods_gone:
        why, detail = _take_down(work, step, attempt)
    else:
        why, detail = _repair_each_gpu(work, step, attempt)
    work.save(transitions.end_attempt(work.episode, why, detail, _now()))
    work.delete_agents()
    if why:
        work.event("NodeRepairFailed", f"{step.rung.repair}, attempt {step.number}: {why}", warning=True)
        return why
    work.event(_DONE.get(step.rung.repair, "NodeRepairDone"), f"{step.rung.repair}, attempt {step.number}: {detail}")
    return detail


def _await_quiet(work: EpisodeWork, step: Repair, attempt: Attempt) -> tuple[str, str]:
    """Wait for a time without a new fault, which shows that the drained pods caused the fault."""
    quiet = step.rung.quiet
    known = work.episode.faults[: attempt.faults]

    def is_faulty() -> bool:
        seen = work.node()
        return seen is not None and any(fault not in known for fault in seen.faults)

    if work.wait(is_faulty, budget_left_s(attempt.began, quiet)) or len(work.episode.faults) > attempt.faults:
        return f"a new fault within {quiet.total_seconds():g} s", ""
    return "", f"no new fault for {quiet.total_seconds():g} s without the pods on the faulty GPU"


def _repair_each_gpu(work: EpisodeWork, step: Repair, attempt: Attempt) -> tuple[str, str]:
    """Return why the rung failed, or an empty string, and the evidence."""
    if not _resets_gpus(step):
        return _send_to_each(work, step, attempt, (None,))
    devices = tuple(_faulty_gpus(work.episode, attempt))
    if not devices:
        return "no fault names the GPU that is to be reset", ""
    why, detail = send_operands_away(work, budget_left_s(attempt.began, step.rung.within)), ""
    if not why:
        why, detail = _send_to_each(work, step, attempt, devices)
    were_away = bool(work.episode.operands_away)
    not_back = bring_operands_back(work)
    if were_away and not not_back and not work.wait(lambda: _offers_its_gpus(work), _OFFERED_WITHIN_S):
        not_back = f"its GPUs are not offered again within {_OFFERED_WITHIN_S:g} s"
    return why or not_back, detail


def _resets_gpus(step: Repair) -> bool:
    own = (RESTART_WORKLOAD, POWER_CYCLE)
    return step.rung.repair not in own and remediation_for(step.rung.repair).needs_idle_gpu


def _offers_its_gpus(work: EpisodeWork) -> bool:
    seen = work.node()
    return seen is not None and seen.is_back(work.episode.gpu_capacity)


def _send_to_each(work: EpisodeWork, step: Repair, attempt: Attempt, devices: Sequence[str | None]) -> tuple[str, str]:
    """Send an agent for each GPU, or for the node if the device is None. Return what `_repair_each_gpu` returns."""
    evidence: list[str] = []
    for index, device in enumerate(devices):
        name = f"gd-{work.episode.id}-r{step.number}-{index}"
        task = RemediateTask(run_id=work.episode.id, node=work.episode.node, pci=device, action=step.rung.repair)
        result = work.run_agent(name, task, budget_left_s(attempt.began, step.rung.within))
        work.keep_log(name)
        if why := _failure(result, step):
            return f"{device}: {why}" if device else why, ""
        evidence += result.evidence[-1:] if result else ()
    return "", "; ".join(evidence) or "done"


def _faulty_gpus(episode: Episode, attempt: Attempt) -> dict[str, None]:
    """Return the addresses of the GPUs that need a reset, each once, in the order of their faults.

    A fault that came after the attempt began is left out: pods may still be at work on that GPU.
    """
    resets = (Remedy.GPU_RESET, Remedy.NONE)
    known = episode.faults[: attempt.faults]
    return {fault.device: None for fault in known if fault.device is not None and fault.remedy in resets}


def _failure(result: AgentResult | None, step: Repair) -> str:
    if result is None:
        return f"the agent left no result within {step.rung.within.total_seconds():g} s"
    return "" if result.ok else result.error or "the agent failed"


def _take_down(work: EpisodeWork, step: Repair, attempt: Attempt) -> tuple[str, str]:
    """Reboot the node; wait until it has another bootID, is Ready and has all of its GPUs."""
    name = f"gd-{work.episode.id}-r{step.number}-0"
    left_s = budget_left_s(attempt.began, step.rung.within)
    booted = _boot_of(work) not in ("", attempt.boot)
    if not booted and (why := _order(work, step, name, left_s)):
        return why, ""

    def is_decided() -> bool:
        result = work.result_of(name)
        refused = result is not None and not result.ok
        seen = work.node()
        return refused or (
            seen is not None and seen.boot not in ("", attempt.boot) and seen.is_back(work.episode.gpu_capacity)
        )

    decided = work.wait(is_decided, left_s)
    seen = work.node()
    if decided and seen and seen.boot != attempt.boot:
        return "", f"boot id {attempt.boot} -> {seen.boot}, Ready"
    result = work.result_of(name)
    if result is not None and not result.ok:
        return result.error or "the agent failed", ""
    state = "no new boot id" if seen is None or seen.boot == attempt.boot else "not Ready with its GPUs"
    return f"{state} within {step.rung.within.total_seconds():g} s", ""


def _order(work: EpisodeWork, step: Repair, name: str, left_s: float) -> str:
    """Order the node to go down; return why nothing takes the order, or an empty string."""
    if step.rung.repair != POWER_CYCLE:
        task = RemediateTask(run_id=work.episode.id, node=work.episode.node, action=step.rung.repair)
        work.send(name, task, left_s)
        return ""
    act, bmc = work.episode.act, work.policy.bmc
    assert act and bmc
    if act.uid_of(_BMC):
        return ""
    # Before the order, which has no name by which a second one could be refused: after a crash in between the attempt
    # fails, and no machine is switched twice.
    work.save(transitions.sent(work.episode, _BMC, "ordered"))
    try:
        done = power_cycle(bmc, work.episode.node)
    except AdapterError as error:
        return str(error)
    work.save(work.episode.noting(_now(), done))
    return ""


def _boot_of(work: EpisodeWork) -> str:
    seen = work.node()
    return seen.boot if seen else ""


def validate(work: EpisodeWork) -> str:
    """Prove the node good with the agent's QA. Lines of the kernel log count from the repair on."""
    if work.begin(Validate()):
        work.event("NodeValidating", "QA begins")
    run = work.episode.qa[-1]
    # The attempt and the number of its QA, so that no run finds the pods of another one.
    serial = f"{len(work.episode.attempts)}-{len(work.episode.qa)}"
    marker = f"{work.episode.id}-{serial}"
    within = work.policy.qa.longest
    why, detail = "", ""
    if run.boot == work.episode.attempts[-1].boot:
        # A boot empties the kernel log, so all of it counts. Without a boot the fault's own lines are still in it.
        mark = MarkTask(run_id=work.episode.id, node=work.episode.node, marker=marker)
        marked = work.run_agent(f"gd-{work.episode.id}-m{serial}", mark, _MARK_WITHIN_S, faults_interrupt=True)
        if marked is None or not marked.ok:
            why = f"the kernel log could not be marked: {marked.error if marked else 'the agent left no result'}"
    if not why:
        why, detail = _qa(work, marker, f"gd-{work.episode.id}-q{serial}", budget_left_s(run.began, within))
    if not why:
        # A GPU that is still broken says so again soon, and a new fault interrupts the wait.
        work.wait(lambda: False, budget_left_s(run.began, work.policy.qa.length), faults_interrupt=True)
    work.save(transitions.end_qa(work.episode, why, detail, _now()))
    work.delete_agents()
    if why:
        work.event("NodeValidationFailed", why, warning=True)
        return why
    work.event("NodeValidated", detail)
    return detail


def _qa(work: EpisodeWork, marker: str, name: str, left_s: float) -> tuple[str, str]:
    task = QaTask(
        run_id=work.episode.id,
        node=work.episode.node,
        marker=marker,
        proof=proof_of(work.policy.qa),
        expected_gpus=work.episode.gpus,
    )
    result = work.run_agent(name, task, left_s, faults_interrupt=True)
    checks = notes_in(work.keep_log(name), QaResult)
    failed = [f"{one.check}{'' if one.gpu is None else f' of GPU {one.gpu}'}" for one in checks if not one.ok]
    if result is None:
        return f"QA left no result within {work.policy.qa.longest.total_seconds():g} s", ""
    if not result.ok or failed:
        return result.error or f"QA did not pass: {', '.join(failed[:5])}", ""
    return "", result.evidence[0] if result.evidence else "every check passed"


def return_node(work: EpisodeWork) -> str:
    """Give the node back if it is proved good as the API server has it at this very moment."""
    work.begin(Return())
    for _ in range(_RETURN_TRIES):
        seen = work.read_node()
        if not work.is_to_return(seen):
            return "not proved any more"
        assert seen
        if seen.ours:
            try:
                give_back(work.api, seen, work.settings.taint)
            except KubernetesError as error:
                if error.status == CONFLICT:
                    continue
                raise
        return _returned(work, seen)
    return "others write the node all the time"


def _returned(work: EpisodeWork, seen: NodeSeen) -> str:
    kept = f"; {', '.join(seen.foreign)} of another owner stays" if seen.foreign else ""
    why = f"QA passed on boot {seen.boot}{kept}"
    work.save(transitions.end(work.episode, State.RETURNED, why, _now()))
    work.event("NodeReturned", why)
    return why


def hand_over(work: EpisodeWork, step: HandOver) -> str:
    """Leave the node to a person, with the evidence; it stays out of service."""
    work.begin(step)
    node = work.api.node(work.episode.node)
    reason = ((node or {}).get("metadata", {}).get("annotations") or {}).get("gameday.dev/faulty-reason")
    work.delete_agents()
    work.evidence = bundle_of(work.episode, reason, work.evidence)
    work.save(work.episode)
    failed = ""
    if work.policy.webhook and not work.episode.notified:
        failed = post(work.policy.webhook, work.evidence)
        if not failed:
            work.save(work.episode.model_copy(update={"notified": True}))
    ended = transitions.end(work.episode, State.HANDED_OVER, step.why, _now())
    if failed:
        ended = ended.noting(_now(), f"the webhook did not take the evidence: {failed}")
    work.save(ended)
    work.show()
    work.event("NodeHandedOver", f"{step.why}; a person must act, the node stays out of service", warning=True)
    return step.why


def _stop(work: EpisodeWork, state: State, why: str) -> str:
    """End the episode without a return: the node is gone, or a person has taken over."""
    work.delete_agents()
    work.save(transitions.end(work.episode, state, why, _now()))
    seen = work.node()
    if state is State.CANCELLED:
        if seen:
            clear(work.api, seen)
        work.event("NodeRepairCancelled", f"{why}: the repair ends here")
    return why


def _now() -> datetime:
    return datetime.now(UTC)
