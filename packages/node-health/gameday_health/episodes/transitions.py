"""An episode's next step, and its record at the beginning and end of each step. Pure: no client, time is an argument.

Two rules always hold, even after a crash. A rung never runs more often than its limit, because an attempt counts from
its intent on. A node returns only on a passed QA that is newer than its last attempt, and that covers the boot and
all the faults that the node has at that moment.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gameday.xid.catalogue import Remedy
from gameday_health.episodes.model import (
    MOST_PAST,
    Act,
    ActKind,
    Attempt,
    Episode,
    Outcome,
    PastEpisode,
    QaRun,
    Scope,
    SentPod,
    State,
    new_episode_id,
)
from gameday_health.episodes.node import NodeSeen
from gameday_health.episodes.policy import GPU_RESET, RESTART_WORKLOAD, RepairPolicy, Rung

_DAY = timedelta(days=1)
# A boot that nobody asked for voids a passed QA. QA then runs once more; after that the node is not to be trusted.
_MOST_QA_RUNS = 2


@dataclass(frozen=True)
class Drain:
    """Move pods off the node, ahead of a step that must not meet them."""

    scope: Scope
    before: str
    """The repair, or QA, that comes next."""


@dataclass(frozen=True)
class Repair:
    """Try a rung; the attempt is a new one unless one is in progress."""

    rung: Rung
    number: int
    """Number of the attempt in the episode, counted from 1."""


@dataclass(frozen=True)
class Validate:
    """Run QA."""


@dataclass(frozen=True)
class Return:
    """Give the node back."""


@dataclass(frozen=True)
class HandOver:
    """Leave the node to a person."""

    why: str


@dataclass(frozen=True)
class Cancel:
    """End the episode: a person took over."""

    why: str


@dataclass(frozen=True)
class NodeGone:
    """End the episode: the node does not exist any more."""

    why: str


Step = Drain | Repair | Validate | Return | HandOver | Cancel | NodeGone


def needs_episode(seen: NodeSeen, last: Episode | None) -> bool:
    """Return True if a node needs an episode and has none: it is tainted for faults that no episode knows."""
    if not seen.ours or not seen.faults:
        return False
    if last is None or last.uid != seen.uid:
        return True
    return last.ended is not None and any(fault not in last.faults for fault in seen.faults)


def open_episode(seen: NodeSeen, last: Episode | None, now: datetime) -> Episode:
    """Return a new episode of a quarantined node; `last` is the record that it replaces."""
    past: tuple[PastEpisode, ...] = ()
    if last is not None:
        past = (*last.past, last.as_past(now))[-MOST_PAST:]
    episode = Episode(
        id=new_episode_id(now),
        node=seen.name,
        uid=seen.uid,
        boot=seen.boot,
        gpus=seen.gpus,
        gpu_capacity=seen.gpu_capacity,
        opened=now,
        cordoned=seen.cordoned,
        faults=seen.faults,
        since=now,
        past=past,
    )
    return episode.noting(now, f"opened for {', '.join(map(str, seen.faults))}")


def absorb(episode: Episode, seen: NodeSeen, now: datetime) -> Episode:
    """Return the episode with the faults and the cordon that the node has now."""
    new = [fault for fault in seen.faults if fault not in episode.faults]
    for fault in new:
        episode = episode.noting(now, f"a new fault: {fault}")
    if new or (seen.cordoned and not episode.cordoned):
        update = {"faults": (*episode.faults, *new), "cordoned": episode.cordoned or seen.cordoned}
        return episode.model_copy(update=update)
    return episode


def next_step(episode: Episode, seen: NodeSeen | None, policy: RepairPolicy, now: datetime) -> Step | None:
    """Return the next step, or None once the episode has ended.

    Args:
        episode: The record, after `absorb`.
        seen: The node; None if it does not exist.
        policy: The rules.
        now: The present moment.
    """
    if episode.state.is_end:
        return None
    if seen is None or seen.uid != episode.uid:
        return NodeGone("the node is gone" if seen is None else "another node has joined under its name")
    return _taken_over(episode, seen) or _in_progress(episode, seen, policy) or _climb(episode, policy, now)


def _drain_before(episode: Episode, scope: Scope, before: str) -> Drain | None:
    """Return the drain that is still needed, or None if these pods have left."""
    enough = episode.drained in (scope, Scope.ALL_PODS)
    if scope is Scope.FAULTY_GPU:
        known = episode.drained is scope and set(episode.faulty_gpus) <= set(episode.drained_gpus)
        enough = known or episode.drained in (Scope.GPU_PODS, Scope.ALL_PODS)
    return None if enough else Drain(scope, before)


def _scope_of(rung: Rung, episode: Episode, policy: RepairPolicy) -> Scope:
    """Return the pods that have to leave before a rung."""
    if rung.needs_all_pods_gone:
        return Scope.ALL_PODS
    is_of_one_gpu = rung.repair == RESTART_WORKLOAD or (rung.repair == GPU_RESET and policy.drain.scope == "faulty-gpu")
    return Scope.FAULTY_GPU if is_of_one_gpu and episode.faulty_gpus else Scope.GPU_PODS


def _in_progress(episode: Episode, seen: NodeSeen, policy: RepairPolicy) -> Step | None:
    """Return the step that continues what was begun, or None if a rung has to be chosen."""
    if episode.act and episode.act.kind is ActKind.HAND_OVER:
        return HandOver(episode.why)
    if episode.drain_failed:
        return HandOver(f"the node could not be drained: {episode.drain_failed}")
    last = episode.attempts[-1] if episode.attempts else None
    if last and last.outcome is Outcome.RUNNING:
        return Repair(policy.ladder[policy.index_of(last.repair)], len(episode.attempts))
    if last and last.outcome is Outcome.PASSED and last.faults == len(episode.faults):
        return _proof(episode, seen, policy)
    return None


def _taken_over(episode: Episode, seen: NodeSeen) -> Step | None:
    if not seen.ours:
        # Our own return may have been written just before a crash.
        if episode.act and episode.act.kind is ActKind.RETURN:
            return Return()
        return Cancel("a person removed the taint")
    if episode.cordoned and not seen.cordoned:
        return Cancel("a person uncordoned the node")
    return None


def _proof(episode: Episode, seen: NodeSeen, policy: RepairPolicy) -> Step | None:
    """Return the step that the newest QA leads to, or None if QA failed."""
    runs = [run for run in episode.qa if run.attempt == len(episode.attempts)]
    if not runs and policy.qa.needs_idle_gpus and (drain := _drain_before(episode, Scope.GPU_PODS, "QA")):
        return drain
    if not runs or runs[-1].outcome is Outcome.RUNNING:
        return Validate()
    if runs[-1].outcome is Outcome.FAILED:
        return None
    if is_proved(episode, seen):
        return Return()
    return Validate() if len(runs) < _MOST_QA_RUNS else None


def is_proved(episode: Episode, seen: NodeSeen) -> bool:
    """Return True if a passed QA proves the node good as it is now."""
    if not episode.qa or not episode.attempts:
        return False
    run, faults = episode.qa[-1], episode.faults
    return (
        run.outcome is Outcome.PASSED
        and run.attempt == len(episode.attempts)
        and run.boot == seen.boot
        and run.faults == len(faults)
        and all(fault in faults for fault in seen.faults)
    )


def _climb(episode: Episode, policy: RepairPolicy, now: datetime) -> Step:
    """Return the next attempt, or the drain that it needs first; if there is no attempt left, say why."""
    if why := _limit_reached(episode, policy, now):
        return HandOver(why)
    remedies = {fault: policy.first_rung(fault.remedy) for fault in episode.faults}
    for fault, index in remedies.items():
        if index is None:
            words = "NVIDIA's support" if fault.remedy is Remedy.CONTACT_SUPPORT else "a person"
            return HandOver(f"{fault} needs {words}: no rung repairs it")
    lowest = max((index for index in remedies.values() if index is not None), default=0)
    lowest = max(lowest, _skipped(episode, policy, now), _after_last(episode, policy))
    for rung in policy.ladder[lowest:]:
        if episode.tries_of(rung.repair) < rung.limit:
            drain = _drain_before(episode, _scope_of(rung, episode, policy), rung.repair)
            return drain or Repair(rung, len(episode.attempts) + 1)
    return HandOver("every rung of the ladder was tried" if episode.attempts else "no rung of the ladder is left")


def _limit_reached(episode: Episode, policy: RepairPolicy, now: datetime) -> str:
    limits, window = policy.attempts, policy.repeat_offenders.window
    returned = [past for past in episode.past if past.state is State.RETURNED and now - past.ended < window]
    if len(returned) >= policy.repeat_offenders.stay_out_after:
        return f"a repeat offender: returned {len(returned)} times within {_hours(window)} h"
    if len(episode.attempts) >= limits.per_episode:
        return f"{len(episode.attempts)} attempts in this episode, and no more are allowed"
    began = [began for past in episode.past for _, began in past.rungs]
    began += [attempt.began for attempt in episode.attempts]
    today = sum(now - one < _DAY for one in began)
    return f"{today} attempts within a day, and no more are allowed" if today >= limits.per_day else ""


def _hours(duration: timedelta) -> str:
    return f"{duration.total_seconds() / 3600:g}"


def _skipped(episode: Episode, policy: RepairPolicy, now: datetime) -> int:
    """Return the index of the first rung that a repeat offender gets: the one after the rung that did not last.

    The last rung is tried even so: after it there is only a person, and `stay_out_after` leads there.
    """
    recent = [past for past in episode.past if now - past.ended < policy.repeat_offenders.window]
    returned = [past for past in recent if past.state is State.RETURNED and past.rungs]
    if not returned:
        return 0
    return min(policy.index_of(returned[-1].rungs[-1][0]) + 1, len(policy.ladder) - 1)


def _after_last(episode: Episode, policy: RepairPolicy) -> int:
    """Return the index of the lowest rung after the last attempt: one up, or the same one if the act itself failed."""
    if not episode.attempts:
        return 0
    last = episode.attempts[-1]
    return policy.index_of(last.repair) + (last.outcome is not Outcome.FAILED)


def begin(episode: Episode, step: Step, seen: NodeSeen, now: datetime) -> Episode:
    """Return the episode with the intent of a step, unchanged if the step is already in progress."""
    match step:
        case Drain(scope=scope):
            begun = _begin_drain(episode, scope, now)
        case Repair():
            begun = _begin_attempt(episode, step, seen, now)
        case Validate():
            begun = _begin_qa(episode, seen, now)
        case Return():
            begun = _acting(episode, State.VALIDATING, ActKind.RETURN, now, "return begins")
        case HandOver(why=why):
            begun = _begin_hand_over(episode, why, now)
        case Cancel() | NodeGone():
            begun = episode
    return begun


def _begin_drain(episode: Episode, scope: Scope, now: datetime) -> Episode:
    if episode.act and episode.act.kind is ActKind.DRAIN:
        return episode
    return _acting(episode, State.DRAINING, ActKind.DRAIN, now, f"drain begins ({scope})")


def _begin_attempt(episode: Episode, step: Repair, seen: NodeSeen, now: datetime) -> Episode:
    if step.number <= len(episode.attempts):
        return episode
    repair = step.rung.repair
    attempt = Attempt(repair=repair, began=now, boot=seen.boot, faults=len(episode.faults))
    acting = _acting(episode, State.REPAIRING, ActKind.RUNG, now, f"{repair} begins (attempt {step.number})")
    kept = tuple(_abandoned(run, now) for run in episode.qa)
    return acting.model_copy(update={"attempts": (*episode.attempts, attempt), "qa": kept})


def _begin_qa(episode: Episode, seen: NodeSeen, now: datetime) -> Episode:
    if episode.qa and episode.qa[-1].outcome is Outcome.RUNNING and _is_of_now(episode, seen):
        return episode
    run = QaRun(attempt=len(episode.attempts), faults=len(episode.faults), boot=seen.boot, began=now)
    acting = _acting(episode, State.VALIDATING, ActKind.QA, now, "QA begins")
    return acting.model_copy(update={"qa": (*(_abandoned(one, now) for one in episode.qa), run)})


def _begin_hand_over(episode: Episode, why: str, now: datetime) -> Episode:
    if episode.act and episode.act.kind is ActKind.HAND_OVER:
        return episode
    # Not an end yet: the evidence is collected first.
    act = Act(kind=ActKind.HAND_OVER, began=now)
    return episode.model_copy(update={"act": act, "why": why}).noting(now, f"hand-over begins: {why}")


def _is_of_now(episode: Episode, seen: NodeSeen) -> bool:
    run = episode.qa[-1]
    return run.attempt == len(episode.attempts) and run.faults == len(episode.faults) and run.boot == seen.boot


def _abandoned(run: QaRun, now: datetime) -> QaRun:
    if run.outcome is not Outcome.RUNNING:
        return run
    why = "not finished: the node booted, or a new fault came"
    return run.model_copy(update={"outcome": Outcome.FAILED, "ended": now, "why": why})


def _acting(episode: Episode, state: State, kind: ActKind, now: datetime, text: str) -> Episode:
    update: dict[str, Any] = {"act": Act(kind=kind, began=now), "why": ""}
    return _in_state(episode, state, now).model_copy(update=update).noting(now, text)


def _in_state(episode: Episode, state: State, now: datetime) -> Episode:
    return episode if episode.state is state else episode.model_copy(update={"state": state, "since": now})


def sent(episode: Episode, name: str, uid: str) -> Episode:
    """Return the episode with a pod of its act: with the name before the pod is made, with the UID after that."""
    assert episode.act
    others = tuple(pod for pod in episode.act.pods if pod.name != name)
    act = episode.act.model_copy(update={"pods": (*others, SentPod(name=name, uid=uid))})
    return episode.model_copy(update={"act": act})


def end_drain(episode: Episode, scope: Scope, why_not: str, now: datetime) -> Episode:
    """Return the episode after a drain; `why_not` is empty if the pods are gone."""
    update: dict[str, Any] = {"act": None, "drain_failed": why_not}
    if not why_not:
        update["drained"] = scope
        update["drained_gpus"] = episode.faulty_gpus if scope is Scope.FAULTY_GPU else ()
    return episode.model_copy(update=update).noting(now, f"drain failed: {why_not}" if why_not else "drained")


def end_attempt(episode: Episode, why_not: str, detail: str, now: datetime) -> Episode:
    """Return the episode after an attempt; `why_not` is empty if the rung did its work."""
    last = episode.attempts[-1]
    outcome = Outcome.FAILED if why_not else Outcome.PASSED
    ended = last.model_copy(update={"outcome": outcome, "ended": now, "why": why_not or detail})
    update = {"act": None, "attempts": (*episode.attempts[:-1], ended)}
    return episode.model_copy(update=update).noting(now, f"{last.repair} {outcome}: {why_not or detail}")


def end_qa(episode: Episode, why_not: str, detail: str, now: datetime) -> Episode:
    """Return the episode after QA; `why_not` is empty if it passed."""
    outcome = Outcome.FAILED if why_not else Outcome.PASSED
    ended = episode.qa[-1].model_copy(update={"outcome": outcome, "ended": now, "why": why_not or detail})
    update = {"act": None, "qa": (*episode.qa[:-1], ended)}
    return episode.model_copy(update=update).noting(now, f"QA {outcome}: {why_not or detail}")


def end(episode: Episode, state: State, why: str, now: datetime) -> Episode:
    """Return the ended episode."""
    ended = _in_state(episode, state, now).model_copy(update={"ended": now, "act": None, "why": why})
    return ended.noting(now, f"{state}: {why}")


def withheld(episode: Episode, why: str, now: datetime) -> Episode:
    """Return an episode that the breaker holds back from repair."""
    held = _in_state(episode, State.WITHHELD, now).model_copy(update={"why": why})
    return held if episode.state is State.WITHHELD else held.noting(now, f"withheld: {why}")


def marks_of(episode: Episode) -> str | None:
    """Return the value of the node's label, or None if the node carries none."""
    labelled = episode.state.is_repair or episode.state in (State.HANDED_OVER, State.WITHHELD)
    return str(episode.state) if labelled else None
