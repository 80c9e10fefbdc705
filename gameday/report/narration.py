"""A history's events as sentences for the timeline: who acted, and what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gameday.checks.facts import first_few, seconds_text
from gameday.checks.verdict import Status
from gameday.expect.placement.judge import judge_gang
from gameday.history.events import (
    Aborted,
    AlertChosen,
    AlertSeen,
    AllocatableSeen,
    ApiServersRestarted,
    ApprovalAnswered,
    ApprovalAsked,
    BystanderChanged,
    CanaryMeasured,
    ConditionSeen,
    CordonSeen,
    DetectorConsulted,
    DeviceTaintSeen,
    Event,
    FaultInjected,
    GangPlaced,
    GuardChecked,
    GuestNamed,
    GuestSpoke,
    GuestState,
    HopSeen,
    KernelLineSeen,
    KubernetesEventSeen,
    LabelSeen,
    LeftToOwner,
    NodeReplaced,
    NodeReturned,
    Problem,
    PrometheusFellBehind,
    QaLeftOut,
    RecoveryDisturbed,
    Refused,
    Remediated,
    RepairAwaited,
    RepairChainEnded,
    RepairHopSeen,
    RunEnded,
    RunStarted,
    SignalUnwatched,
    SignSeen,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TaintSeen,
    TargetsChosen,
    WorkloadSeen,
)
from gameday.values.nodes import NODE_LIFECYCLE_DOMAIN
from gameday.values.results import Cleanliness, Hop, StepOutcome


@dataclass(frozen=True)
class Sentence:
    """A sentence of the timeline.

    `at` is the stamp of the event's own source; None: the time of our record. `tone` chooses the mark, never the text.
    With `whole_second` the stamp has no fraction: it happened within the second that begins at `at`.
    """

    actor: str
    text: str
    tone: str = ""
    at: datetime | None = None
    whole_second: bool = False


CLEANLINESS_TONE = {Cleanliness.CLEAN: "good", Cleanliness.DIRTY: "bad", Cleanliness.UNKNOWN: "doubt"}
_STEP_TONE = {StepOutcome.DONE: "good", StepOutcome.BROKEN: "bad", StepOutcome.NOT_ASKED: "step"}


def narrate(event: Event) -> Sentence | None:
    """Return the event as a sentence; None for what other sections show or other events explain (QA rows, costs)."""
    teller = _TELLERS.get(type(event))
    return teller(event) if teller else None


def _ok(ok: bool | None) -> str:
    return {True: "good", False: "bad", None: "doubt"}[ok]


def _started(event: RunStarted) -> Sentence:
    return Sentence(event.operator or event.trigger, f"Run {event.run_id} of plan {event.plan_name} started")


def _step_ended(event: StepEnded) -> Sentence:
    why = f": {event.why}" if event.why else ""
    return Sentence("game-day", f"Step ‘{event.step}’ {event.outcome}{why}", _STEP_TONE.get(event.outcome, "doubt"))


def _targets(event: TargetsChosen) -> Sentence:
    names = ", ".join(map(str, event.targets))
    virtual = " on virtual nodes" if event.virtual else ""
    return Sentence("game-day", f"Target{'s' if len(event.targets) > 1 else ''} chosen: {names}{virtual}, {event.rule}")


def _steady(event: SteadyStateChecked) -> Sentence:
    took = f" ({seconds_text(event.seconds)})" if event.seconds is not None else ""
    return Sentence("game-day", f"Steady state, {event.name}: {event.detail}{took}", _ok(event.ok))


def _injected(event: FaultInjected) -> Sentence:
    return Sentence("agent", f"Fault {event.fault} in on {event.target}, {event.layer}", "mark", event.written_at)


_TOLD_BY_THEIR_OWN_EVENT = {Hop.WRITTEN, Hop.RULE_PENDING, Hop.RULE_FIRING, Hop.TAINTED}


def _hop(event: HopSeen) -> Sentence | None:
    if event.hop in _TOLD_BY_THEIR_OWN_EVENT:
        return None
    return Sentence(event.source, f"{event.node}: {event.hop}", "", event.at)


def _alert(event: AlertSeen) -> Sentence:
    marks = {"at baseline": event.at_baseline, "silenced": event.silenced, "inhibited": event.inhibited}
    notes = [mark for mark, on in marks.items() if on]
    notes += [] if event.expected or event.at_baseline or event.background else ["unexpected"]
    text = f"Alert {event.alert} {event.state} for {event.node or 'no node'}"
    tone = "mark" if event.expected and event.state == "firing" else "bad" if "unexpected" in notes else ""
    return Sentence("Prometheus", text + (f" ({', '.join(notes)})" if notes else ""), tone, event.at)


def _taint(event: TaintSeen) -> Sentence:
    verb = "on" if event.present else "gone from"
    tone = "" if event.taint.key.startswith(NODE_LIFECYCLE_DOMAIN) else "mark"
    return Sentence(event.manager or "Kubernetes", f"Taint {event.taint} {verb} {event.node}", tone, event.at)


def _device_taint(event: DeviceTaintSeen) -> Sentence:
    verb = "on" if event.present else "gone from"
    return Sentence(event.driver, f"Taint {event.taint} {verb} {event.device} of {event.node}", "mark", event.at)


def _sign(event: SignSeen) -> Sentence:
    return Sentence("Kubernetes", f"{event.place} on {event.node}: {event.value or 'gone'}", "mark", event.at)


def _condition(event: ConditionSeen) -> Sentence:
    value = "gone" if event.status is None else event.status
    why = f" ({event.reason})" if event.reason else ""
    return Sentence("Kubernetes", f"Condition {event.condition} of {event.node} is {value}{why}", "mark", event.at)


def _label(event: LabelSeen) -> Sentence:
    text = f"Label {event.label} gone from" if event.value is None else f"Label {event.label}={event.value} on"
    return Sentence("Kubernetes", f"{text} {event.node}", "", event.at)


def _allocatable(event: AllocatableSeen) -> Sentence:
    before, now = ("none" if gpus is None else gpus for gpus in (event.before, event.gpus))
    return Sentence("kubelet", f"Allocatable GPUs of {event.node}: {before} → {now}", "mark", event.at)


def _cordon(event: CordonSeen) -> Sentence:
    return Sentence(
        event.manager or "Kubernetes",
        f"{event.node} {'cordoned' if event.cordoned else 'uncordoned'}",
        "mark",
        event.at,
    )


def _consulted(event: DetectorConsulted) -> Sentence:
    taken = f"; from its profile: {', '.join(event.filled)}" if event.filled else "; the plan says all itself"
    why = f" ({event.why})" if event.why else ""
    sees = {True: "sees this fault", False: "cannot see this fault", None: "says nothing about this fault"}[event.sees]
    return Sentence("game-day", f"Detector {event.detector} {sees}{why}{taken}")


def _kubernetes_event(event: KubernetesEventSeen) -> Sentence:
    """Narrate a Kubernetes Event. Of its times only `eventTime` has a fraction, and most writers leave that empty."""
    text = f"Event {event.reason} on {event.node}: {event.message}"
    return Sentence(event.source or "Kubernetes", text, "", event.at, whole_second=event.at.microsecond == 0)


def _unwatched(event: SignalUnwatched) -> Sentence:
    return Sentence("game-day", f"The {event.signal} about {event.node} cannot be followed: {event.why}", "doubt")


def _canary(event: CanaryMeasured) -> Sentence:
    value = "not measured" if event.value is None else f"{event.value:.4g} {event.unit}"
    detail = f": {event.detail}" if event.detail else ""
    text = f"{event.measure} on {event.node}, {event.phase} the fault: {value}{detail}"
    return Sentence("canary", text, _ok(event.ok), event.at)


_DECISION_TONE = {"quarantine": "bad", "ignore": "", "event": "", "workload": "doubt"}


def _kernel_line(event: KernelLineSeen) -> Sentence:
    text = f"{event.node}: {event.line} — {event.reason}"
    return Sentence("kernel log", text, _DECISION_TONE.get(event.decision, ""), event.at)


def _workload(event: WorkloadSeen) -> Sentence:
    where = f"on {event.node}" if event.node else "unscheduled"
    detail = f": {event.detail}" if event.detail else ""
    who = "kubelet" if event.purpose == "misaligned" else "scheduler"
    return Sentence(who, f"{event.purpose} pod {event.pod} {event.phase}, {where}{detail}", _ok(event.ok))


def _gang(event: GangPlaced) -> Sentence:
    if not event.pods:
        return Sentence("game-day", f"No gang was sent: {event.why_not_sent}", "doubt")
    status, why = judge_gang(event)
    hint = "prefers fast nodes" if event.prefers_fast else "knows of no classes"
    nodes = sorted({pod.node for pod in event.pods if pod.node})
    text = f"A gang of {len(event.pods)} pods, which {hint}, on {first_few(nodes, 8) or 'no node'}"
    ok = None if status is Status.UNKNOWN else status is Status.HELD
    return Sentence("scheduler", f"{text}: {why}" if why else text, _ok(ok))


def _disturbed(event: RecoveryDisturbed) -> Sentence:
    where = f"{event.target.node}, {event.layer}"
    if event.written_at is None:
        return Sentence("agent", f"Fault {event.fault}, meant for the recovery, did not go in on {where}", "doubt")
    return Sentence("agent", f"Fault {event.fault} in during the recovery on {where}", "mark", event.written_at)


def _remediated(event: Remediated) -> Sentence:
    result = "succeeded" if event.ok else "failed"
    detail = f": {event.detail}" if event.detail else ""
    text = f"Remediation {event.action} of {event.node} {result} in {seconds_text(event.seconds)}{detail}"
    return Sentence("agent", text, _ok(event.ok))


def _repair_hop(event: RepairHopSeen) -> Sentence:
    kind = f" by {event.repair}" if event.repair else ""
    text = f"Repair chain of {event.node}: {event.hop}{kind}, {seconds_text(event.took_s)} after {event.since}"
    return Sentence(event.by, text, "good", event.at)


def _replaced(event: NodeReplaced) -> Sentence:
    pool = ", ".join(f"{key}={value}" for key, value in event.pool.items())
    where = f" in the pool {pool}" if pool else ""
    return Sentence("Kubernetes", f"{event.successor} takes the place of {event.node}{where}", "mark", event.at)


def _chain_ended(event: RepairChainEnded) -> Sentence:
    left = f"; it left {', '.join(event.left)}" if event.left and not event.in_service else ""
    if event.stopped_at:
        text = f"The cluster's repair of {event.node} stopped at the hop ‘{event.stopped_at}’: {event.why}{left}"
        return Sentence("game-day", text, "bad")
    state = "in service" if event.in_service else "out of service"
    return Sentence("game-day", f"The cluster's repair of {event.node} ended as planned, {state}{left}", "good")


def _returned(event: NodeReturned) -> Sentence:
    taints = ", ".join(map(str, event.removed_taints)) or "no taint"
    cordon = ", uncordoned" if event.uncordoned else ""
    return Sentence("game-day", f"{event.node} returned to work: {taints} removed{cordon}", "good")


def _guard(event: GuardChecked) -> Sentence | None:
    """Narrate a guardrail that tripped or could not be measured; those that held have a section of their own."""
    if event.ok:
        return None
    looks = f", the last of {event.looks} looks" if event.looks > 1 else ""
    found = event.measured or "not measured"
    why = f" ({event.why})" if event.why else ""
    text = f"Guardrail ‘{event.guardrail}’, {event.phase} the fault: {found}; limit: {event.limit}{looks}{why}"
    return Sentence("guard", text, _ok(event.ok))


def _guest_state(event: GuestState) -> Sentence:
    of = f"of {event.node}" if event.node else "of the cluster"
    detail = f": {event.detail}" if event.detail else ""
    tone = "" if event.change in ("running", "down") else "doubt"
    return Sentence("guest", f"The guest's program {of}: {event.change}{detail}", tone, event.at)


def _answered(event: ApprovalAnswered) -> Sentence:
    comment = f": {event.comment}" if event.comment else ""
    said = "Approved" if event.approved else "Turned down"
    once = f", once for season {event.season}" if event.season else ""
    return Sentence(event.by, f"{said} via {event.via}{once}{comment}", _ok(event.approved), event.answered_at)


def _problem(event: Problem) -> Sentence:
    return Sentence("game-day", event.what + (f" ({event.hint})" if event.hint else ""), "doubt")


_TELLERS: dict[type, Callable[[Any], Sentence | None]] = {
    RunStarted: _started,
    StepStarted: lambda e: Sentence("game-day", f"Step ‘{e.step}’ started", "step"),
    StepEnded: _step_ended,
    TargetsChosen: _targets,
    SteadyStateChecked: _steady,
    FaultInjected: _injected,
    HopSeen: _hop,
    AlertSeen: _alert,
    TaintSeen: _taint,
    DeviceTaintSeen: _device_taint,
    ConditionSeen: _condition,
    LabelSeen: _label,
    AllocatableSeen: _allocatable,
    CordonSeen: _cordon,
    LeftToOwner: lambda e: Sentence(
        "game-day", f"Left to its owner ({e.by or 'unnamed'}): {e.what} of {e.node}", "doubt"
    ),
    DetectorConsulted: _consulted,
    AlertChosen: lambda e: Sentence("game-day", f"Alert {e.alert} stands for ‘{e.meaning}’: it reads {e.source}"),
    KubernetesEventSeen: _kubernetes_event,
    SignSeen: _sign,
    SignalUnwatched: _unwatched,
    PrometheusFellBehind: lambda e: Sentence("game-day", f"Prometheus did not keep up: {e.why}; {e.hint}", "doubt"),
    CanaryMeasured: _canary,
    KernelLineSeen: _kernel_line,
    WorkloadSeen: _workload,
    GangPlaced: _gang,
    RecoveryDisturbed: _disturbed,
    Remediated: _remediated,
    RepairAwaited: lambda e: Sentence("game-day", f"Hands off {e.node} from now on: the cluster repairs it", "step"),
    RepairHopSeen: _repair_hop,
    NodeReplaced: _replaced,
    RepairChainEnded: _chain_ended,
    ApiServersRestarted: lambda e: Sentence(
        "game-day",
        f"API servers restarted, ready after {seconds_text((e.ready_at - e.asked_at).total_seconds())}",
        at=e.asked_at,
    ),
    QaLeftOut: lambda e: Sentence("game-day", f"QA of {e.node} is left out: {e.why}", "doubt"),
    NodeReturned: _returned,
    GuardChecked: _guard,
    ApprovalAsked: lambda e: Sentence("game-day", f"Waits {seconds_text(e.within_s)} at most for approval: {e.where}"),
    ApprovalAnswered: _answered,
    GuestNamed: lambda e: Sentence("game-day", f"The guest {e.name} {e.version} watches in place of our detector"),
    GuestState: _guest_state,
    GuestSpoke: lambda e: Sentence("guest", f"About {e.node}: {e.line}", "mark", e.at),
    BystanderChanged: lambda e: Sentence("Kubernetes", f"{e.node}, no target: {e.what} {e.value}", "doubt", e.at),
    Problem: _problem,
    Aborted: lambda e: Sentence(e.by, f"Aborted: {e.why}", "bad"),
    Refused: lambda e: Sentence("guard", f"Refused: {e.why}", "doubt"),
    RunEnded: lambda e: Sentence("game-day", f"Run ended, cluster {e.cleanliness}", CLEANLINESS_TONE[e.cleanliness]),
}
