"""The nodes that a game-day breaks, and the steady state that they are compared with."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from gameday.documents.fields import DocumentModel, Duration, LabelKey, LabelValue, NodeName

MOST_TARGETS = 100
"""The most nodes that one game-day breaks. Our own choice."""


class Domain(DocumentModel):
    """A failure domain: GPU nodes that fail together and share one value of a label."""

    label: LabelKey
    """The label, like `topology.kubernetes.io/rack` or `network.topology.nvidia.com/leaf`."""
    value: LabelValue | None = Field(default=None, min_length=1)
    """The label's value that names the domain; null: that of the first opted-in node in the seed's order."""
    percent: float = Field(default=100, gt=0, le=100)
    """Percentage of the domain's GPU nodes that are broken, rounded up to whole nodes."""


class Targets(DocumentModel):
    """The nodes to break: chosen by a seeded rule among the nodes that opted in, once, before anything changes."""

    nodes: int = Field(default=1, ge=1, le=MOST_TARGETS)
    """Number of nodes to break."""
    names: tuple[NodeName, ...] = ()
    """Names of the only nodes that may be chosen; empty: every node that matches."""
    selector: dict[LabelKey, LabelValue] = Field(default={})
    """Labels that a node must carry, in addition to the cluster profile's opt-in label."""
    domain: Domain | None = None
    """The rack, leaf switch or other failure domain to break, in place of a number of nodes. `guardrails.max_nodes` has
    to allow as many."""
    seed: int = 1
    """Seed of the choice: the same seed over the same candidates chooses the same nodes."""


class Baseline(DocumentModel):
    """The steady state, observed before anything is changed."""

    window: Duration = timedelta(seconds=30)
    """Time for which the steady state is observed before the fault."""
    log_path_within: Duration = timedelta(seconds=30)
    """Longest time until a harmless marker line arrives in the log store."""
