"""The placement of a gang of pods that prefers fast GPUs."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from pydantic import Field

from gameday.documents.fields import Bound, DocumentModel
from gameday.expect.base import Expectation
from gameday.values.nodes import NodeRole


class ExpectedPlacement(DocumentModel):
    """A gang of pods of ours with one GPU each, which must all land on nodes of the class `fast`."""

    pods: int = Field(ge=2, le=64)
    """Number of pods in the gang. Take more than there are fast nodes, so that a scheduler that spreads pods and knows
    no classes cannot hit the fast nodes by chance."""
    prefers_fast: bool = True
    """If true, the pods have the node affinity of docs/fleet.md, which prefers nodes of the class `fast`. A negative
    control writes false: its gang is placed as if no node had a class."""
    placed_within: Bound = timedelta(seconds=60)
    """Longest time from the gang's creation until each of its pods has a node."""


class Placement(Expectation):
    needs: ClassVar = NodeRole.GPU

    placement: ExpectedPlacement | None = None
    """Placement of a gang of pods on nodes with fast GPUs, by the labels of `gameday fleet` (docs/fleet.md)."""
