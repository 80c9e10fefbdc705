"""The GPU work of the node: its running pods, new pods, and resubmitted jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Literal, Self

from gameday.documents.fields import DocumentModel, Duration
from gameday.expect.base import Expectation
from gameday.values.nodes import NodeRole


class ExpectedWorkloads(DocumentModel):
    """The effects of the quarantine on GPU work: where it may and may not run."""

    running_pods: Literal["kept", "evicted", "any"] = "any"
    """Fate of the GPU pods that ran on the node when the fault went in.

    It is judged from the fault going in to the start of the recover step: a remediation such as a reboot ends them
    anyway, and does not break `kept`.
    """
    canary_kept_off_for: Duration = timedelta(seconds=3)
    """Time for which a GPU pod that asks for this node must stay unscheduled."""
    resubmitted_within: Duration | None = timedelta(seconds=60)
    """Longest time until a resubmitted GPU job runs on another node; null: none is sent, for a cluster of one node."""


class Workloads(Expectation):
    needs: ClassVar = NodeRole.GPU

    workloads: ExpectedWorkloads = ExpectedWorkloads()
    """Effects on the GPU work of the node: its running pods, new pods, and resubmitted jobs. A negative control uses
    only `running_pods`."""

    @classmethod
    def is_asked(cls, expect: Self) -> bool:
        """Return False: without a quarantine there is nothing here that a fault could break."""
        return False
