"""The expectation of a canary job, for faults that slow work down and break nothing.

No metric and no log line shows a wrong NCCL variable or a slow interface; only work does (docs/sources.md, Who notices
what by default). The canary is such work, measured before, during and after the fault. Its bounds are shares of the
value before, so that one plan fits every machine.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic.functional_validators import AfterValidator

from gameday.documents.fields import DocumentModel, conflict
from gameday.documents.percent import Percent, format_percent
from gameday.expect.base import Expectation
from gameday.values.measures import HCA_NAME, INTERFACE_NAME, Backend, Measure
from gameday.values.nodes import NodeRole

_BOUNDS = {
    "falls_below": ("<", "falls below"),
    "stays_above": (">", "stays above"),
    "rises_above": (">", "rises above"),
    "stays_below": ("<", "stays below"),
}
"""Each bound's sign and verb, by its key."""


def _address(value: str) -> str:
    return str(ipaddress.ip_address(value))  # raises a ValueError that quotes the value


class ExpectedMeasurement(DocumentModel):
    """Base of what is measured before, during and after the fault. Its bounds are shares of the value before."""

    falls_below: Percent | None = None
    """Share of the baseline that the value must fall below."""
    stays_above: Percent | None = None
    """Share of the baseline that the value must stay above."""
    tolerance: Percent = Field(default=0.1, le=100)
    """Share of the baseline by which the value may still be worse in QA, after the fault."""

    @property
    def quantity(self) -> Measure:
        """The quantity that is measured."""
        raise NotImplementedError

    def bounds_given(self) -> list[str]:
        """Return the keys of the bounds that the plan gives."""
        return [key for key in _BOUNDS if getattr(self, key, None) is not None]

    @property
    def feels_fault(self) -> bool:
        """True if the plan expects the value to get worse; the other bounds expect that it does not."""
        return bool({"falls_below", "rises_above"} & set(self.bounds_given()))

    def bound_during(self, before: float) -> str:
        """Return the bound during the fault as people read it, in the measure's unit."""
        sign, share, _ = self._bound()
        return f"{sign} {share * before:.4g} {self.quantity.unit} ({format_percent(share)} of {before:.4g})"

    def holds_during(self, value: float, before: float) -> bool:
        """Return True if a value during the fault is as expected, given the value before."""
        sign, share, _ = self._bound()
        return value < share * before if sign == "<" else value > share * before

    def bound_after(self, before: float) -> str:
        """Return the bound after the undo as people read it, in the measure's unit."""
        return f"{'<=' if self._is_lower_better else '>='} {self._worst_after(before):.4g}"

    def holds_after(self, value: float, before: float) -> bool:
        """Return True if a value after the undo is as good as before, within the tolerance."""
        worst = self._worst_after(before)
        return value <= worst if self._is_lower_better else value >= worst

    @property
    def expectation(self) -> str:
        """The expectation without the node, such as `all-reduce bus bandwidth falls below 50% of its baseline`."""
        _, share, verb = self._bound()
        return f"{self.quantity} {verb} {format_percent(share)} of its baseline"

    @property
    def _is_lower_better(self) -> bool:
        return self.quantity is Measure.ROUND_TRIP

    def _worst_after(self, before: float) -> float:
        return before * (1 + self.tolerance if self._is_lower_better else 1 - self.tolerance)

    def _bound(self) -> tuple[str, float, str]:
        """Return the bound's sign, its share of the baseline, and its verb."""
        key = self.bounds_given()[0]  # the validators make sure that there is exactly one
        sign, verb = _BOUNDS[key]
        return sign, getattr(self, key), verb


class ExpectedCanary(ExpectedMeasurement):
    """The value that a canary on the target must measure while the fault is in, compared with the value before."""

    measure: Measure = Measure.ALL_REDUCE
    """Quantity to measure. All-reduce bus bandwidth (nccl-tests' all_reduce_perf on the node) and copy to the GPU need
    free GPUs there; round-trip time and answered pings need a neighbour on the interface. The largest block of free
    memory is that of the fault's GPU, while the fault gpu_memory is in of the process that holds the memory."""
    rises_above: Percent | None = None
    """Share of the baseline, above 100%, that a round-trip time must exceed."""
    stays_below: Percent | None = None
    """Share of the baseline that a round-trip time must not exceed."""
    path: Literal["best", "network"] = "best"
    """Path of an all-reduce. `network` sends it through the adapters although the GPUs share a node, because NVLink
    hides every fault of the network (NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1, as in Azure's loopback test)."""
    interface: str | None = Field(default=None, pattern=INTERFACE_NAME)
    """Interface that sends the pings."""
    peer: Annotated[str, AfterValidator(_address)] | None = None
    """IP address that must answer the pings; null: a neighbour that the interface knows."""
    payload: int = Field(default=1400, ge=16, le=65_000)
    """Bytes of each ping. 50 pings are sent each second, so 60000 bytes make 24 Mbit/s."""

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        given = self.bounds_given()
        if len(given) != 1:
            raise conflict((), f"give exactly one of {', '.join(_BOUNDS)}")
        if self.measure is Measure.ALL_REDUCE_NODES:
            raise conflict(("measure",), "an all-reduce over several nodes is expect.all_reduce")
        fitting = ("falls_below", "stays_above")
        if self.measure is Measure.ROUND_TRIP:
            fitting = ("rises_above", "stays_below")
        if given[0] not in fitting:
            raise conflict((given[0],), f"{self.measure} is judged by {' or '.join(fitting)}")
        if self.measure.uses_ping and self.interface is None:
            raise conflict((), f"{self.measure} needs the interface that the pings leave through")
        return self

    @property
    def quantity(self) -> Measure:
        """The quantity that is measured."""
        return self.measure


class ExpectedAllReduce(ExpectedMeasurement):
    """The bus bandwidth of an all-reduce over the target and other nodes during the fault, compared with before."""

    backend: Backend = Backend.TCP
    """Library that carries the data: `tcp`, a ring of our own from CPU to CPU that needs no GPU; or `nccl`, from GPU to
    GPU as in a training job, with one free GPU of each node, and CuPy and NCCL in the agent's image."""
    interface: str = Field(pattern=INTERFACE_NAME)
    """Interface that the data goes through on each node. The nodes find each other on their pods' own network. With
    `hca`, NCCL uses it only to connect its ranks."""
    hca: str | None = Field(default=None, pattern=HCA_NAME)
    """RDMA adapter that NCCL sends the data through on each node, such as mlx5_0; null: NCCL's sockets through
    `interface`."""
    nodes: int = Field(default=2, ge=2, le=16)
    """Number of nodes, including the target. The others are chosen among the nodes that opted in."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if len(self.bounds_given()) != 1:
            raise conflict((), "give exactly one of falls_below, stays_above")
        if self.hca and self.backend is not Backend.NCCL:
            raise conflict(("hca",), "only NCCL uses an RDMA adapter: add backend: nccl, or take hca out")
        return self

    @property
    def gpus(self) -> int:
        """The number of GPUs that it takes on each node."""
        return 1 if self.backend is Backend.NCCL else 0

    @property
    def quantity(self) -> Measure:
        """The quantity that is measured."""
        return Measure.ALL_REDUCE_NODES


class Measurements(Expectation):
    needs: ClassVar = NodeRole.GPU

    canary: ExpectedCanary | None = None
    """Measurement of a job of ours on the target, for faults that slow work down and break nothing."""
    all_reduce: ExpectedAllReduce | None = None
    """Measurement of an all-reduce over the target and other nodes, for faults of the network between them."""

    @property
    def measurements(self) -> tuple[ExpectedMeasurement, ...]:
        """The measurements before, during and after the fault, in their order."""
        return tuple(one for one in (self.canary, self.all_reduce) if one is not None)
