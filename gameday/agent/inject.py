"""Roles inject and undo: a fault goes in once, and comes out whatever happens in between."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from gameday.agent.context import Context, task_error
from gameday.agent.task import InjectedNote, InjectTask, Outcome, PriorNote, UndoTask
from gameday.errors import HostError
from gameday.faults.base import Fault
from gameday.faults.registry import fault_for, parse_parameters
from gameday.host.base import Host
from gameday.plan.models import FaultParameters
from gameday.values.results import Cleanliness

_PAUSES_S = (0.2, 1.0)
"""Between the three attempts to undo; short, because the kubelet's grace period is running."""


class InjectedState(BaseModel):
    """Kept in the state folder, so that an agent restarted in the same pod takes the fault out, not in again."""

    model_config = ConfigDict(frozen=True)

    written_at: AwareDatetime | None = None
    undo_state: dict[str, str] = {}


class Injection:
    """One fault with its parameters, aimed at one GPU of one host."""

    def __init__(self, fault: dict[str, Any], gpu: int, host: Host) -> None:
        """Raises TaskError for parameters that are none."""
        try:
            self.parameters: FaultParameters = parse_parameters(fault)
        except ValueError as error:
            raise task_error(error) from None
        self.fault: Fault[Any] = fault_for(self.parameters)
        self.gpu = gpu
        self.host = host

    def take_out(self, undo_state: dict[str, str]) -> Outcome:
        """Undo and read back, three times if need be. Never raises: what a fault raises becomes evidence."""
        lines: list[str] = []
        cleanliness = Cleanliness.UNKNOWN
        for attempt in range(1, len(_PAUSES_S) + 2):
            undone = False
            try:
                lines += self.fault.undo(self.parameters, self.gpu, self.host, undo_state).lines
                undone = True
            except Exception as error:  # the fault must come out, even past a bug in it
                lines.append(f"undo, attempt {attempt}: {_told(error)}")
            cleanliness = self._read_back(undo_state, lines)
            if undone and cleanliness is Cleanliness.CLEAN:
                break
            if attempt <= len(_PAUSES_S):
                time.sleep(_PAUSES_S[attempt - 1])
        clean = cleanliness is Cleanliness.CLEAN
        return Outcome(
            role="undo",
            ok=clean,
            cleanliness=cleanliness,
            error=""
            if clean
            else f"the fault is {'still in' if cleanliness is Cleanliness.DIRTY else 'perhaps in'}: {lines[-1]}",
            attempts=attempt,
            evidence=tuple(lines),
        )

    def _read_back(self, undo_state: dict[str, str], lines: list[str]) -> Cleanliness:
        try:
            clean = self.fault.verify_undone(self.parameters, self.gpu, self.host, undo_state)
        except Exception as error:  # see take_out
            lines.append(f"could not read back: {_told(error)}")
            return Cleanliness.UNKNOWN
        lines.append(f"read back: {'the fault is out' if clean else 'the fault is still in'}")
        return Cleanliness.CLEAN if clean else Cleanliness.DIRTY


def inject(task: InjectTask, context: Context) -> Outcome:
    """Put the fault in, be ready, hold, take it out. Raises TaskError for parameters that are none."""
    injection = Injection(task.fault, task.gpu, context.host)
    state = context.state_dir / "injected.json"
    if context.ending.event.is_set() and not state.exists():
        return _untouched("stopped before the fault went in", "sigterm")
    try:
        # The claim comes before the fault: killed in between, the next agent still knows to undo.
        _create(state, InjectedState())
    except FileExistsError:
        return _restarted(injection, state)
    except OSError as error:
        return _untouched(f"cannot write {state}: {error.strerror}; nothing was injected", "error")
    return _inject(task, context, injection, state)


def undo(task: UndoTask, context: Context) -> Outcome:
    """Raises TaskError for parameters that are none."""
    return Injection(task.fault, task.gpu, context.host).take_out(task.undo_state)


def _inject(task: InjectTask, context: Context, injection: Injection, state: Path) -> Outcome:
    problem = ""
    evidence: tuple[str, ...] = ()
    try:
        undo_state = injection.fault.prior_state(injection.parameters, task.gpu, context.host)
        _replace(state, InjectedState(undo_state=undo_state))
        if undo_state:
            context.say(PriorNote(undo_state=undo_state))
    except Exception as error:  # reading changes nothing, so there is nothing to take out
        return _untouched(_told(error), "error")
    written_at = datetime.now(UTC)
    timer = context.ending.after(task.hold_s)
    try:
        found = injection.fault.inject(injection.parameters, task.gpu, context.host)
        written_at, evidence = found.written_at or written_at, found.lines
        undo_state = undo_state | found.undo_state
        _replace(state, InjectedState(written_at=written_at, undo_state=undo_state))
        context.say(InjectedNote(written_at=written_at, evidence=evidence, undo_state=undo_state))
        context.become_ready()
        evidence += injection.fault.hold(injection.parameters, task.gpu, context.host, context.ending.event) or ()
    except Exception as error:  # whatever went wrong, the fault comes out
        problem = _told(error)
    timer.cancel()
    undone = injection.take_out(undo_state)
    return undone.model_copy(
        update={
            "role": "inject",
            "ok": undone.ok and not problem,
            "written_at": written_at if evidence else None,
            "ended_by": "error" if problem else context.ending.reason,
            "error": "; ".join(filter(None, (problem, undone.error))),
            "evidence": (*evidence, *undone.evidence),
            "undo_state": undo_state,
        }
    )


def _restarted(injection: Injection, state: Path) -> Outcome:
    try:
        known = InjectedState.model_validate_json(state.read_bytes())
    except (OSError, ValidationError):
        known = InjectedState()
    undone = injection.take_out(known.undo_state)
    told = "the agent was restarted with the fault in, and took it out instead of putting it in again"
    return undone.model_copy(
        update={
            "role": "inject",
            "ok": False,
            "written_at": known.written_at,
            "ended_by": "error",
            "error": "; ".join(filter(None, (told, undone.error))),
            "undo_state": known.undo_state,
        }
    )


def _untouched(why: str, ended_by: str) -> Outcome:
    return Outcome.model_validate(
        {"role": "inject", "ok": False, "cleanliness": Cleanliness.CLEAN, "error": why, "ended_by": ended_by}
    )


def _create(path: Path, state: InjectedState) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(state.model_dump_json().encode())
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, state: InjectedState) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(state.model_dump_json().encode())
    new.replace(path)


def _told(error: Exception) -> str:
    """A host's refusal in its own words; anything else is a bug, and named as what it is."""
    return str(error) if isinstance(error, (HostError, OSError)) else f"{type(error).__name__}: {error}"
