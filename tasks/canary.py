"""The canary as parts of steps 1, 4 and 6: measure on a target before, during and after the fault, and judge.

The plan's bound is gameday/plan/canary.py, the order gameday/run/canary.py, the measurement in the pod
gameday/agent/canary.py, the verdict gameday/checks/canary.py. A canary that cannot measure is unknown with a reason; it
never ends a step.
"""

from __future__ import annotations

from datetime import UTC, datetime

from gameday.agent.task import CanaryNote, notes_in
from gameday.checks.canary import baseline_of
from gameday.errors import AdapterError, StepFailedError
from gameday.history.events import CanaryMeasured, QaChecked
from gameday.plan.canary import ExpectedCanary
from gameday.run.agents import run_agent
from gameday.run.canary import CANARY_TIMEOUT, CanaryPhase, canary_task
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget


def measure_before_fault(run: Run, target: ChosenTarget) -> None:
    """Measure the value that later ones are compared with."""
    expected = run.plan.expect.canary
    if expected is None:
        return
    gpus = 0 if expected.measure.uses_ping else max(0, run.nodes.free_gpus(target.node))
    note = _measure(run, expected, target, "before", gpus)
    run.note(_event(expected, target, "before", note, gpus, "", True if note.value is not None else None))


def measure_during_fault(run: Run, result: StepResult, target: ChosenTarget) -> None:
    """Measure while the fault is in, and judge by the plan's bound; without a baseline nothing is measured."""
    expected = run.plan.expect.canary
    if expected is None:
        return
    before = baseline_of(run.history(), target.node)
    if before is None or before.value is None:
        why = before.detail if before else ""
        result.mark_unknown(f"{expected.measure} on {target.node} has no baseline: {why}")
        return
    note = _measure(run, expected, target, "during", before.gpus, before.peer)
    ok = None if note.value is None else expected.holds_during(note.value, before.value)
    run.note(_event(expected, target, "during", note, before.gpus, expected.bound_during(before.value), ok))
    if note.value is None:
        result.mark_unknown(f"{expected.measure} on {target.node} could not be measured: {note.detail}")
    elif not ok:
        result.mark_broken(f"{expected.measure} on {target.node} is {note.value:.4g} {expected.measure.unit}")


def measure_after_fault(run: Run, target: ChosenTarget) -> QaChecked | None:
    """Measure whether the value is back, and return it as a check of QA; None without a baseline."""
    expected = run.plan.expect.canary
    before = baseline_of(run.history(), target.node)
    if expected is None or before is None or before.value is None:
        return None
    note = _measure(run, expected, target, "after", before.gpus, before.peer)
    ok = None if note.value is None else expected.holds_after(note.value, before.value)
    bound = expected.bound_after(before.value)
    run.note(_event(expected, target, "after", note, before.gpus, bound, ok))
    unit = expected.measure.unit
    checked = QaChecked(
        node=target.node, gpu=None, check="canary", value=note.value, unit=unit, bound=bound, ok=ok, detail=note.detail
    )
    run.note(checked)
    return checked


def _measure(
    run: Run, expected: ExpectedCanary, target: ChosenTarget, phase: CanaryPhase, gpus: int, peer: str = ""
) -> CanaryNote:
    """Send a canary; an error of the cluster or the agent becomes the note's detail."""
    free = run.nodes.free_gpus(target.node)
    if not expected.measure.uses_ping and (gpus < 1 or free < gpus):
        wanted = f"{gpus} were measured before" if gpus else "a canary needs one at least, an all-reduce two"
        return CanaryNote(value=None, detail=f"{max(0, free)} GPU(s) of {target.node} are free; {wanted}")
    name = run.record.object_name(f"canary-{phase}", target.index)
    try:
        task = canary_task(run, expected, target.node, phase, gpus, peer)
        entry, outcome = run_agent(run, name, task, CANARY_TIMEOUT)
        notes = notes_in(run.kubernetes.pod_log(name), CanaryNote)
        run.undo(entry)
    except (AdapterError, StepFailedError) as error:
        return CanaryNote(value=None, detail=str(error))
    return notes[0] if notes else CanaryNote(value=None, detail=outcome.error or "the canary printed no result")


def _event(
    expected: ExpectedCanary,
    target: ChosenTarget,
    phase: CanaryPhase,
    note: CanaryNote,
    gpus: int,
    bound: str,
    ok: bool | None,
) -> CanaryMeasured:
    return CanaryMeasured(
        node=target.node,
        measure=expected.measure,
        phase=phase,
        value=note.value,
        unit=expected.measure.unit,
        bound=bound,
        ok=ok,
        detail=note.detail,
        gpus=gpus,
        peer=note.peer,
        at=datetime.now(UTC),
    )
