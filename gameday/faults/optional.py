"""The optional parts of a fault: it has one by defining the method, and inherits nothing for it.

Each interface stands with the question that others ask, which also gives the answer for a fault without it. A fault
that is made of others (`FaultParameters.made_of`) answers as they do together, unless it has the method itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel

from gameday.faults.base import NODE, CanaryJob, Claim, NodeNeeds, Reach
from gameday.faults.registry import fault_for
from gameday.host.base import Host
from gameday.host.privileges import PodSecurity, combined
from gameday.plan.fault import FaultParameters


@runtime_checkable
class KeepsState(Protocol):
    """A fault with values to keep for its undo, or that cannot go into every host."""

    def prior_state(self, parameters: Any, gpu: int, host: Host) -> dict[str, str]:
        """Return the values that an undo needs, and refuse what cannot go in. Nothing may be changed here.

        Raises:
            HostError: The fault cannot go into this host; the message says why and what to do.
        """


def prior_state_of(parameters: FaultParameters, gpu: int, host: Host) -> dict[str, str]:
    """Return the values that the agent keeps before it injects. Default: none. Raises HostError."""
    fault = fault_for(parameters)
    return fault.prior_state(parameters, gpu, host) if isinstance(fault, KeepsState) else {}


@runtime_checkable
class Holds(Protocol):
    """A fault that does not stay in by itself, or could end early."""

    def hold(self, parameters: Any, gpu: int, host: Host, ended: threading.Event) -> tuple[str, ...] | None:
        """Keep the fault in until `ended` is set.

        Returns:
            Lines of evidence about the hold; None if there are none.

        Raises:
            HostError: The fault did not stay in.
        """


@runtime_checkable
class HoldsAndTells(Protocol):
    """A fault with more to report while it is in than a line of evidence at the end; it needs no `hold` beside."""

    def hold_and_tell(
        self, parameters: Any, gpu: int, host: Host, ended: threading.Event, tell: Callable[[BaseModel], None]
    ) -> tuple[str, ...] | None:
        """Hold the fault as `Holds` does, and report meanwhile.

        Args:
            parameters: The plan's.
            gpu: The NVML index that the run chose.
            host: The node.
            ended: Set when the fault must come out.
            tell: Prints a note to the pod's log, as one line of JSON.
        """


def keep_in(
    parameters: FaultParameters, gpu: int, host: Host, ended: threading.Event, tell: Callable[[BaseModel], None]
) -> tuple[str, ...]:
    """Keep the agent's fault in until `ended` is set. Default: only wait. Raises HostError if it did not stay in."""
    fault = fault_for(parameters)
    if isinstance(fault, HoldsAndTells):
        return fault.hold_and_tell(parameters, gpu, host, ended, tell) or ()
    if isinstance(fault, Holds):
        return fault.hold(parameters, gpu, host, ended) or ()
    ended.wait()
    return ()


@runtime_checkable
class Claims(Protocol):
    """A fault that takes something else than its own kind, of which only one is in at a time."""

    def claims(self, parameters: Any) -> tuple[Claim, ...]:
        """Return the resources that no second fault may take; none if it conflicts with nothing, and has no undo."""


def claims_of(parameters: FaultParameters) -> tuple[Claim, ...]:
    """Return the resources that no second fault may take, for compounds and seasons. Default: one of its kind."""
    fault = fault_for(parameters)
    if parts := parameters.made_of():
        return tuple(claim for part in parts for claim in claims_of(part))
    claims = fault.claims(parameters) if isinstance(fault, Claims) else (Claim(parameters.type),)
    says_itself = not claims or any(claim.resource == NODE for claim in claims)
    return claims if says_itself else (*claims, Claim(NODE, shared=True))


def takes_node_down(parameters: FaultParameters) -> bool:
    """Return True if the agent does not survive the fault or cannot end it early; no other pod can, either."""
    return any(claim.resource == NODE and not claim.shared for claim in claims_of(parameters))


@runtime_checkable
class Needs(Protocol):
    """A fault for which the run has to look at the node's DCGM, or clear its GPU."""

    def needs(self, parameters: Any) -> NodeNeeds:
        """Return the preparations of the node."""


def needs_of(parameters: FaultParameters) -> NodeNeeds:
    """Return the preparations of the node, for baseline, injection and dry run. Default: none."""
    fault = fault_for(parameters)
    if isinstance(fault, Needs):
        return fault.needs(parameters)
    needs = [needs_of(part) for part in parameters.made_of()]
    return NodeNeeds(
        dcgm=any(one.dcgm for one in needs),
        idle_gpu=any(one.idle_gpu for one in needs),
        operands_away=any(one.operands_away for one in needs),
        operands_away_to_undo=any(one.operands_away_to_undo for one in needs),
    )


@runtime_checkable
class ChangesCanary(Protocol):
    """A fault of the job itself, which only a canary shows."""

    def canary_job(self, parameters: Any) -> CanaryJob:
        """Return the difference of a canary that starts while the fault is in."""


def canary_job_of(parameters: FaultParameters) -> CanaryJob:
    """Return the difference of a canary that starts while the fault is in, for the canary and the all-reduce."""
    fault = fault_for(parameters)
    if isinstance(fault, ChangesCanary):
        return fault.canary_job(parameters)
    jobs = [canary_job_of(part) for part in parameters.made_of()]
    environment = {name: value for job in jobs for name, value in job.environment.items()}
    return CanaryJob(environment, any(job.far_from_gpu for job in jobs))


@runtime_checkable
class Warns(Protocol):
    """A fault with side effects that its plan does not say."""

    def warnings(self, parameters: Any) -> tuple[str, ...]:
        """Return the side effects of these parameters, for the person who approves the run."""


def warnings_of(parameters: FaultParameters) -> tuple[str, ...]:
    """Return the side effects, for the request for approval and the dry run. Default: none."""
    fault = fault_for(parameters)
    if isinstance(fault, Warns):
        return fault.warnings(parameters)
    return tuple(line for part in parameters.made_of() for line in warnings_of(part))


@runtime_checkable
class Reaches(Protocol):
    """A fault that its readers see or miss by its parameters."""

    def reach(self, parameters: Any) -> Reach:
        """Return where these parameters enter and who can see them."""


def reach_of(parameters: FaultParameters) -> Reach:
    """Return where the fault enters and who can see it, for the history. Default: the class's own words."""
    fault = fault_for(parameters)
    if isinstance(fault, Reaches):
        return fault.reach(parameters)
    return Reach(fault.layer, fault.does_not_reach, fault.seen_by)


def rights_of(parameters: FaultParameters) -> PodSecurity:
    """Return the rights of the injector's pod: the class's `security`, or those of all parts."""
    parts = parameters.made_of()
    return combined(map(rights_of, parts)) if parts else fault_for(parameters).security


def account_of(parameters: FaultParameters) -> str:
    """Return the service account of the injector's pod: the class's `api_account`, or the parts'; empty for none."""
    # All parts with an account on a GPU node have the same one: two of them are one kind, and conflict.
    accounts = (account_of(part) for part in parameters.made_of())
    return next(filter(None, accounts), fault_for(parameters).api_account)
