"""Settings of the control plane that a game-day puts in before its fault and takes back at its end."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import DocumentModel, conflict
from gameday.plan.settings import Setting

_OBJECT_NAME = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"
"""Pattern for the name of a Kubernetes object: a DNS subdomain, limited to the length of a label."""
_GROUP = r"^[A-Za-z0-9:._/@-]{1,253}$"
_NAMESPACE = r"^(\*|[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)$"
_RESOURCE = r"^[a-z][a-z0-9-]{0,62}$"


class FlowControl(DocumentModel):
    """A priority level of our own and the flow schema that sends requests to it (API Priority and Fairness).

    The level lends no seats and borrows none, so that exactly `seats` requests run at the same time on each API server.
    A LIST that would take more seats than the level has takes all of them.
    """

    name: str = Field(default="gameday-heavy-list", pattern=_OBJECT_NAME)
    """Name of both objects; the cluster must have neither."""
    seats: int = Field(default=2, ge=1, le=50)
    """Seats of the level on each API server (`apiserver_flowcontrol_nominal_limit_seats`)."""
    verbs: tuple[Literal["list", "watch", "get"], ...] = Field(default=("list", "watch"), min_length=1)
    """Verbs of the requests. `watch` is one of them because informers since client-go 1.35 read their first list by a
    watch."""
    resources: tuple[Annotated[str, Field(pattern=_RESOURCE)], ...] = Field(default=("secrets",), min_length=1)
    """Resources of the core API group."""
    namespaces: tuple[Annotated[str, Field(pattern=_NAMESPACE)], ...] = Field(default=("gameday-load",), min_length=1)
    """Namespaces of the requests; the default is our own load's, so that no other requests are held. `*`: all of them,
    and requests that name none."""
    groups: tuple[Annotated[str, Field(pattern=_GROUP)], ...] = Field(default=("system:authenticated",), min_length=1)
    """Groups of the users who send the requests."""
    accounts: tuple[Annotated[str, Field(pattern=_OBJECT_NAME)], ...] = Field(default=(), max_length=20)
    """Service accounts of the game-day's own namespace that send the requests, in place of the groups: such as
    gameday-api-client, which is the load, and gameday-api-canary."""
    precedence: int = Field(default=1000, ge=1, le=10_000)
    """Matching precedence of the flow schema; the lowest wins. The default lies behind the controllers (800) and
    kube-system's service accounts (900), and before all other service accounts (9000)."""
    queue_length: int = Field(default=200, ge=1, le=10_000)
    """Most requests that wait; the next is refused with 429."""

    @model_validator(mode="after")
    def _accounts_or_groups(self) -> FlowControl:
        if self.accounts and self.groups != type(self).model_fields["groups"].default:
            raise conflict(("groups",), "the accounts say whose requests are meant: leave out one of the two")
        return self


class ControlPlaneSettings(Setting):
    """Settings of the control plane, put in before the fault, recorded in the ledger, and taken back at the end."""

    start_held_servers: Literal["after-fault"] | None = None
    """`after-fault`: the API servers that the rehearsal holds back (`rehearsal.held_api_servers`) start when the fault
    is in. Only a lab can do this; on another cluster the run is refused."""
    flow_control: FlowControl | None = None
    """A limit on the requests that run at the same time; null: the cluster's own flow schemas only."""
