"""Check the guardrails: all of them before the fault goes in, and repeatedly while it is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from gameday.errors import AdapterError, RefusedError
from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import Observation
from gameday.guard.registry import guardrails
from gameday.history.events import GuardChecked
from gameday.run.run import ReadOnlyRun, Run
from gameday.run.targets import Targets, chosen_targets
from gameday.values.nodes import Target
from gameday.values.results import Step

# Interval at which it asks whether a guardrail is due; guardrails that cost nothing are due each time.
_TICK_S = 0.1
# A guardrail that stays unmeasured for this long while the fault is in stops the run. Our own choice: an API server
# that restarts is back by then.
_UNMEASURED_LIMIT_S = 30.0


@dataclass(frozen=True)
class GuardrailCheck:
    """A guardrail with a limit, and its measurement."""

    name: str
    limit: str
    measurement: Measurement

    def message(self) -> str:
        """Return why the run must not go on, for the refusal or the abort."""
        found = self.measurement
        why = f" ({found.why})" if found.why and found.value else found.why
        doubt = "not measured" if found.ok is None else ""
        text = ", ".join(filter(None, (doubt, f"{found.value}{why}")))
        return f"guardrail {self.name}: {text}; limit: {self.limit}"


def check(guardrail: Guardrail, observation: Observation) -> GuardrailCheck | None:
    """Check one guardrail; return None if it has no limit. An error makes it unmeasured, never kept."""
    limit = "not known"
    try:
        if not (limit := guardrail.limit(observation)):
            return None
        measurement = guardrail.measure(observation)
    except AdapterError as error:
        measurement = Measurement(None, "", str(error), error.hint)
    except Exception as error:  # a bug in a guardrail must not let the run through
        measurement = Measurement(None, "", f"{type(error).__name__}: {error}")
    return GuardrailCheck(guardrail.name, limit, measurement)


def check_all(run: ReadOnlyRun, targets: Targets) -> list[GuardrailCheck]:
    """Check once every guardrail that has a limit; the targets must be followed."""
    observation = Observation(run, tuple(chosen.target for chosen in targets))
    return [checked for guardrail in guardrails() if (checked := check(guardrail, observation))]


def guard_before(run: ReadOnlyRun, targets: Targets) -> None:
    """Check every guardrail before the fault, and note each in the history.

    Raises:
        RefusedError: A guardrail trips, or cannot be measured.
    """
    checks = check_all(run, targets)
    for checked in checks:
        note(run, checked, "before")
    for checked in sorted(checks, key=lambda checked: checked.measurement.ok is None):
        if not checked.measurement.ok:
            raise RefusedError(checked.message(), checked.measurement.hint)


def note(run: ReadOnlyRun, checked: GuardrailCheck, phase: Literal["before", "during"], looks: int = 1) -> None:
    """Note a guardrail in the history; `looks` is the number of looks at it."""
    found = checked.measurement
    run.note(
        GuardChecked(
            guardrail=checked.name,
            phase=phase,
            limit=checked.limit,
            measured=found.value,
            ok=found.ok,
            why=found.why,
            nodes=found.nodes,
            looks=looks,
        )
    )


@dataclass
class _Watched:
    """The looks at one guardrail so far; times are of the monotonic clock."""

    guardrail: Guardrail
    due: float
    looks: int = 0
    last: GuardrailCheck | None = None
    unmeasured_since: float | None = None
    noted: set[bool | None] = field(default_factory=set)


@contextmanager
def under_guardrails(run: Run) -> Iterator[None]:
    """Check the changeable guardrails beside the block for as long as it runs; one that trips stops the run.

    During the baseline the run is refused, because nothing is broken yet; later it is aborted.
    """
    watched = [_Watched(each, run.clock.monotonic()) for each in guardrails() if each.interval_s is not None]
    watches = [
        _Watch(run, [one for one in watched if one.guardrail.asks_server is asks_server])
        for asks_server in (False, True)
    ]
    repeated = [run.clock.repeat("guardrails", watch.look, _TICK_S) for watch in watches]
    try:
        yield
    finally:
        for watch in watches:
            watch.is_over = True
        for repetition in repeated:
            repetition.stop()
        for repetition in repeated:
            # A look that waits for a server must not delay the undo.
            repetition.stop(_TICK_S)
        for one in watched:
            if one.last and one.looks:
                note(run, one.last, "during", one.looks)


class _Watch:
    """The guardrails of one repetition."""

    def __init__(self, run: Run, watched: Sequence[_Watched]) -> None:
        self._run = run
        self._watched = watched
        self._targets: tuple[Target, ...] = ()
        self.is_over = False
        """Set from outside: a look still under way no longer counts."""

    def look(self) -> float | None:
        """Check the guardrails that are due; return the seconds to the next look, None once the run stops."""
        run, clock = self._run, self._run.clock
        self._targets = self._targets or chosen_targets(run.history())
        followed = bool(self._targets) and all(run.nodes.follows(target.node) for target in self._targets)
        observation = Observation(run, self._targets)
        for one in self._watched:
            if clock.monotonic() < one.due or (one.guardrail.needs_targets and not followed):
                continue
            began = clock.monotonic()
            one.due = began + (one.guardrail.interval_s or 0.0)
            checked = check(one.guardrail, observation)
            if self.is_over:
                return None
            if checked:
                one.looks, one.last = one.looks + 1, checked
                _handle(run, one, checked, began)
        return _TICK_S if run.record.abort.requested is None else None


def _handle(run: Run, one: _Watched, checked: GuardrailCheck, began: float) -> None:
    """Stop the run if a guardrail trips or stays unmeasured, and note each of the two once.

    Args:
        run: The run.
        one: The guardrail's looks so far.
        checked: This look.
        began: Start of this look, by the monotonic clock; a server may take long to fail.
    """
    ok, now = checked.measurement.ok, run.clock.monotonic()
    one.unmeasured_since = None if ok is not None else one.unmeasured_since or began
    if ok is not True and ok not in one.noted:
        one.noted.add(ok)
        note(run, checked, "during", one.looks)
    # During a fault that takes the API server away, guardrails cannot be measured either.
    limit_s = _UNMEASURED_LIMIT_S + run.plan.fault.api_server_away_for.total_seconds()
    too_long = one.unmeasured_since is not None and now - one.unmeasured_since > limit_s
    if ok is False or too_long:
        if run.record.step is Step.BASELINE:
            run.record.abort.stop_with(RefusedError(checked.message(), checked.measurement.hint))
        else:
            run.record.abort.request("guard", checked.message())
