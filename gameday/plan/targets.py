"""The nodes that a game-day breaks, and the steady state that they are compared with."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from gameday.documents.fields import DocumentModel, Duration, LabelKey, LabelValue, NodeName


class Targets(DocumentModel):
    """The nodes to break: chosen once, before anything changes, by a seeded rule, among the nodes that opted in."""

    nodes: int = Field(default=1, ge=1, le=100)
    """Number of nodes to break."""
    names: tuple[NodeName, ...] = ()
    """Names of the only nodes that may be chosen; empty: every node that matches."""
    selector: dict[LabelKey, LabelValue] = Field(default={})
    """Labels that a node must carry, in addition to the cluster profile's opt-in label."""
    seed: int = 1
    """Seed of the choice: the same seed over the same candidates chooses the same nodes."""


class Baseline(DocumentModel):
    """The steady state, observed before anything is changed."""

    window: Duration = timedelta(seconds=30)
    """Time for which the steady state is observed before the fault."""
    log_path_within: Duration = timedelta(seconds=30)
    """Longest time until a harmless marker line arrives in the log store."""
