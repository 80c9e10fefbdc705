"""Write a node's taint and its reason, without ever losing what somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from kubernetes.client.exceptions import ApiException

from gameday.health.api import MANAGER, MERGE_PATCH, Api
from gameday.health.model import REASON, NodeState, NodeView, Taint, write_reason

_CONFLICT_TRIES = 8


class Written(StrEnum):
    """The outcome of a write to a node."""

    TAINTED = "tainted"
    ALREADY = "already"
    """The very taint was on the node; it is left as it is."""
    FOREIGN = "foreign"
    """The key was on the node with another value or effect; it is left as it is."""
    UNTOUCHED = "untouched"
    """The taint stayed as it was: only the reason was written, or taken off."""
    GONE = "gone"
    """There is no such node."""


@dataclass(frozen=True)
class Result:
    """The outcome of a write, with the node as it is stored afterwards."""

    written: Written
    view: NodeView | None
    """The node after the write; None for a node that is gone."""
    foreign: tuple[Taint, ...] = ()


class Quarantine:
    """The writer of one taint and of the reason for it."""

    def __init__(self, api: Api, taint: Taint, policy: str) -> None:
        self._api = api
        self._taint = taint
        self._policy = policy

    def write(self, name: str, state: NodeState, now: datetime) -> Result:
        """Write taint and reason as `state` has them.

        The taint is added only for faults that were never written: one that somebody removed meanwhile is not put back.

        Raises:
            ApiException: The server refuses, or others have written the node eight times in between.
            urllib3.exceptions.HTTPError: The server does not answer.
        """
        return self._change(name, state.view, lambda view: self._wanted(view, state, now))

    def _wanted(self, view: NodeView, state: NodeState, now: datetime) -> tuple[Written, dict[str, Any]]:
        present = view.taints_with(self._taint.key)
        reason = write_reason(state.faults, state.progress, self._policy, view.boot_id, now) if state.faults else None
        patch: dict[str, Any] = {"metadata": {"annotations": {REASON: reason}}}
        if not state.unwritten_faults:
            return Written.UNTOUCHED, patch
        if self._taint in present:
            return Written.ALREADY, patch
        if present:
            return Written.FOREIGN, patch
        ours = {"key": self._taint.key, "value": self._taint.value, "effect": self._taint.effect}
        patch["spec"] = {"taints": [*(dict(taint) for taint in view.taints), ours]}
        return Written.TAINTED, patch

    def _change(
        self, name: str, last_seen: NodeView | None, change: Callable[[NodeView], tuple[Written, dict[str, Any]]]
    ) -> Result:
        """Patch the node as it was last seen; where somebody wrote since, read it and begin again."""
        path = f"/api/v1/nodes/{quote(name, safe='')}"
        for _ in range(_CONFLICT_TRIES):
            try:
                view = last_seen or NodeView.of(self._api.request("GET", path))
                written, patch = change(view)
                patch["metadata"]["resourceVersion"] = view.resource_version
                answer = self._api.request("PATCH", path, patch, {"fieldManager": MANAGER}, MERGE_PATCH)
            except ApiException as error:
                if error.status == 404:
                    return Result(Written.GONE, None)
                if error.status != 409:
                    raise
                last_seen = None
                continue
            foreign = tuple(view.taints_with(self._taint.key)) if written is Written.FOREIGN else ()
            return Result(written, NodeView.of(answer), foreign)
        raise ApiException(status=409, reason=f"node {name} is written by others all the time")
