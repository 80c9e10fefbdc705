"""The base of every fault's parameters, and a fault of any type that the reader of a plan knows.

They are apart from the plan's other models, so that an agent's pod need not load all of those.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, ClassVar

from pydantic import SerializeAsAny, ValidationInfo, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import DocumentModel, Duration
from gameday.values.nodes import NodeRole
from gameday.values.wanted_pods import WantedPods


class FaultParameters(DocumentModel):
    """Base of every fault's parameters; `type` names the fault.

    A subclass narrows `type` to one Literal and adds its own bounded fields.
    """

    dangerous: ClassVar[str] = ""
    """The reason why the fault may cost more than the plan says; empty if the fault is not dangerous.

    A dangerous fault must be allowed by the plan and by the cluster.
    """

    needs_canary: ClassVar[bool] = False
    """True for a fault that only our own job notices: a plan then needs `expect.canary` or an all-reduce by NCCL."""

    needs_lab: ClassVar[bool] = False
    """True for a fault that stops programs of the control plane, which is possible only in a lab."""

    goes_in_within: ClassVar[timedelta] = timedelta()
    """Longest time that the injection takes once the agent has started, for a fault that has much to prepare."""

    runs_on: ClassVar[NodeRole] = NodeRole.GPU
    """The nodes that the injector may run on."""

    is_read_back: ClassVar[bool] = False
    """True for a fault read back from a stored plan: only its type is known, so no check asks what it suits."""

    type: str
    hold: Duration = timedelta(seconds=60)
    """Time after which the agent takes the fault out by itself, if nothing else has."""

    @property
    def longest_injection(self) -> timedelta:
        """The longest time that the injection takes once the agent has started, with that of its parts."""
        return sum((part.longest_injection for part in self.made_of()), self.goes_in_within)

    @property
    def api_server_away_for(self) -> timedelta:
        """The longest time for which the fault keeps the API server from taking writes; the run's lease outlasts it."""
        return timedelta()

    def made_of(self) -> tuple[FaultParameters, ...]:
        """Return the faults that this one is made of; empty for one that breaks something itself."""
        return ()

    def types(self) -> frozenset[str]:
        """Return the fault's type, and the types of the faults that it is made of."""
        return frozenset({self.type}).union(*(part.types() for part in self.made_of()))

    def check_plan(self, plan: Any) -> None:
        """Refuse a Plan that this fault, or one that it is made of, does not fit: raise `conflict(path, why)`."""
        for part in self.made_of():
            part.check_plan(plan)

    def dangers(self) -> dict[str, str]:
        """Return why each dangerous fault is dangerous, by its type; a fault made of others names those."""
        own = {self.type: self.dangerous} if self.dangerous else {}
        return own | {name: why for part in self.made_of() for name, why in part.dangers().items()}

    def wanted_pods(self) -> WantedPods | None:
        """Return the pods that the fault needs, exactly one on each target; None if it needs none."""
        return next(filter(None, (part.wanted_pods() for part in self.made_of())), None)

    def why_not_here(self, namespace: str, *, is_lab: bool) -> str:
        """Return why a cluster cannot bear these parameters even if it allows the fault; empty if it can.

        Args:
            namespace: The game-day's own namespace, with its ledger and its Leases.
            is_lab: The cluster is a rehearsal's lab.
        """
        if self.needs_lab and not is_lab:
            return f"{self.type} stops a program of the control plane, and this cluster is no lab"
        return next(filter(None, (part.why_not_here(namespace, is_lab=is_lab) for part in self.made_of())), "")


def _resolve_fault(value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> FaultParameters:
    """Validate a fault against the model for its `type` in the context's `faults`."""
    if isinstance(value, FaultParameters):
        return value
    models: dict[str, type[FaultParameters]] = (info.context or {}).get("faults", {})
    if not isinstance(value, dict):
        resolved: FaultParameters = handler(value)  # raises: not a mapping
        return resolved
    name = value.get("type")
    if not isinstance(name, str) or name not in models:
        raise PydanticCustomError(
            "fault_type",
            "unknown fault type; known: {known}" if "type" in value else "a fault needs its type; known: {known}",
            {"known": ", ".join(sorted(models)) or "none", "at": ("type",)},
        )
    return models[name].model_validate(value, context=info.context)


AnyFault = Annotated[SerializeAsAny[FaultParameters], WrapValidator(_resolve_fault)]
"""A fault of any type that the validation's context knows."""
