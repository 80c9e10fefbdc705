"""A narrow network: tc's token bucket filter on one interface."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import Field

from gameday.documents.fields import Duration
from gameday.faults.net_qdisc import QdiscFault, is_close
from gameday.faults.network import InterfaceParameters
from gameday.plan.fault import FaultParameters

_SMALLEST_BURST = 64 * 1024
_BURST_S = 0.01
"""The bucket holds the bytes of ten milliseconds: one tick of the slowest kernel timer (CONFIG_HZ=100), the least
that tc-tbf(8) asks for."""


class TbfParameters(InterfaceParameters):
    type: Literal["net_tbf"] = "net_tbf"
    rate_mbit: float = Field(ge=0.1, le=100_000, allow_inf_nan=False)
    """Rate at which packets leave, Mbit/s."""
    latency: Duration = Field(default=timedelta(milliseconds=50), gt=timedelta(), le=timedelta(seconds=10))
    """Longest wait in the queue; packets that would wait longer are dropped."""

    @property
    def burst_bytes(self) -> int:
        """The bucket's size."""
        return max(_SMALLEST_BURST, round(self.rate_mbit * 1e6 / 8 * _BURST_S))


class TbfFault(QdiscFault[TbfParameters]):
    """Limits the bits per second that leave through an interface, with tc's token bucket filter.

    Unlike netem's rate it drops packets that wait too long, as a congested port does. It treats the prior queue,
    refuses and reads back as `net_netem` does.
    """

    parameters: ClassVar[type[FaultParameters]] = TbfParameters
    summary: ClassVar[str] = "Limits the bits per second that leave through one interface"

    def warnings(self, parameters: TbfParameters) -> tuple[str, ...]:
        return (f"everything on the node shares {parameters.rate_mbit:g} Mbit/s on {parameters.interface}",)

    def arguments(self, parameters: TbfParameters) -> tuple[str, ...]:
        latency = f"{round(parameters.latency.total_seconds() * 1e6)}us"
        rate = f"{round(parameters.rate_mbit * 1e6)}bit"
        return ("tbf", "rate", rate, "burst", f"{parameters.burst_bytes}b", "latency", latency)

    def mismatch(self, parameters: TbfParameters, options: dict[str, Any]) -> str:
        rate, latency = parameters.rate_mbit * 1e6 / 8, parameters.latency.total_seconds() * 1e6
        wanted = {"rate": rate, "burst": parameters.burst_bytes, "lat": latency}
        wrong = [f"{key} is {options.get(key)}" for key, want in wanted.items() if not is_close(options.get(key), want)]
        return "; ".join(wrong)
