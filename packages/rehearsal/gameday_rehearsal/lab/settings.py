"""The settings of a lab: the number of API servers, and how its programs differ from stock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from gameday.documents.fields import Bound, DocumentModel, conflict
from gameday.documents.problems import dotted
from gameday.errors import ControlError
from gameday.plan.arms import merged
from gameday.plan.rehearsal import (
    SETTABLE_AS_IT_RUNS,
    ApiServerRelease,
    ApiServers,
    Balance,
    ClientQps,
    DraXidEffect,
    Environment,
    Flags,
    LabComponent,
    MemoryLimit,
)
from gameday_rehearsal.lease_duration import monitor_grace_s

_LARGE_QPS = 300
"""Requests per second of the controller-manager for many nodes; removing a node's first taint takes two or three."""


def server_name(number: int) -> str:
    """Return the name of an API server, counted from 1: kube-apiserver, kube-apiserver-2 and so on."""
    return LabComponent.API_SERVER if number == 1 else f"{LabComponent.API_SERVER}-{number}"


class Overrides(DocumentModel):
    """The differences of one component from stock."""

    flags: dict[str, str]
    """Values by flag name, without dashes."""
    environment: dict[str, str]


class LabSettings(DocumentModel):
    """The settings of a lab; everything left out is stock."""

    api_servers: ApiServers = 1
    balance: Balance = Balance.ROUND_ROBIN
    flags: Flags = Field(default_factory=dict)
    environment: Environment = Field(default_factory=dict)
    controller_manager_qps: ClientQps | None = None
    """Requests per second; the burst is twice that."""
    scheduler_qps: ClientQps | None = None
    """Requests per second; the burst is twice that, as in the stock 50 and 100."""
    api_server_memory: MemoryLimit | None = None
    """Bytes of resident memory above which an API server is killed."""
    api_server_release: ApiServerRelease | None = None
    """Another minor release for the API servers, such as 1.32."""
    dra: bool = False
    """True if a DRA driver also publishes the virtual nodes' GPUs."""
    dra_xid_effect: DraXidEffect = DraXidEffect.NO_SCHEDULE
    topology: bool = False
    """True if the topology-aware scheduler and the virtual nodes' topology updaters run."""
    topology_interval: Bound = timedelta(seconds=60)
    real_node: bool = False
    """True if a real kubelet with containerd joins the virtual nodes."""
    hold: tuple[Annotated[str, Field(max_length=63)], ...] = ()
    """Names of the API servers that start only when asked for."""

    @model_validator(mode="after")
    def _held_servers_exist(self) -> LabSettings:
        may = self.server_names[1:]
        for place, name in enumerate(self.hold):
            if name not in may:
                instead = f"choose among {', '.join(may)}" if may else "that needs more API servers than one"
                raise conflict(
                    ("hold", place), f"{name} cannot be held, the first server is needed for the start: {instead}"
                )
        return self

    @property
    def server_names(self) -> tuple[str, ...]:
        """Names of the API servers, in order."""
        return tuple(map(server_name, range(1, self.api_servers + 1)))

    def node_arguments(self) -> list[str]:
        """Return the arguments of `gameday_rehearsal.nodes` for the nodes' DRA driver and topology updaters."""
        dra = ["--dra", f"--dra-xid-effect={self.dra_xid_effect}"] if self.dra else []
        interval = f"--topology-interval={self.topology_interval.total_seconds():g}"
        return [*dra, *([interval] if self.topology else [])]

    def for_nodes(self, nodes: int) -> LabSettings:
        """Return the settings for this number of virtual nodes; many nodes get Leases that last longer.

        What was asked for stays. A stock controller-manager takes the first taint off nine nodes a second.
        """
        if monitor_grace_s(nodes) == monitor_grace_s(1):
            return self
        asked = self.flags.get(LabComponent.CONTROLLER_MANAGER, {})
        flags = {"node-monitor-grace-period": f"{monitor_grace_s(nodes)}s"} | asked
        changes = {
            "flags": {**self.flags, LabComponent.CONTROLLER_MANAGER: flags},
            "controller_manager_qps": self.controller_manager_qps or _LARGE_QPS,
        }
        return self.model_copy(update=changes)

    @property
    def has_balancer(self) -> bool:
        return self.api_servers > 1

    def of(self, component: LabComponent) -> Overrides:
        """Return the overrides of one component, with the limits of its client."""
        qps = {
            LabComponent.CONTROLLER_MANAGER: self.controller_manager_qps,
            LabComponent.SCHEDULER: self.scheduler_qps,
        }.get(component)
        limits = {"kube-api-qps": str(qps), "kube-api-burst": str(2 * qps)} if qps else {}
        return Overrides(
            flags={**self.flags.get(component, {}), **limits}, environment=self.environment.get(component, {})
        )


def changed(started: LabSettings, rehearsal: Mapping[str, Any]) -> LabSettings:
    """Return the settings of a running lab after a change.

    Args:
        started: The settings that it was started with.
        rehearsal: Keys of a plan's `rehearsal`, applied on top, as an arm's keys are on top of its plan.

    Raises:
        ControlError: A key needs a new lab, or no lab takes a value.
    """
    if others := sorted(set(rehearsal) - set(SETTABLE_AS_IT_RUNS)):
        may = ", ".join(SETTABLE_AS_IT_RUNS)
        raise ControlError(f"a running lab cannot change {others[0]}, only {may}: start another with `gameday lab up`")
    if rehearsal.get("topology") and not started.topology:
        raise ControlError("this lab was started without `topology: true`: write it in the plan's own `rehearsal`")
    try:
        return LabSettings.model_validate(merged(started.model_dump(mode="json", exclude_defaults=True), rehearsal))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        raise ControlError("; ".join(f"{dotted(one['loc'])}: {one['msg']}" for one in problems)) from None


STOCK = LabSettings()
"""The settings of a lab with one API server and every program as it comes."""
