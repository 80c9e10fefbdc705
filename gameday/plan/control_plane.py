"""Expectations of the control plane: what an ordinary client still gets, and where the load is held."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, model_validator

from gameday.documents.fields import Bound, DocumentModel, conflict
from gameday.documents.sizes import Size


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
    """Most requests without a successful answer: refused, failed, cut off, or not answered in time."""
    after_for: Bound = timedelta(seconds=10)
    """Time for which the same must hold again once the fault is out."""


class ExpectedContainment(DocumentModel):
    """The limits within which the load must be held, as a taint holds work away from a bad node."""

    executing_at_most: int | None = Field(default=None, ge=1, le=10_000)
    """Most of the fault's requests that run at the same time on each API server: in every scrape of the priority level,
    and by the clients' own log."""
    memory_growth_at_most: Size | None = None
    """Most memory that any API server may use above its use before the fault, such as `800MiB`."""
    servers_stay_up: bool = True
    """If true, no API server may end or start again while the fault is in."""

    @model_validator(mode="after")
    def _can_be_broken(self) -> ExpectedContainment:
        if self.executing_at_most is None and self.memory_growth_at_most is None and not self.servers_stay_up:
            raise conflict((), "expect at least one of executing_at_most, memory_growth_at_most and servers_stay_up")
        return self
