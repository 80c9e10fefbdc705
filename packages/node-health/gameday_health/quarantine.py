"""Write a node's taint and its reason, and never lose what somebody else wrote."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from gameday.cluster.json_api import CONFLICT, NOT_FOUND, JsonApi
from gameday.errors import KubernetesError, LeaseLostError
from gameday_health.model import REASON, Fault, LogProgress, NodeView, Taint, write_reason

log = logging.getLogger(__name__)

_CONFLICT_TRIES = 8


class Written(StrEnum):
    """The outcome of a write to a node."""

    TAINTED = "tainted"
    ALREADY = "already"
    """The same taint was already on the node; it is left as it is."""
    FOREIGN = "foreign"
    """The key was on the node with another value or effect; it is left as it is."""
    UNTOUCHED = "untouched"
    """The taint stayed as it was: only the reason was written, or removed."""
    GONE = "gone"
    """The node does not exist."""


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """A write to one node, as it was decided. Nothing in it changes while it is under way."""

    name: str
    view: NodeView | None
    """The node as it was last seen; None to read it first."""
    faults: tuple[Fault, ...]
    new_faults: tuple[Fault, ...]
    """Faults that have no taint written yet. Without any, the taint is not added: somebody may have removed it."""
    progress: LogProgress
    decided: datetime


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a write, with the node as it is stored afterwards."""

    write: NodeWrite
    written: Written
    view: NodeView | None
    """The node after the write; None if the node is gone."""
    foreign: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A write that did not get through."""

    write: NodeWrite
    error: Exception


class Quarantine:
    """Writes one taint and the reason for it, for any number of threads."""

    def __init__(self, api: JsonApi, taint: Taint, policy: str, conditions: Collection[str] = ()) -> None:
        """Prepare to write.

        Args:
            api: The API server.
            taint: The taint.
            policy: The policy's name, for the reason.
            conditions: The types of conditions that the views of nodes keep.
        """
        self._api = api
        self._taint = taint
        self._policy = policy
        self._conditions = conditions

    def attempt(self, write: NodeWrite) -> Result | Failure:
        """Write taint and reason. A refusal, or an API server that does not answer, is a `Failure`."""
        try:
            return self._change(write)
        except (KubernetesError, LeaseLostError) as error:
            return Failure(write, error)
        except Exception as error:  # any: a write that ended without a result would be awaited forever
            log.exception("node %s not written", write.name)
            return Failure(write, error)

    def _wanted(self, view: NodeView, write: NodeWrite) -> tuple[Written, dict[str, Any]]:
        present = view.taints_with(self._taint.key)
        faults = list(write.faults)
        reason = write_reason(faults, write.progress, self._policy, view.boot_id, write.decided) if faults else None
        patch: dict[str, Any] = {"metadata": {"annotations": {REASON: reason}}}
        if not write.new_faults:
            return Written.UNTOUCHED, patch
        if self._taint in present:
            return Written.ALREADY, patch
        if present:
            return Written.FOREIGN, patch
        ours = {"key": self._taint.key, "value": self._taint.value, "effect": self._taint.effect}
        patch["spec"] = {"taints": [*(dict(taint) for taint in view.taints), ours]}
        return Written.TAINTED, patch

    def _change(self, write: NodeWrite) -> Result:
        """Patch the node as it was last seen; if somebody wrote it since, read it and begin again."""
        path, last_seen = f"/api/v1/nodes/{quote(write.name, safe='')}", write.view
        for _ in range(_CONFLICT_TRIES):
            try:
                view = last_seen or NodeView.of(self._api.request("GET", path), self._conditions)
                written, patch = self._wanted(view, write)
                patch["metadata"]["resourceVersion"] = view.resource_version
                answer = self._api.request("PATCH", path, patch)
            except KubernetesError as error:
                if error.status == NOT_FOUND:
                    return Result(write, Written.GONE, None)
                if error.status != CONFLICT:
                    raise
                last_seen = None
                continue
            foreign = tuple(view.taints_with(self._taint.key)) if written is Written.FOREIGN else ()
            return Result(write, written, NodeView.of(answer, self._conditions), foreign)
        raise KubernetesError(self._api.server, f"node {write.name} is written by others all the time", status=CONFLICT)
