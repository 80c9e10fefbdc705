"""The same fault again and again: a signal that flaps is easily missed, or pages each time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

from gameday.documents.fields import Duration, conflict, format_duration
from gameday.errors import HostError
from gameday.faults.base import Evidence, Fault, Layer, NodeNeeds, Reach
from gameday.faults.optional import keep_in, needs_of, prior_state_of, reach_of, takes_node_down
from gameday.faults.registry import fault_for
from gameday.host.base import Host
from gameday.plan.fault import AnyFault, FaultParameters
from gameday.values.nodes import NodeRole

_MADE_OF_OTHERS = ("compound", "repeated")


class RepeatedParameters(FaultParameters):
    type: Literal["repeated"] = "repeated"
    fault: AnyFault
    """The fault to put in each time; it stays in for half of `every`."""
    times: int = Field(ge=2, le=100)
    """Number of injections."""
    every: Duration = Field(ge=timedelta(seconds=1))
    """Time from one injection to the next."""

    @field_validator("fault")
    @classmethod
    def _can_be_repeated(cls, fault: FaultParameters) -> FaultParameters:
        if fault.type in _MADE_OF_OTHERS:
            raise conflict(("type",), f"a fault of type {fault.type} cannot be repeated: repeat its parts instead")
        if fault.runs_on is not NodeRole.GPU:
            raise conflict(
                ("type",),
                f"{fault.type} runs on an {fault.runs_on}: it has `rounds` of its own",
            )
        if "hold" in fault.model_fields_set and fault.hold != type(fault).model_fields["hold"].default:
            raise conflict(("hold",), "it stays in for half of `every` each time: write `hold` only outside")
        if takes_node_down(fault):
            raise conflict(
                ("type",), f"{fault.type} takes the node down with the agent, which could not put it in again"
            )
        return fault

    @model_validator(mode="after")
    def _all_of_them_fit_in(self) -> RepeatedParameters:
        takes = self.every * (self.times - 1) + self.every / 2
        if takes > self.hold:
            raise conflict(
                ("hold",),
                f"{self.times} times every {format_duration(self.every)} take {format_duration(takes)}, "
                f"and hold ({format_duration(self.hold)}) ends before",
            )
        return self

    def made_of(self) -> tuple[FaultParameters, ...]:
        return (self.fault,)


class RepeatedFault(Fault[RepeatedParameters]):
    """Puts a fault in, takes it out after half of `every`, and puts it in again, a number of times.

    Each change is read back. If the fault does not come out, or does not go in again, the series ends. After the last
    time it stays out, and the agent waits for the end of the hold.
    """

    parameters: ClassVar[type[FaultParameters]] = RepeatedParameters
    layer: ClassVar[Layer] = Layer.SEVERAL
    summary: ClassVar[str] = "Puts the same fault in again and again, as one that flaps"
    does_not_reach: ClassVar[str] = "what the fault itself does not reach"
    seen_by: ClassVar[tuple[str, ...]] = ("every reader that sees the fault, and looks often enough",)

    def __init__(self) -> None:
        # The undo state of `inject`, for `hold`, which does not get it. Keyed by the parameters' identity, because two
        # parts of one compound fault share this instance.
        self._first: dict[int, dict[str, str]] = {}

    def needs(self, parameters: RepeatedParameters) -> NodeNeeds:
        # The operands would leave once, and be back on the GPU when the fault is to go in again.
        return replace(needs_of(parameters.fault), operands_away=False, operands_away_to_undo=False)

    def reach(self, parameters: RepeatedParameters) -> Reach:
        return reach_of(parameters.fault)

    def prior_state(self, parameters: RepeatedParameters, gpu: int, host: Host) -> dict[str, str]:
        return prior_state_of(parameters.fault, gpu, host)

    def inject(self, parameters: RepeatedParameters, gpu: int, host: Host) -> Evidence:
        found = _inner(parameters).inject(parameters.fault, gpu, host)
        self._first[id(parameters)] = found.undo_state
        first = f"{parameters.fault.type}, time 1 of {parameters.times}"
        return found.model_copy(update={"lines": tuple(f"{first}: {line}" for line in found.lines)})

    def hold_and_tell(
        self,
        parameters: RepeatedParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        fault, inner = _inner(parameters), parameters.fault
        state, half_s = self._first.pop(id(parameters)), parameters.every.total_seconds() / 2
        for time in range(1, parameters.times + 1):
            if time > 1:
                state = fault.inject(inner, gpu, host).undo_state
            keep_in(inner, gpu, host, _over_after(half_s, ended), tell)
            if ended.is_set():
                return (f"ended with {inner.type} in for the {time}. of {parameters.times} times",)
            fault.undo(inner, gpu, host, state)
            if not fault.verify_undone(inner, gpu, host, state):
                raise HostError(f"{inner.type} did not come out after its {time}. of {parameters.times} times")
            if time < parameters.times and ended.wait(half_s):
                return (f"ended after {time} of {parameters.times} times",)
        ended.wait()
        return (f"went in {parameters.times} times, every {format_duration(parameters.every)}, and came out each time",)

    def undo(self, parameters: RepeatedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return _inner(parameters).undo(parameters.fault, gpu, host, undo_state)

    def verify_undone(self, parameters: RepeatedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return _inner(parameters).verify_undone(parameters.fault, gpu, host, undo_state)


def _inner(parameters: RepeatedParameters) -> Fault[Any]:
    return fault_for(parameters.fault)


def _over_after(seconds: float, ended: threading.Event) -> threading.Event:
    """Return an event that is set after a number of seconds, or right after `ended`."""
    over = threading.Event()

    def wait() -> None:
        ended.wait(seconds)
        over.set()

    threading.Thread(target=wait, name="repeated-half", daemon=True).start()
    return over
