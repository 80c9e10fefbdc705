"""A run as a Chaos Toolkit journal, which `chaos report` and collectors of journals can read.

The keys are those of the journal's and the experiment's reference
(chaostoolkit-documentation, sources/reference/api/journal.md and
experiment.md), and those that chaostoolkit-lib 1.44 and chaostoolkit-reporting
0.18 need beyond it: `chaoslib-version`, a present `steady_states.after`, and
`status` and `end` in every entry.
"""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from gameday.checks.facts import stop_reason
from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected, Record, RunEnded, SteadyStateChecked, StepEnded, StepStarted
from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import visible
from gameday.report.summarise import summarise
from gameday.values.results import Step, StepOutcome

CHAOSLIB_VERSION = "1.44.0"
"""The version of Chaos Toolkit whose reading of the specification the export follows; `chaos report` chooses its
template by it."""

_STEP_OF = {
    "alert": Step.AWAIT_ALERT,
    "no-other-alerts": Step.AWAIT_ALERT,
    "fault": Step.INJECT,
    "steady-state": Step.BASELINE,
    "remediation": Step.RECOVER,
    "repair": Step.RECOVER,
    "undo": Step.RECOVER,
    "node-as-before": Step.RECOVER,
    "qa": Step.QA_NODE,
}
"""The step that answers for a check, by the beginning of its id; `verify taint` answers for the rest."""
_METHOD = (Step.INJECT, Step.AWAIT_ALERT, Step.VERIFY_TAINT, Step.QA_NODE)


def journal(run: RunFolder) -> bytes:
    """Return the journal as JSON; nothing in a run's folder makes it raise."""
    entries = {step: entry for step in Step if (entry := _entry(run, step))}
    records = run.history.records
    start, end = (records[0].at, records[-1].at) if records else (None, None)
    before = _before(run)
    gate_met = before is None or before["steady_state_met"]
    content: dict[str, Any] = {
        "chaoslib-version": CHAOSLIB_VERSION,
        "platform": "Kubernetes",
        "node": visible(run.started.cluster) if run.started else "",
        "experiment": _experiment(run),
        "start": _stamp(start),
        "end": _stamp(end),
        "duration": (end - start).total_seconds() if start and end else 0.0,
        "status": _status(run),
        "deviated": run.result.outcome is RunOutcome.FAILED,
        # The gates are not measured a second time: the state the node was left in is under the rollbacks.
        "steady_states": {"before": before, "after": None, "during": []},
        "run": [entries[step] for step in _METHOD if step in entries] if gate_met else [],
        "rollbacks": [entries[Step.RECOVER]] if Step.RECOVER in entries else [],
        "x-gameday": summarise(run),
    }
    return to_json(content, indent=1, inf_nan_mode="null") + b"\n"


def _experiment(run: RunFolder) -> dict[str, Any]:
    plan, started = run.plan, run.started
    title = plan.title if plan else started.plan_name if started else "A run without a readable plan"
    tags = ["gpu", "gameday", *([plan.name, plan.fault.type] if plan else [])]
    experiment: dict[str, Any] = {
        "title": visible(title),
        "description": visible(plan.hypothesis) if plan else "not known: plan.json is missing or damaged",
        "tags": tags,
        "method": [_activity(run, step) for step in _METHOD],
        "rollbacks": [_activity(run, Step.RECOVER)],
        "runtime": {"rollbacks": {"strategy": "always"}},
        "extensions": [
            {
                "name": "gameday",
                "run": started.run_id if started else None,
                "plan_sha256": started.plan_sha256 if started else None,
                "version": started.gameday_version if started else None,
                "seed": plan.targets.seed if plan else None,
                "cleanliness": run.result.cleanliness,
                "exit_code": run.result.exit_code,
            }
        ],
        "dry": None,
    }
    probes = [_gate(run, gate) for gate in run.history.of(SteadyStateChecked)]
    if probes:
        name = visible(plan.hypothesis) if plan else "steady state"
        experiment["steady-state-hypothesis"] = {"title": name, "probes": probes}
    return experiment


def _activity(run: RunFolder, step: Step) -> dict[str, Any]:
    """The inject action runs the whole game-day again; everything else is read from the report of this one."""
    acts = step in (Step.INJECT, Step.RECOVER)
    return {
        "type": "action" if acts else "probe",
        "name": str(step),
        "provider": _again(run) if step is Step.INJECT else _read_report(run),
    }


def _gate(run: RunFolder, gate: SteadyStateChecked) -> dict[str, Any]:
    return {"type": "probe", "name": visible(gate.name), "tolerance": 0, "provider": _read_report(run)}


def _again(run: RunFolder) -> dict[str, Any]:
    words = shlex.split(run.started.command) if run.started else []
    return {"type": "process", "path": "gameday", "arguments": [visible(word) for word in words[1:]] or ["plans"]}


def _read_report(run: RunFolder) -> dict[str, Any]:
    """The exit code of `gameday report` is that of the outcome: 0 where the run passed."""
    where = f"reports/{run.started.run_id}" if run.started else "reports"
    return {"type": "process", "path": "gameday", "arguments": ["report", where]}


def _before(run: RunFolder) -> dict[str, Any] | None:
    """Return the gates before the fault as probes; None where the run ended before it looked."""
    gates = list(run.history.with_times(SteadyStateChecked))
    if not gates:
        return None
    return {
        "steady_state_met": all(gate.ok for _, gate in gates),
        "probes": [
            {
                "activity": _gate(run, gate),
                "start": _stamp(record.at),
                "end": _stamp(record.at),
                "duration": gate.seconds or 0.0,
                "status": "failed" if gate.ok is None else "succeeded",
                "output": visible(gate.detail),
                "tolerance_met": bool(gate.ok),
                **({"exception": [f"{visible(gate.detail)}\n"]} if gate.ok is None else {}),
            }
            for record, gate in gates
        ],
    }


def _entry(run: RunFolder, step: Step) -> dict[str, Any] | None:
    """Return the step as an activity's entry; None for a step that was never begun."""
    started = _first(run, StepStarted, step)
    if started is None:
        return None
    ended = _first(run, StepEnded, step)
    end = ended or run.history.records[-1]
    outcome = ended.event.outcome if ended and isinstance(ended.event, StepEnded) else None
    entry: dict[str, Any] = {
        "activity": _activity(run, step),
        "start": _stamp(started.at),
        "end": _stamp(end.at),
        "duration": max(0.0, (end.at - started.at).total_seconds()),
        "status": "succeeded" if outcome in (StepOutcome.DONE, StepOutcome.BROKEN) else "failed",
        "output": _output(run, step),
    }
    if entry["status"] == "failed":
        why = ended.event.why if ended and isinstance(ended.event, StepEnded) else ""
        entry["exception"] = [f"{visible(why or stop_reason(run.history))}\n"]
    return entry


def _first(run: RunFolder, kind: type[StepStarted] | type[StepEnded], step: Step) -> Record | None:
    return next((record for record, event in run.history.with_times(kind) if event.step == step), None)


def _output(run: RunFolder, step: Step) -> str:
    """Return the step's evidence as text: the specification allows a string or nothing."""
    lines = [_line(verdict) for verdict in run.verdicts if _answers(verdict.check) is step]
    if step is Step.INJECT:
        lines += [line for fault in run.history.of(FaultInjected) for line in fault.evidence]
    return visible("\n".join(lines))


def _answers(check: str) -> Step:
    return next((step for prefix, step in _STEP_OF.items() if check.startswith(prefix)), Step.VERIFY_TAINT)


def _line(verdict: Verdict) -> str:
    bound = f", wanted {verdict.bound}" if verdict.bound else ""
    why = f": {verdict.why}" if verdict.why and verdict.status is not Status.HELD else ""
    return f"{verdict.status}: {verdict.expectation} ({verdict.measured or 'not measured'}{bound}){why}"


def _status(run: RunFolder) -> str:
    """Return the journal's status: a broken expectation is `deviated`, not `failed`.

    The experiment itself went to its end.
    """
    outcome = run.result.outcome
    if outcome is RunOutcome.ABORTED:
        return "interrupted"
    if outcome is RunOutcome.REFUSED or run.history.last(RunEnded) is None:
        return "aborted"
    ended = run.history.of(StepEnded)
    return "failed" if any(step.outcome is StepOutcome.UNKNOWN for step in ended) else "completed"


def _stamp(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
