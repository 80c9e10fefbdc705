"""A slow and lossy network: tc's netem on one interface."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import Duration, conflict
from gameday.documents.percent import PartPercent, format_percent
from gameday.faults.net_qdisc import QdiscFault, is_close
from gameday.faults.network import InterfaceParameters
from gameday.plan.fault import FaultParameters

_LONGEST = timedelta(seconds=10)


class NetemParameters(InterfaceParameters):
    type: Literal["net_netem"] = "net_netem"
    delay: Duration = Field(default=timedelta(), le=_LONGEST)
    """Delay that is added to every packet that leaves."""
    jitter: Duration = Field(default=timedelta(), le=_LONGEST)
    """Most that the delay may vary, both ways; packets may then overtake one another."""
    loss: PartPercent = 0.0
    """Share of packets that are dropped."""
    duplicate: PartPercent = 0.0
    """Share of packets that are sent twice."""
    corrupt: PartPercent = 0.0
    """Share of packets that get one flipped bit."""
    rate_mbit: float | None = Field(default=None, ge=0.01, le=400_000, allow_inf_nan=False)
    """Rate at which packets leave, Mbit/s; none: the interface's own."""

    @model_validator(mode="after")
    def _does_something(self) -> NetemParameters:
        if not (self.delay or self.loss or self.duplicate or self.corrupt or self.rate_mbit):
            raise conflict(("delay",), "this netem does nothing: give delay, loss, duplicate, corrupt or rate_mbit")
        if self.jitter > self.delay:
            raise conflict(("jitter",), "the jitter is more than the delay: packets cannot leave before they come")
        return self


class NetemFault(QdiscFault[NetemParameters]):
    """Delays, loses, doubles, breaks or slows down packets that leave through an interface, with tc's netem.

    The interface's queue is read back after every change, and restored. Refused are somebody else's queue if it shapes
    or breaks traffic or could not be restored exactly, and the interface that the node needs to reach its API server.
    """

    parameters: ClassVar[type[FaultParameters]] = NetemParameters
    summary: ClassVar[str] = "Delays, loses, doubles or breaks what leaves through one interface"

    def warnings(self, parameters: NetemParameters) -> tuple[str, ...]:
        return (f"everything on the node that talks over {parameters.interface} is slowed down, not only GPU work",)

    def arguments(self, parameters: NetemParameters) -> tuple[str, ...]:
        words = ["netem"]
        if parameters.delay:
            words += ["delay", _micros(parameters.delay)]
            words += [_micros(parameters.jitter)] if parameters.jitter else []
        for name in ("loss", "duplicate", "corrupt"):
            if share := getattr(parameters, name):
                words += [name, format_percent(share)]
        if parameters.rate_mbit:
            words += ["rate", f"{round(parameters.rate_mbit * 1e6)}bit"]
        return tuple(words)

    def mismatch(self, parameters: NetemParameters, options: dict[str, Any]) -> str:
        rate = parameters.rate_mbit * 1e6 / 8 if parameters.rate_mbit else 0.0
        wanted = {
            ("delay", "delay"): parameters.delay.total_seconds(),
            ("delay", "jitter"): parameters.jitter.total_seconds(),
            ("loss-random", "loss"): parameters.loss,
            ("duplicate", "duplicate"): parameters.duplicate,
            ("corrupt", "corrupt"): parameters.corrupt,
            ("rate", "rate"): rate,
        }
        found = {at: options.get(at[0], {}).get(at[1], 0) for at in wanted}
        wrong = [
            f"{at[1]} is {found[at]}, not {want:g}" for at, want in wanted.items() if not is_close(found[at], want)
        ]
        return "; ".join(wrong)


def _micros(value: timedelta) -> str:
    return f"{round(value.total_seconds() * 1e6)}us"
