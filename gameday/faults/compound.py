"""Several faults at once on one node: what breaks in pairs is seldom what was tested alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from gameday.documents.fields import conflict, format_duration
from gameday.errors import HostError
from gameday.faults.base import CanaryJob, Claim, Evidence, Fault, Layer, Reach
from gameday.faults.registry import fault_for
from gameday.host.base import Host
from gameday.host.privileges import PodSecurity, combined
from gameday.plan.models import AnyFault, FaultParameters

_FEWEST, _MOST = 2, 4
"""More at once tell nobody which of them it was."""
_LOOK_EVERY_S = 1.0
"""Only to let go of a thread when a part ended first; the end itself is passed on at once."""
Part = tuple[int, FaultParameters, Fault[Any]]
"""Its number, as people count."""


class CompoundParameters(FaultParameters):
    type: Literal["compound"] = "compound"
    parts: tuple[AnyFault, ...] = Field(json_schema_extra={"minItems": _FEWEST, "maxItems": _MOST})
    """The faults, in the order in which they go in; they come out in the opposite one. `hold` is that of all."""

    @field_validator("parts", mode="before")
    @classmethod
    def _given_the_hold(cls, parts: object, info: ValidationInfo) -> object:
        """Before the parts are looked at, as one may need to know how long it has."""
        hold = info.data.get("hold")
        if not isinstance(parts, list | tuple) or hold is None:
            return parts
        return tuple({"hold": format_duration(hold), **part} if isinstance(part, dict) else part for part in parts)

    @field_validator("parts")
    @classmethod
    def _held_together(cls, parts: tuple[FaultParameters, ...], info: ValidationInfo) -> tuple[FaultParameters, ...]:
        if not _FEWEST <= len(parts) <= _MOST:
            raise conflict((), f"a compound fault has {_FEWEST} to {_MOST} parts, not {len(parts)}")
        for number, part in enumerate(parts):
            if isinstance(part, CompoundParameters):
                raise conflict((number, "type"), "a compound fault cannot be a part of another: list its parts here")
            if part.hold != info.data.get("hold", part.hold):
                raise conflict((number, "hold"), "the parts are held together: write `hold` beside `parts` only")
        return parts

    @model_validator(mode="after")
    def _do_not_fight(self) -> CompoundParameters:
        claims = [(number, part.type, fault.claims(part)) for number, part, fault in _parts(self)]
        for (_, one, ours), (number, other, theirs) in combinations(claims, 2):
            fought = next((claim.what for claim in theirs if any(map(claim.fights, ours))), None)
            if fought:
                raise conflict(
                    ("parts", number - 1, "type"), f"{other} and {one} fight for {fought}: each would undo the other"
                )
        return self

    def dangers(self) -> dict[str, str]:
        return {name: why for part in self.parts for name, why in part.dangers().items()}


class CompoundFault(Fault[CompoundParameters]):
    """Puts two to four faults into one node, one right after the other, and takes them out in the opposite order.

    One agent does it, so that they share one dead-man's switch. Where one does
    not go in, or does not stay in, all come out. Each is undone and read back
    by itself, also when another's undo fails; what it takes to undo it is kept
    apart. Two that take the same thing for themselves are refused, as are
    compounds within a compound.
    """

    parameters: ClassVar[type[FaultParameters]] = CompoundParameters
    layer: ClassVar[Layer] = Layer.SEVERAL
    summary: ClassVar[str] = "Puts two or more faults into a node at once"
    does_not_reach: ClassVar[str] = "what none of its parts reaches"
    seen_by: ClassVar[tuple[str, ...]] = ("whoever sees one of its parts",)

    def claims(self, parameters: CompoundParameters) -> tuple[Claim, ...]:
        return tuple(claim for _, part, fault in _parts(parameters) for claim in fault.claims(part))

    def security_of(self, parameters: CompoundParameters) -> PodSecurity:
        return combined(fault.security_of(part) for _, part, fault in _parts(parameters))

    def canary_job(self, parameters: CompoundParameters) -> CanaryJob:
        jobs = [fault.canary_job(part) for _, part, fault in _parts(parameters)]
        environment = {name: value for job in jobs for name, value in job.environment.items()}
        return CanaryJob(environment, any(job.far_from_gpu for job in jobs))

    def reach(self, parameters: CompoundParameters) -> Reach:
        reaches = [(part.type, fault.reach(part)) for _, part, fault in _parts(parameters)]
        return Reach(
            layer=" + ".join(f"{reach.layer} ({name})" for name, reach in reaches),
            does_not_reach="; ".join(f"{name}: {reach.does_not_reach}" for name, reach in reaches),
            seen_by=tuple(dict.fromkeys(seen for _, reach in reaches for seen in reach.seen_by)),
        )

    def warnings(self, parameters: CompoundParameters) -> tuple[str, ...]:
        return tuple(line for _, part, fault in _parts(parameters) for line in fault.warnings(part))

    def prior(self, parameters: CompoundParameters, gpu: int, host: Host) -> dict[str, str]:
        state: dict[str, str] = {}
        for number, part, fault in _parts(parameters):
            with _naming(number, part):
                state |= _kept(number, fault.prior(part, gpu, host))
        return state

    def inject(self, parameters: CompoundParameters, gpu: int, host: Host) -> Evidence:
        lines: list[str] = []
        state: dict[str, str] = {}
        written_at = None
        for number, part, fault in _parts(parameters):
            with _naming(number, part):
                found = fault.inject(part, gpu, host)
            lines += _told(number, part, found.lines)
            state |= _kept(number, found.undo_state)
            written_at = written_at or found.written_at
        return Evidence(lines=tuple(lines), written_at=written_at, undo_state=state)

    def hold(
        self, parameters: CompoundParameters, gpu: int, host: Host, ended: threading.Event
    ) -> tuple[str, ...] | None:
        over = threading.Event()

        def hold(number: int, part: FaultParameters, fault: Fault[Any]) -> tuple[str, ...]:
            try:
                with _naming(number, part):
                    return _told(number, part, fault.hold(part, gpu, host, over) or ())
            except BaseException:
                over.set()  # one that is out by itself ends them all
                raise

        with ThreadPoolExecutor(len(parameters.parts) + 1) as pool:
            held = [pool.submit(hold, *part) for part in _parts(parameters)]
            pool.submit(_pass_on, ended, over)
        return tuple(line for one in held for line in one.result())

    def undo(self, parameters: CompoundParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        lines: list[str] = []
        for number, part, fault in reversed(list(_parts(parameters))):
            try:
                done = fault.undo(part, gpu, host, _own(number, undo_state)).lines
            except Exception as error:  # the others must come out all the same; reading back tells of this one
                done = (f"NOT UNDONE: {error}",)
            lines += _told(number, part, done)
        return Evidence(lines=tuple(lines))

    def verify_undone(self, parameters: CompoundParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        """One that is still in outweighs one that cannot be read, which is raised as a HostError."""
        unread: list[str] = []
        out = True
        for number, part, fault in _parts(parameters):
            try:
                out = fault.verify_undone(part, gpu, host, _own(number, undo_state)) and out
            except Exception as error:  # as in undo
                unread.append(f"part {number}, {part.type}: {error}")
        if out and unread:
            raise HostError("; ".join(unread))
        return out


def _parts(parameters: CompoundParameters) -> Iterator[Part]:
    return ((number, part, fault_for(part)) for number, part in enumerate(parameters.parts, start=1))


def _kept(number: int, state: Mapping[str, str]) -> dict[str, str]:
    return {f"{number}.{key}": value for key, value in state.items()}


def _own(number: int, undo_state: Mapping[str, str]) -> dict[str, str]:
    prefix = f"{number}."
    return {key.removeprefix(prefix): value for key, value in undo_state.items() if key.startswith(prefix)}


def _told(number: int, part: FaultParameters, lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{number} {part.type}: {line}" for line in lines)


@contextmanager
def _naming(number: int, part: FaultParameters) -> Iterator[None]:
    """A HostError from within says which part it is about."""
    try:
        yield
    except HostError as error:
        raise HostError(f"part {number}, {part.type}: {error}") from None


def _pass_on(ended: threading.Event, over: threading.Event) -> None:
    """Set `over` once `ended` is; give up when somebody else did."""
    while not ended.wait(_LOOK_EVERY_S) and not over.is_set():
        pass
    over.set()
