"""Expectations of the control plane: what an ordinary client still gets, and where the load is held."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import Bound, DocumentModel, conflict
from gameday.documents.sizes import Size
from gameday.expect.base import Expectation
from gameday.values.nodes import NodeRole


class ExpectedOutage(DocumentModel):
    """A time in which the API server answers no ordinary client, as the fault intends."""

    at_least: Bound
    """Least time without a successful answer to one kind of request. If it is shorter, the fault was not felt, and the
    other verdicts prove nothing."""
    at_most: Bound
    """Longest such time: the fault's own, plus the time that the API server takes to be well again."""

    @model_validator(mode="after")
    def _bounds_agree(self) -> ExpectedOutage:
        if self.at_least > self.at_most:
            raise conflict(("at_least",), "no outage is at least this long and at most shorter: swap the two")
        return self


class ExpectedApiCanary(DocumentModel):
    """The answers that an ordinary user must still get while the fault is in, and again once it is out.

    Twice a second an account without privileges asks `/readyz`, reads a small ConfigMap, writes a Lease and lists one
    object. The default of `p99_within` is Kubernetes' own objective for calls on single objects.
    """

    p99_within: Bound = timedelta(seconds=1)
    """Longest time that 99 of 100 requests may take."""
    longest_gap: Bound = timedelta(seconds=5)
    """Longest time between two successful answers to the same kind of request."""
    errors: int = Field(default=0, ge=0, le=100_000)
    """Largest number of requests without a successful answer: refused, failed, cut off, or not answered in time."""
    after_for: Bound = timedelta(seconds=10)
    """Time for which the same bounds must hold again once the fault is out."""
    outage: ExpectedOutage | None = None
    """Time without answers while the fault is in, for a fault that stops the API server. The bounds above then count
    only once the fault is out."""

    @property
    def longest_silence(self) -> timedelta:
        """The longest time between two answers that the plan accepts."""
        return self.outage.at_most if self.outage else self.longest_gap


def _check_bounds(at_least: float | None, at_most: float | None) -> None:
    """Refuse an expectation without a bound, and bounds that nothing can hold."""
    if at_least is None and at_most is None:
        raise conflict((), "expect at_least, at_most or both")
    if at_least is not None and at_most is not None and at_least > at_most:
        raise conflict(("at_least",), f"at_least {at_least:g} is more than at_most {at_most:g}")


class ExpectedMemorySlope(DocumentModel):
    """The memory that an API server takes for each byte of concurrent LISTs: k of `peak = base + k x clients x bytes`.

    The bytes are always those of one LIST as JSON, so that the forms that clients ask for can be compared. The fault
    must have three `stages` or more.
    """

    at_least: float | None = Field(default=None, gt=0, le=1000)
    """Smallest k allowed: each LIST still costs the server that much."""
    at_most: float | None = Field(default=None, gt=0, le=1000)
    """Largest k allowed: a LIST costs the server no more."""
    fit: float = Field(default=0.9, ge=0, le=1)
    """Least R² of the line through the stages' peaks; below it k is unknown. It does not matter if the server's memory
    grew so little in all that `at_most` holds anyway."""

    @model_validator(mode="after")
    def _bounds_agree(self) -> ExpectedMemorySlope:
        _check_bounds(self.at_least, self.at_most)
        return self


class ExpectedSkew(DocumentModel):
    """The time in which a load on one API server must spread over all of them again."""

    below: float = Field(default=1.3, gt=1, le=5, allow_inf_nan=False)
    """Index that the load must fall below: the busiest server's requests over the mean of all servers'."""
    within: Bound = timedelta(minutes=2)
    """Longest time until it does, from the start of the servers that were held back."""
    failed_at_most: float = Field(default=0.001, ge=0, le=1, allow_inf_nan=False)
    """Largest share of the load's requests that may fail. A request that is answered when sent again has not failed."""


class ExpectedRestartDrop(DocumentModel):
    """The share of an API server's memory that its restart must free, with the load gone before and after."""

    at_least: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    """Smallest share allowed, such as 0.2: the server had kept that much of the load."""
    at_most: float | None = Field(default=None, gt=0, lt=1, allow_inf_nan=False)
    """Largest share allowed: a restart is not worth its price."""

    @model_validator(mode="after")
    def _bounds_agree(self) -> ExpectedRestartDrop:
        _check_bounds(self.at_least, self.at_most)
        return self


class ExpectedReconnect(DocumentModel):
    """The return of clients that keep a copy of many objects, after their API server was restarted."""

    within: Bound = timedelta(seconds=60)
    """Longest time from the restart until the last client is connected again for good."""
    lists_at_most: int = Field(default=1, ge=0, le=1000)
    """Most LISTs of all objects that one client may send after the restart. An informer needs one at most, because a
    server that has just started may no longer know what changed since the client's last version."""
    timeouts_at_most: int = Field(default=0, ge=0, le=100_000)
    """Most requests that got no answer in time. A server that is not ready yet must refuse at once (429 since
    Kubernetes 1.31), so that a client knows when to come again."""


class ExpectedContainment(DocumentModel):
    """The limits within which the load must be held, as a taint holds work away from a bad node."""

    executing_at_most: int | None = Field(default=None, ge=1, le=10_000)
    """Most of the fault's requests that may run at the same time on an API server, in every scrape of the priority
    level and on average over the load."""
    memory_growth_at_most: Size | None = None
    """Most memory that any API server may use above its use before the fault, such as `800MiB`."""
    memory_slope: ExpectedMemorySlope | None = None
    """Memory cost of concurrent LISTs, by the stages of the fault."""
    skew: ExpectedSkew | None = None
    """Spread of the load over several API servers."""
    restart_frees: ExpectedRestartDrop | None = None
    """Memory that `recover.restart_api_servers` frees, of every API server."""
    reconnect: ExpectedReconnect | None = None
    """Return of the fault's own clients after an API server was restarted under them."""
    nodes_and_pods_stay: bool = False
    """If true, no node of the cluster may become NotReady, and no pod that ran before the fault may be evicted or
    deleted, up to the end of the run's last step."""
    servers_stay_up: bool = True
    """If true, no API server may end or start again from the fault on, except by `recover.restart_api_servers`."""

    @model_validator(mode="after")
    def _can_be_broken(self) -> ExpectedContainment:
        bounds = (
            self.executing_at_most,
            self.memory_growth_at_most,
            self.memory_slope,
            self.skew,
            self.restart_frees,
            self.reconnect,
        )
        if not (self.servers_stay_up or self.nodes_and_pods_stay) and all(bound is None for bound in bounds):
            raise conflict(
                (),
                "expect at least one of executing_at_most, memory_growth_at_most, memory_slope, skew, restart_frees, "
                "reconnect, nodes_and_pods_stay and servers_stay_up",
            )
        return self


class ExpectedWebhook(DocumentModel):
    """The reach of an admission webhook without an endpoint: the writes that it matches, and no others."""

    matched_writes: Literal["refused", "admitted"]
    """Fate of every write that the webhook matches, by the log of the client that sends them."""
    answered_within: Bound = timedelta(seconds=1)
    """Longest time that 99 of 100 of these writes may take to be answered, refused or admitted."""
    leases_renewed_within: Bound = timedelta(seconds=20)
    """Longest time that a node's Lease may stay unchanged, as seen every five seconds. Kubelets renew it every ten, and
    the controller-manager calls a node NotReady after fifty (`--node-monitor-grace-period`)."""
    out_within: Bound = timedelta(seconds=10)
    """Longest time from the webhook's deletion until a write that it matched is admitted again."""


class ControlPlane(Expectation):
    needs: ClassVar = NodeRole.API_CLIENT

    @classmethod
    def check_plan(cls, plan: Any) -> None:
        expect, fault = cls.of(plan.expect), plan.fault
        held = expect.containment
        if held and held.restart_frees and not plan.recover.restart_api_servers:
            raise conflict(
                ("expect", "containment", "restart_frees"),
                "nothing is restarted, so nothing would measure this: write `restart_api_servers: {}` in recover",
            )
        if held and held.nodes_and_pods_stay and plan.rehearsal.cluster != "lab":
            raise conflict(
                ("expect", "containment", "nodes_and_pods_stay"),
                "this reads every node and pod: only a lab is small enough (`rehearsal: {cluster: lab}`)",
            )
        if expect.webhook and fault.type != "webhook_unreachable" and not fault.is_read_back:
            raise conflict(("expect", "webhook"), "only the fault webhook_unreachable puts in a webhook to judge")

    api_canary: ExpectedApiCanary | None = None
    """Small requests of an ordinary user, sent twice a second, for faults that load the control plane."""
    containment: ExpectedContainment | None = None
    """Limits within which the load on the API servers must stay."""
    webhook: ExpectedWebhook | None = None
    """Writes that the webhook of the fault webhook_unreachable matches, and those that it must not reach."""
