"""What a plan expects of a canary job: the signal of faults that slow work down and break nothing.

No metric and no log line tells of a wrong NCCL variable or a slow interface
(docs/sources.md, Who notices what by default): only work does. The canary
is that work, measured before, during and after the fault; its bounds are
shares of what it measured before, so that one plan fits every machine.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

INTERFACE_NAME = r"^[A-Za-z0-9_.][A-Za-z0-9_.@-]{0,14}$"
"""The kernel takes up to 15 bytes; what begins with `-` would be an option to every tool."""
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%")


def _parse_percent(value: object) -> object:
    """`50%` -> 0.5; anything else is an error that says how to write it."""
    if isinstance(value, float):  # a share already: read back from JSON, or given in Python
        return value
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise PydanticCustomError("percent", "a share is written in percent, like 50% or 0.5%")
    return float(found[1]) / 100


def format_percent(share: float) -> str:
    """The shortest spelling that `Percent` reads back: `50%`, `0.5%`."""
    return f"{share * 100:.6f}".rstrip("0").rstrip(".") + "%"


Percent = Annotated[
    float,
    BeforeValidator(_parse_percent),
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(format_percent, return_type=str),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,6})?\s*%$", "examples": ["50%", "0.5%"]}),
]
"""A share, written `50%` and kept as 0.5."""


def _a_part(value: float) -> float:
    if value > 1:
        raise PydanticCustomError("percent", "must be at most 100%")
    return value


PartPercent = Annotated[Percent, AfterValidator(_a_part)]
"""A share of something that there is no more of than all."""


class Measure(StrEnum):
    ALL_REDUCE = "all-reduce bus bandwidth"
    COPY = "copy to the GPU"
    ROUND_TRIP = "round-trip time"
    ANSWERED = "answered pings"

    @property
    def unit(self) -> str:
        return _UNITS[self]

    @property
    def pings(self) -> bool:
        return self in (Measure.ROUND_TRIP, Measure.ANSWERED)


_UNITS = {Measure.ALL_REDUCE: "GB/s", Measure.COPY: "GB/s", Measure.ROUND_TRIP: "ms", Measure.ANSWERED: "%"}


def _an_address(value: str) -> str:
    return str(ipaddress.ip_address(value))  # raises ValueError that quotes it


class ExpectedCanary(BaseModel):
    """What a canary on the target must measure while the fault is in, against what it measured before."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    measure: Measure = Measure.ALL_REDUCE
    """All-reduce bus bandwidth (nccl-tests' all_reduce_perf on the node) and copy to the GPU need free GPUs there;
    round-trip time and answered pings need a neighbour on the interface."""
    falls_below: Percent | None = None
    """Share of the baseline that the value must fall below."""
    stays_above: Percent | None = None
    """Share of the baseline that the value must stay above: the fault must cost no more."""
    rises_above: Percent | None = None
    """For a round-trip time: share of the baseline, above 100%, that it must exceed."""
    stays_below: Percent | None = None
    """For a round-trip time: share of the baseline that it must not exceed."""
    tolerance: Percent = Field(default=0.1, le=100)
    """How much worse than the baseline QA lets it be once the fault is out."""
    path: Literal["best", "network"] = "best"
    """All-reduce: network sends it through the adapters although the GPUs share a node (NCCL_P2P_DISABLE=1 and
    NCCL_SHM_DISABLE=1, as Azure's loopback test does), because NVLink hides every fault of the network."""
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME)
    """Pings: the interface they leave through."""
    peer: Annotated[str, AfterValidator(_an_address)] | None = None
    """Pings: who is to answer; none: a neighbour that the interface knows."""
    payload: int = Field(default=1400, ge=16, le=65_000)
    """Pings: bytes of each; 50 a second are sent, so 60000 ask for 24 Mbit/s."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = {name: getattr(self, name) for name in ("falls_below", "stays_above", "rises_above", "stays_below")}
        bounds = [name for name, share in given.items() if share is not None]
        if len(bounds) != 1:
            raise _conflict((), f"give exactly one of {', '.join(given)}")
        right = ("rises_above", "stays_below") if self.measure is Measure.ROUND_TRIP else ("falls_below", "stays_above")
        if bounds[0] not in right:
            raise _conflict((bounds[0],), f"{self.measure} is judged by {' or '.join(right)}")
        if self.measure.pings and self.interface is None:
            raise _conflict((), f"{self.measure} needs the interface that it is measured through")
        return self

    def bound(self, before: float) -> str:
        """The bound during the fault, as shown to people, in the measure's unit."""
        sign, share, _ = self._limit()
        return f"{sign} {share * before:.4g} {self.measure.unit} ({format_percent(share)} of {before:.4g})"

    def during(self, value: float, before: float) -> bool:
        """Whether a value during the fault is as expected."""
        sign, share, _ = self._limit()
        return value < share * before if sign == "<" else value > share * before

    def bound_after(self, before: float) -> str:
        return f"{'<=' if self._falling_is_good else '>='} {self._worst_after(before):.4g}"

    def after(self, value: float, before: float) -> bool:
        """Whether a value after the undo is as good as before, within the tolerance."""
        worst = self._worst_after(before)
        return value <= worst if self._falling_is_good else value >= worst

    @property
    def expectation(self) -> str:
        """In words, without the node: `all-reduce bus bandwidth falls below 50% of its baseline`."""
        _, share, word = self._limit()
        return f"{self.measure} {word} {format_percent(share)} of its baseline"

    @property
    def _falling_is_good(self) -> bool:
        return self.measure is Measure.ROUND_TRIP

    def _worst_after(self, before: float) -> float:
        return before * (1 + self.tolerance if self._falling_is_good else 1 - self.tolerance)

    def _limit(self) -> tuple[str, float, str]:
        for share, sign, word in (
            (self.falls_below, "<", "falls below"),
            (self.stays_above, ">", "stays above"),
            (self.rises_above, ">", "rises above"),
            (self.stays_below, "<", "stays below"),
        ):
            if share is not None:
                return sign, share, word
        raise AssertionError("the model lets no such expectation through")


def _conflict(at: tuple[str, ...], reason: str) -> PydanticCustomError:
    return PydanticCustomError("conflict", "{reason}", {"reason": reason, "at": at})
