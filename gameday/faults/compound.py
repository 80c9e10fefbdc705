"""Several faults in one node at the same time, which break more than each of them alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import combinations
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator

from gameday.documents.fields import conflict, format_duration
from gameday.errors import HostBusyError, HostError
from gameday.faults.base import Evidence, Fault, Layer, Reach
from gameday.faults.optional import claims_of, keep_in, prior_state_of, reach_of
from gameday.faults.registry import fault_for
from gameday.host.base import Host
from gameday.plan.fault import AnyFault, FaultParameters
from gameday.values.nodes import NodeRole

_FEWEST, _MOST = 2, 4
"""The fewest and the most parts. With more, it would be unclear which of them caused an effect."""
_LOOK_EVERY_S = 1.0
"""Interval at which a thread looks whether one part ended early, to end the others; the regular end is passed on
immediately."""


class CompoundParameters(FaultParameters):
    type: Literal["compound"] = "compound"
    parts: tuple[AnyFault, ...] = Field(json_schema_extra={"minItems": _FEWEST, "maxItems": _MOST})
    """The faults, in the order in which they go in. `hold` is that of all."""

    @field_validator("parts", mode="before")
    @classmethod
    def _give_the_hold_to_parts(cls, parts: object, info: ValidationInfo) -> object:
        """Give every part the hold before it is validated, because a part may check its own times against it."""
        hold = info.data.get("hold")
        if not isinstance(parts, list | tuple) or hold is None:
            return parts
        return tuple({"hold": format_duration(hold), **part} if isinstance(part, dict) else part for part in parts)

    @field_validator("parts")
    @classmethod
    def _are_held_combined(
        cls, parts: tuple[FaultParameters, ...], info: ValidationInfo
    ) -> tuple[FaultParameters, ...]:
        if not _FEWEST <= len(parts) <= _MOST:
            raise conflict((), f"a compound fault has {_FEWEST} to {_MOST} parts, not {len(parts)}")
        for index, part in enumerate(parts):
            if isinstance(part, CompoundParameters):
                raise conflict((index, "type"), "a compound fault cannot be a part of another: list its parts here")
            if part.runs_on is not NodeRole.GPU:
                raise conflict(
                    (index, "type"),
                    f"{part.type} runs on an {part.runs_on}, and all parts share a GPU node: give it a plan of its own",
                )
            if part.hold != info.data.get("hold", part.hold):
                raise conflict((index, "hold"), "the parts are held together: write `hold` beside `parts` only")
        return parts

    @model_validator(mode="after")
    def _do_not_conflict(self) -> CompoundParameters:
        for one, other in combinations(_parts(self), 2):
            claims = claims_of(one.parameters)
            for claim in claims_of(other.parameters):
                if any(map(claim.conflicts_with, claims)):
                    raise conflict(
                        ("parts", other.number - 1, "type"),
                        f"{other.parameters.type} and {one.parameters.type} both take {claim.resource}: each would "
                        "undo the other",
                    )
        return self

    def made_of(self) -> tuple[FaultParameters, ...]:
        return self.parts


class CompoundFault(Fault[CompoundParameters]):
    """Puts two to four faults into one node, one right after the other, and takes them out in reverse order.

    One agent does it, with one deadline. If a part does not go in or does not stay in, all come out. Each is undone
    and read back even if the undo of another fails. Two parts that take the same resource are refused, as is a
    compound within a compound.
    """

    parameters: ClassVar[type[FaultParameters]] = CompoundParameters
    layer: ClassVar[Layer] = Layer.SEVERAL
    summary: ClassVar[str] = "Puts two or more faults into a node at once"
    does_not_reach: ClassVar[str] = "the layers that no part reaches"
    seen_by: ClassVar[tuple[str, ...]] = ("every reader that sees one of its parts",)

    def reach(self, parameters: CompoundParameters) -> Reach:
        reaches = [(part.parameters.type, reach_of(part.parameters)) for part in _parts(parameters)]
        return Reach(
            layer=" + ".join(f"{reach.layer} ({name})" for name, reach in reaches),
            does_not_reach="; ".join(f"{name}: {reach.does_not_reach}" for name, reach in reaches),
            seen_by=tuple(dict.fromkeys(seen for _, reach in reaches for seen in reach.seen_by)),
        )

    def prior_state(self, parameters: CompoundParameters, gpu: int, host: Host) -> dict[str, str]:
        state: dict[str, str] = {}
        for part in _parts(parameters):
            with _named_in_errors(part):
                state |= part.prefixed(prior_state_of(part.parameters, gpu, host))
        return state

    def inject(self, parameters: CompoundParameters, gpu: int, host: Host) -> Evidence:
        lines: list[str] = []
        state: dict[str, str] = {}
        written_at, logged_at, nvml_at = None, None, None
        for part in _parts(parameters):
            with _named_in_errors(part):
                found = part.fault.inject(part.parameters, gpu, host)
            lines += part.labelled(found.lines)
            state |= part.prefixed(found.undo_state)
            written_at, logged_at = written_at or found.written_at, logged_at or found.logged_at
            nvml_at = nvml_at or found.nvml_at
        return Evidence(
            lines=tuple(lines), written_at=written_at, logged_at=logged_at, nvml_at=nvml_at, undo_state=state
        )

    def hold_and_tell(
        self,
        parameters: CompoundParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        over = threading.Event()

        def hold(part: _Part) -> tuple[str, ...]:
            try:
                with _named_in_errors(part):
                    return part.labelled(keep_in(part.parameters, gpu, host, over, tell))
            except BaseException:
                over.set()  # if one part did not stay in, all end
                raise

        with ThreadPoolExecutor(len(parameters.parts) + 1) as pool:
            held = [pool.submit(hold, part) for part in _parts(parameters)]
            pool.submit(_pass_on, ended, over)
        return tuple(line for one in held for line in one.result())

    def undo(self, parameters: CompoundParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        lines: list[str] = []
        for part in reversed(list(_parts(parameters))):
            try:
                done = part.fault.undo(part.parameters, gpu, host, part.own(undo_state)).lines
            except Exception as error:  # the others must still come out; reading back will report this one
                done = (f"NOT UNDONE: {error}",)
            lines += part.labelled(done)
        return Evidence(lines=tuple(lines))

    def verify_undone(self, parameters: CompoundParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        """Return False if a part is still in, even if another could not be read; return True if all are out.

        Raises:
            HostError: A part could not be read, and no other is known to be in; HostBusyError if one may be later.
        """
        unread: list[str] = []
        kind = HostError
        out = True
        for part in _parts(parameters):
            try:
                out = part.fault.verify_undone(part.parameters, gpu, host, part.own(undo_state)) and out
            except Exception as error:  # the others must still come out, as in undo
                unread.append(f"part {part.number}, {part.parameters.type}: {error}")
                kind = HostBusyError if isinstance(error, HostBusyError) else kind
        if out and unread:
            raise kind("; ".join(unread))
        return out


class _Part(NamedTuple):
    """A fault of the compound; `number` counts from 1."""

    number: int
    parameters: FaultParameters
    fault: Fault[Any]

    def prefixed(self, state: Mapping[str, str]) -> dict[str, str]:
        """Return the part's undo state under keys that no other part has."""
        return {f"{self.number}.{key}": value for key, value in state.items()}

    def own(self, undo_state: Mapping[str, str]) -> dict[str, str]:
        """Return the part's own undo state out of that of all parts."""
        prefix = f"{self.number}."
        return {key.removeprefix(prefix): value for key, value in undo_state.items() if key.startswith(prefix)}

    def labelled(self, lines: tuple[str, ...]) -> tuple[str, ...]:
        """Return the part's lines of evidence, each with the part's number and type."""
        return tuple(f"{self.number} {self.parameters.type}: {line}" for line in lines)


def _parts(parameters: CompoundParameters) -> Iterator[_Part]:
    return (_Part(number, part, fault_for(part)) for number, part in enumerate(parameters.parts, start=1))


@contextmanager
def _named_in_errors(part: _Part) -> Iterator[None]:
    """Name the part in a HostError of the block."""
    try:
        yield
    except HostError as error:
        raise HostError(f"part {part.number}, {part.parameters.type}: {error}") from None


def _pass_on(ended: threading.Event, over: threading.Event) -> None:
    """Set `over` once `ended` is set; return if a part has set it before."""
    while not ended.wait(_LOOK_EVERY_S) and not over.is_set():
        pass
    over.set()
