"""Look at the guardrails: all of them before the fault goes in, and again and again while it is in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gameday.errors import AdapterError, RefusedError
from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import Observation
from gameday.guard.registry import guardrails
from gameday.history.events import GuardChecked
from gameday.run.run import ReadOnlyRun, Run
from gameday.run.targets import Targets, chosen_targets
from gameday.values.nodes import Target
from gameday.values.results import Step

# How often the watching thread looks whether a guardrail is due; what is free is looked at this often.
_TICK_S = 0.1
# A guardrail that cannot be measured for so long while the fault is in stops the run: it would not know.
_BLIND_FOR_S = 30.0


@dataclass(frozen=True)
class Checked:
    """One guardrail that is in force, and what was found."""

    name: str
    limit: str
    finding: Finding

    def message(self) -> str:
        """Return what tripped, for the refusal or the abort."""
        found = self.finding
        why = f" ({found.why})" if found.why and found.measured else found.why
        doubt = "not measured" if found.ok is None else ""
        return (
            f"guardrail {self.name}: {', '.join(filter(None, (doubt, f'{found.measured}{why}')))}; limit: {self.limit}"
        )


def check(rail: Guardrail, observation: Observation) -> Checked | None:
    """What it found; None where nobody set a limit. Whatever goes wrong is unmeasured, never held."""
    limit = "not known"
    try:
        if not (limit := rail.limit(observation)):
            return None
        finding = rail.measure(observation)
    except AdapterError as error:
        finding = Finding(None, "", str(error), error.hint)
    except Exception as error:  # a bug in a guardrail must not let the run through
        finding = Finding(None, "", f"{type(error).__name__}: {error}")
    return Checked(rail.name, limit, finding)


def check_all(run: ReadOnlyRun, targets: Targets) -> list[Checked]:
    """Look once at every guardrail in force; the targets must be followed."""
    observation = Observation(run, tuple(chosen.target for chosen in targets))
    return [checked for rail in guardrails() if (checked := check(rail, observation))]


def guard_before(run: ReadOnlyRun, targets: Targets) -> None:
    """Note every guardrail in force. Raises RefusedError for the first that trips or cannot be measured."""
    found = check_all(run, targets)
    for checked in found:
        note(run, checked, "before")
    for checked in sorted(found, key=lambda one: one.finding.ok is None):
        if not checked.finding.ok:
            raise RefusedError(checked.message(), checked.finding.hint)


def note(run: ReadOnlyRun, checked: Checked, phase: str, looks: int = 1) -> None:
    finding = checked.finding
    run.note(
        GuardChecked(
            guardrail=checked.name,
            phase="before" if phase == "before" else "during",
            limit=checked.limit,
            measured=finding.measured,
            ok=finding.ok,
            why=finding.why,
            nodes=finding.nodes,
            looks=looks,
        )
    )


@dataclass
class _Watched:
    """One guardrail's looks so far; times are of the monotonic clock."""

    rail: Guardrail
    due: float
    looks: int = 0
    last: Checked | None = None
    blind_since: float | None = None
    told: set[bool | None] = field(default_factory=set)


@contextmanager
def under_guardrails(run: Run) -> Iterator[None]:
    """Look at the guardrails that may change for as long as the block runs, in threads; one that trips stops the run.

    During the baseline that is a refusal: nothing is broken yet.
    """
    stop = threading.Event()
    watched = [_Watched(rail, time.monotonic()) for rail in guardrails() if rail.every_s is not None]
    threads = [
        threading.Thread(
            target=_watch,
            args=(run, [one for one in watched if one.rail.asks is asks], stop),
            name="guardrails",
            daemon=True,
        )
        for asks in (False, True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            # A look that waits for a server must not hold up the undo.
            thread.join(_TICK_S)
        for one in watched:
            if one.last and one.looks:
                note(run, one.last, "during", one.looks)


def _watch(run: Run, watched: list[_Watched], stop: threading.Event) -> None:
    targets: tuple[Target, ...] = ()
    while not stop.wait(_TICK_S):
        targets = targets or chosen_targets(run.history())
        followed = bool(targets) and all(run.nodes.follows(target.node) for target in targets)
        observation = Observation(run, targets)
        for one in watched:
            if time.monotonic() < one.due or (one.rail.needs_targets and not followed):
                continue
            began = time.monotonic()
            one.due = began + (one.rail.every_s or 0.0)
            checked = check(one.rail, observation)
            if stop.is_set():
                return
            if checked:
                one.looks, one.last = one.looks + 1, checked
                _act(run, one, checked, began)
        if run.record.abort.requested is not None:
            return


def _act(run: Run, one: _Watched, checked: Checked, began: float) -> None:
    """Stop the run over what tripped, or over what stays unmeasured; write down what is new.

    `began`: when this look did, by the monotonic clock; a server may take long to say nothing.
    """
    ok, now = checked.finding.ok, time.monotonic()
    one.blind_since = None if ok is not None else one.blind_since or began
    if ok is not True and ok not in one.told:
        one.told.add(ok)
        note(run, checked, "during", one.looks)
    if ok is False or (one.blind_since is not None and now - one.blind_since > _BLIND_FOR_S):
        if run.record.step is Step.BASELINE:
            run.record.abort.stop_with(RefusedError(checked.message(), checked.finding.hint))
        else:
            run.record.abort.request("guard", checked.message())
