"""The canary, for steps 1, 4 and 6: measure on a target before, during and after the fault, and judge.

The plan's bound and the verdict are in gameday/expect/canary/, the order is gameday/run/canary.py, the measurement in
the pod gameday/agent/canary.py. A canary that cannot measure is unknown with a reason; it never ends a step.
"""

from __future__ import annotations

from gameday.agent.task import CanaryNote, notes_in
from gameday.checks.facts import first_fault
from gameday.errors import AdapterError, StepFailedError
from gameday.expect.canary import ExpectedAllReduce, ExpectedCanary, ExpectedMeasurement
from gameday.expect.canary.judge import baseline_of
from gameday.history.events import CanaryMeasured, QaChecked
from gameday.observe.injected_fault import InjectedFault
from gameday.run.agents import run_agent
from gameday.run.all_reduce import choose_peers
from gameday.run.canary import CANARY_TIMEOUT, CanaryPhase, canary_task, is_told_by_injector
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget
from gameday.tasks.moments.all_reduce import measure_all_reduce

ORDER = 3


def before_fault_on(run: Run, target: ChosenTarget) -> None:
    """Measure the values that later ones are compared with."""
    for expected in run.plan.expect.measurements:
        measured = _measured(run, expected, target, "before", None)
        if measured.value == 0:
            # Nothing can be below 0, so a baseline of 0 proves nothing.
            measured = measured.model_copy(update={"value": None, "detail": f"0 before the fault: {measured.detail}"})
        run.note(measured.model_copy(update={"ok": True if measured.value is not None else None}))


def during_fault(run: Run, result: StepResult, fault: InjectedFault) -> None:
    """Measure while the fault is in, and judge by the plan's bounds; without a baseline nothing is measured."""
    target = fault.target
    for expected in run.plan.expect.measurements:
        before = baseline_of(run.history(), target.node, expected.quantity)
        if before is None or before.value is None:
            why = before.detail if before else ""
            result.mark_unknown(f"{expected.quantity} on {target.node} has no baseline: {why}")
            continue
        seen = _measured(run, expected, target, "during", before)
        ok = None if seen.value is None else expected.holds_during(seen.value, before.value)
        run.note(seen.model_copy(update={"bound": expected.bound_during(before.value), "ok": ok}))
        if seen.value is None:
            result.mark_unknown(f"{expected.quantity} on {target.node} could not be measured: {seen.detail}")
        elif not ok:
            result.mark_broken(f"{expected.quantity} on {target.node} is {seen.value:.4g} {seen.unit}")


def qa_checks(run: Run, target: ChosenTarget) -> list[QaChecked]:
    """Measure whether the values are back, and return them as checks of QA; those without a baseline are left out."""
    checks: list[QaChecked] = []
    for expected in run.plan.expect.measurements:
        before = baseline_of(run.history(), target.node, expected.quantity)
        if before is None or before.value is None:
            continue
        seen = _measured(run, expected, target, "after", before)
        ok = None if seen.value is None else expected.holds_after(seen.value, before.value)
        bound = expected.bound_after(before.value)
        run.note(seen.model_copy(update={"bound": bound, "ok": ok}))
        name = "all-reduce" if isinstance(expected, ExpectedAllReduce) else "canary"
        checked = QaChecked(
            node=target.node,
            gpu=None,
            check=name,
            value=seen.value,
            unit=seen.unit,
            bound=bound,
            ok=ok,
            detail=seen.detail,
        )
        run.note(checked)
        checks.append(checked)
    return checks


def _measured(
    run: Run, expected: ExpectedMeasurement, target: ChosenTarget, phase: CanaryPhase, before: CanaryMeasured | None
) -> CanaryMeasured:
    """Measure once, with the settings of the baseline if there is one; not judged yet."""
    if isinstance(expected, ExpectedAllReduce):
        return _all_reduce(run, expected, target, phase, before)
    assert isinstance(expected, ExpectedCanary)
    if is_told_by_injector(expected, phase):
        return _told_by_injector(run, expected, target, phase)
    if before is None:
        gpus, peer = max(0, run.nodes.free_gpus(target.node)) if expected.measure.owns_gpus else 0, ""
    else:
        gpus, peer = before.gpus, before.peer
    note = _measure(run, expected, target, phase, gpus, peer)
    seen = _event(run, expected, target, phase, note.value, note.detail)
    return seen.model_copy(update={"gpus": gpus, "peer": note.peer})


def _told_by_injector(run: Run, expected: ExpectedCanary, target: ChosenTarget, phase: CanaryPhase) -> CanaryMeasured:
    fault = first_fault(run.history(), target.node)
    blocks = fault[1].memory if fault else None
    if blocks is None:
        return _event(run, expected, target, phase, None, "the injector did not say what it can still allocate")
    said = f"{blocks.largest_bytes >> 20} of {blocks.free_bytes >> 20} MiB that the holding process could allocate"
    return _event(run, expected, target, phase, blocks.share_percent, said)


def _all_reduce(
    run: Run, expected: ExpectedAllReduce, target: ChosenTarget, phase: CanaryPhase, before: CanaryMeasured | None
) -> CanaryMeasured:
    try:
        earlier = before.peers if before else ()
        if expected.gpus and run.nodes.free_gpus(target.node) < expected.gpus:
            raise StepFailedError(f"no GPU of {target.node} is free, and NCCL takes one of each node")
        peers = choose_peers(run, target.node, expected.nodes - 1, run.excluded_nodes, earlier, expected.gpus)
    except (AdapterError, StepFailedError) as error:
        return _event(run, expected, target, phase, None, str(error))
    note = measure_all_reduce(run, expected, target, peers, phase, before.bytes if before else 0)
    with_others = f"; with {', '.join(peers)}, before with {', '.join(earlier)}" if before and peers != earlier else ""
    seen = _event(run, expected, target, phase, note.value, note.detail + with_others)
    return seen.model_copy(update={"peers": peers, "latency_ms": note.latency_ms, "bytes": note.bytes})


def _measure(
    run: Run, expected: ExpectedCanary, target: ChosenTarget, phase: CanaryPhase, gpus: int, peer: str
) -> CanaryNote:
    """Send a canary; an error of the cluster or the agent becomes the note's detail."""
    free = run.nodes.free_gpus(target.node)
    if expected.measure.owns_gpus and (gpus < 1 or free < gpus):
        wanted = f"{gpus} were measured before" if gpus else "a canary needs one at least, an all-reduce two"
        return CanaryNote(value=None, detail=f"{max(0, free)} GPU(s) of {target.node} are free; {wanted}")
    name = run.record.object_name(f"canary-{phase}", target.index)
    try:
        task = canary_task(run, expected, target, phase, gpus, peer)
        entry, outcome = run_agent(run, name, task, CANARY_TIMEOUT)
        notes = notes_in(run.kubernetes.pod_log(name), CanaryNote)
        run.undo(entry)
    except (AdapterError, StepFailedError) as error:
        return CanaryNote(value=None, detail=str(error))
    return notes[0] if notes else CanaryNote(value=None, detail=outcome.error or "the canary printed no result")


def _event(
    run: Run, expected: ExpectedMeasurement, target: ChosenTarget, phase: CanaryPhase, value: float | None, detail: str
) -> CanaryMeasured:
    return CanaryMeasured(
        node=target.node,
        measure=expected.quantity,
        phase=phase,
        value=value,
        unit=expected.quantity.unit,
        ok=None,
        detail=detail,
        at=run.clock.now(),
    )
