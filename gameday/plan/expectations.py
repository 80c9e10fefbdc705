"""The expectations of a plan: everything that must, or must not, happen once the fault is in.

Bounds called `within` count from the moment the fault was written on the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Self

from pydantic import SerializeAsAny, create_model, model_validator

from gameday.documents.fields import by_whole, conflict
from gameday.expect.alerts import Alerts
from gameday.expect.allocatable_falls import AllocatableFalls
from gameday.expect.base import Expectation, Path, Signal
from gameday.expect.canary import Measurements
from gameday.expect.conditions import Conditions
from gameday.expect.cordoned import Cordoned
from gameday.expect.device_taints import DeviceTaints
from gameday.expect.events import Events
from gameday.expect.job import Job
from gameday.expect.labels import Labels
from gameday.expect.placement import Placement
from gameday.expect.probes import Probes
from gameday.expect.registry import found_expectations
from gameday.expect.stays_schedulable import StaysSchedulable
from gameday.expect.taints import Taints
from gameday.expect.topology_manager_rejects import TopologyManagerRejects
from gameday.expect.workloads import Workloads
from gameday.values.nodes import NodeRole


# The bases are the expectations that other packages read by name; the last base has the first keys. `every_expectation`
# adds all others that are installed, and a plan's `expect` is of that class.
class Expectations(
    Workloads,
    StaysSchedulable,
    TopologyManagerRejects,
    Job,
    Probes,
    Placement,
    Measurements,
    AllocatableFalls,
    Events,
    Labels,
    Conditions,
    Cordoned,
    DeviceTaints,
    Taints,
    Alerts,
):
    """Everything that must, or must not, happen once the fault is in."""

    @classmethod
    def parts(cls) -> list[type[Expectation]]:
        """Return the expectations that this model is made of, in the order of their keys."""
        return [
            base for base in reversed(cls.__mro__) if issubclass(base, Expectation) and Expectation in base.__bases__
        ]

    @classmethod
    def whole(cls) -> type[Expectations]:
        return every_expectation()

    @property
    def expects_quarantine(self) -> bool:
        """True if the target is to be taken out of service."""
        return any(one.quarantines for one in self.signals_awaited())

    @property
    def can_be_broken(self) -> bool:
        """True if there is any expectation of the detection chain."""
        return any(part.is_asked(self) for part in self.parts())

    def signals_awaited(self) -> list[Signal]:
        """Return every signal that the plan awaits of a target, in the order of the keys."""
        return [signal for part in self.parts() for _, signal in part.signals(self)]

    def about(self, role: NodeRole) -> list[str]:
        """Return the keys that the plan gives and that only a node of this role can fulfil or break."""
        return [key for part in self.parts() if part.needs is role for key in part.given(self)]

    def all_bounds(self) -> Iterator[tuple[Path, timedelta]]:
        """Yield every bound that counts from the fault going in, each with its path from these expectations."""
        for part in self.parts():
            yield from part.bounds(self)

    @model_validator(mode="after")
    def _quarantined_or_schedulable(self) -> Self:
        if self.expects_quarantine and self.stays_schedulable_for is not None:
            what = "gain the taints listed here" if self.taints else "be cordoned"
            raise conflict(("stays_schedulable_for",), f"a node cannot {what} and also stay schedulable")
        return self


@cache
def every_expectation() -> type[Expectations]:
    """Return the model of `expect:` with the keys of every expectation that is installed."""
    installed = dict.fromkeys(found_expectations().parts.values())
    others: list[Any] = [part for part in installed if part not in Expectations.parts()]
    return create_model("EveryExpectation", __base__=(*reversed(others), Expectations), __doc__=Expectations.__doc__)


AnyExpectations = Annotated[SerializeAsAny[Expectations], by_whole(Expectations)]
"""A plan's expectations, with the keys of every expectation that is installed."""
