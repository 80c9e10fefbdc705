"""Roles inject and undo: put a fault in once, and always take it out."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from gameday.agent.context import Context, task_error
from gameday.agent.task import AgentResult, InjectedNote, InjectTask, PriorNote, UndoTask
from gameday.errors import HostBusyError, HostError
from gameday.faults.base import Fault
from gameday.faults.optional import keep_in, prior_state_of
from gameday.faults.registry import fault_for, parse_parameters
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.results import Cleanliness

_PAUSES_S = (0.2, 1.0)
"""Pauses between the three attempts to undo; short, because the kubelet's grace period is running."""
_BUSY_PAUSE_S = 2.0
_BUSY_FOR_S = 30.0
"""Time within which an undo tries again while its host is busy: one more attempt takes up to 20 s (dcgmi's timeout and
its end), and the kubelet's grace period is 60 s (gameday/cluster/manifests.py)."""


class InjectedState(BaseModel):
    """The agent's memory in its state folder: after a restart in the same pod it takes the fault out, not in again."""

    model_config = ConfigDict(frozen=True)

    written_at: AwareDatetime | None = None
    undo_state: dict[str, str] = {}


class Injection:
    """A fault with its parameters, for one GPU of one host."""

    def __init__(self, fault: dict[str, Any], gpu: int, host: Host) -> None:
        """Read the fault's parameters.

        Args:
            fault: The parameters as plain data, including `type`.
            gpu: Index of the GPU, as NVML counts.
            host: The node.

        Raises:
            TaskError: The parameters are not valid.
        """
        try:
            self.parameters: FaultParameters = parse_parameters(fault)
        except ValueError as error:
            raise task_error(error) from None
        self.fault: Fault[Any] = fault_for(self.parameters)
        self.gpu = gpu
        self.host = host

    def take_out(self, undo_state: dict[str, str]) -> AgentResult:
        """Undo and read back, up to three times, and for half a minute while the host is busy.

        Never raises: an exception of the fault becomes evidence.
        """
        lines: list[str] = []
        waits, busy_until = iter(_PAUSES_S), time.monotonic() + _BUSY_FOR_S
        for attempt in count(1):
            try:
                undone, cleanliness = self._attempt(attempt, undo_state, lines)
                wait = next(waits, None)
            except HostBusyError as error:
                undone, cleanliness = False, Cleanliness.UNKNOWN
                wait = _BUSY_PAUSE_S if time.monotonic() < busy_until else None
                if f"busy: {error}" not in lines[-1:]:
                    lines.append(f"busy: {error}")
            if wait is None or (undone and cleanliness is Cleanliness.CLEAN):
                break
            time.sleep(wait)
        clean = cleanliness is Cleanliness.CLEAN
        state = "still in" if cleanliness is Cleanliness.DIRTY else "perhaps still in"
        return AgentResult(
            role="undo",
            ok=clean,
            cleanliness=cleanliness,
            error="" if clean else f"the fault is {state}: {lines[-1]}",
            attempts=attempt,
            evidence=tuple(lines),
        )

    def _attempt(self, number: int, undo_state: dict[str, str], lines: list[str]) -> tuple[bool, Cleanliness]:
        """Undo and read back once; return whether the undo succeeded, and what was read. Raises HostBusyError."""
        undone = False
        try:
            lines += self.fault.undo(self.parameters, self.gpu, self.host, undo_state).lines
            undone = True
        except HostBusyError:
            raise
        except Exception as error:  # the fault must come out, even if it has a bug
            lines.append(f"undo, attempt {number}: {_cause(error)}")
        return undone, self._read_back(undo_state, lines)

    def _read_back(self, undo_state: dict[str, str], lines: list[str]) -> Cleanliness:
        try:
            clean = self.fault.verify_undone(self.parameters, self.gpu, self.host, undo_state)
        except HostBusyError:
            raise
        except Exception as error:  # the fault must come out, as in take_out
            lines.append(f"could not read back: {_cause(error)}")
            return Cleanliness.UNKNOWN
        lines.append(f"read back: {'the fault is out' if clean else 'the fault is still in'}")
        return Cleanliness.CLEAN if clean else Cleanliness.DIRTY


def inject(task: InjectTask, context: Context) -> AgentResult:
    """Put the fault in, become ready, hold, and take it out.

    Raises:
        TaskError: The fault's parameters are not valid.
    """
    injection = Injection(task.fault, task.gpu, context.host)
    state_file = context.state_dir / "injected.json"
    if context.ending.event.is_set() and not state_file.exists():
        return _not_injected("stopped before the fault went in", "sigterm")
    try:
        # Written before the fault goes in: if this agent is killed before it ends, the next one undoes.
        _create(state_file, InjectedState())
    except FileExistsError:
        return _undo_after_restart(injection, state_file)
    except OSError as error:
        return _not_injected(f"cannot write {state_file}: {error.strerror}; nothing was injected", "error")
    return _inject(task, context, injection, state_file)


def undo(task: UndoTask, context: Context) -> AgentResult:
    """Take the fault out, using nothing but its undo state.

    Raises:
        TaskError: The fault's parameters are not valid.
    """
    return Injection(task.fault, task.gpu, context.host).take_out(task.undo_state)


def _inject(task: InjectTask, context: Context, injection: Injection, state_file: Path) -> AgentResult:
    problem = ""
    evidence: tuple[str, ...] = ()
    try:
        undo_state = prior_state_of(injection.parameters, task.gpu, context.host)
        _replace(state_file, InjectedState(undo_state=undo_state))
        if undo_state:
            context.print_note(PriorNote(undo_state=undo_state))
    except Exception as error:  # reading changes nothing, so there is nothing to undo
        return _not_injected(_cause(error), "error")
    written_at = datetime.now(UTC)
    timer = context.ending.after(task.hold_s)
    try:
        injected = injection.fault.inject(injection.parameters, task.gpu, context.host)
        written_at, evidence = injected.written_at or written_at, injected.lines
        undo_state = undo_state | injected.undo_state
        _replace(state_file, InjectedState(written_at=written_at, undo_state=undo_state))
        context.print_note(
            InjectedNote(
                written_at=written_at,
                evidence=evidence,
                undo_state=undo_state,
                memory=injected.memory,
                logged_at=injected.logged_at,
                nvml_at=injected.nvml_at,
            )
        )
        context.become_ready()
        evidence += keep_in(injection.parameters, task.gpu, context.host, context.ending.event, context.print_note)
    except Exception as error:  # the fault comes out in every case
        problem = _cause(error)
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


def _undo_after_restart(injection: Injection, state_file: Path) -> AgentResult:
    try:
        state = InjectedState.model_validate_json(state_file.read_bytes())
    except (OSError, ValidationError):
        state = InjectedState()
    undone = injection.take_out(state.undo_state)
    why = "the agent restarted while the fault was in; it took the fault out and did not put it in again"
    return undone.model_copy(
        update={
            "role": "inject",
            "ok": False,
            "written_at": state.written_at,
            "ended_by": "error",
            "error": "; ".join(filter(None, (why, undone.error))),
            "undo_state": state.undo_state,
        }
    )


def _not_injected(why: str, ended_by: str) -> AgentResult:
    return AgentResult.model_validate(
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


def _cause(error: Exception) -> str:
    """Return a host's own message; any other exception is a bug, and its type is named."""
    return str(error) if isinstance(error, (HostError, OSError)) else f"{type(error).__name__}: {error}"
