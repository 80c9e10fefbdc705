"""The marks of a repair on its node: a label, an annotation, and the removal of the taint."""

from __future__ import annotations

import json
from typing import Any

from gameday.cluster.json_api import NOT_FOUND
from gameday.errors import KubernetesError
from gameday_health.episodes.api import RepairApi, node_path
from gameday_health.episodes.model import Episode
from gameday_health.episodes.node import REPAIR_ANNOTATION, STATE_LABEL, NodeSeen
from gameday_health.episodes.transitions import marks_of
from gameday_health.model import Taint


def show(api: RepairApi, episode: Episode, seen: NodeSeen) -> None:
    """Make the node's label and annotation agree with the episode. Raises KubernetesError."""
    state = marks_of(episode)
    repair = _annotation(episode) if state else None
    if (seen.state, seen.repair) != (state, repair):
        _patch(api, seen.name, {"metadata": _marks(state, repair)})


def clear(api: RepairApi, seen: NodeSeen) -> None:
    """Take label and annotation off the node. Raises KubernetesError."""
    if seen.state is not None or seen.repair is not None:
        _patch(api, seen.name, {"metadata": _marks(None, None)})


def give_back(api: RepairApi, seen: NodeSeen, taint: Taint) -> None:
    """Take our taint, label and annotation off the node in one write, if nobody wrote the node since it was read.

    Raises:
        KubernetesError: Its status is 409 if somebody did.
    """
    metadata = {**_marks(None, None), "resourceVersion": seen.version}
    patch = {"metadata": metadata, "spec": {"taints": seen.other_taints(taint) or None}}
    api.request("PATCH", node_path(seen.name), patch)


def _marks(state: str | None, repair: str | None) -> dict[str, Any]:
    return {"labels": {STATE_LABEL: state}, "annotations": {REPAIR_ANNOTATION: repair}}


def _annotation(episode: Episode) -> str:
    content = {
        "episode": episode.id,
        "rung": episode.rung,
        "attempt": len(episode.attempts),
        "since": episode.since.isoformat(timespec="seconds"),
    }
    return json.dumps(content, separators=(",", ":"))


def _patch(api: RepairApi, node: str, patch: dict[str, Any]) -> None:
    try:
        api.request("PATCH", node_path(node), patch)
    except KubernetesError as error:
        if error.status != NOT_FOUND:
            raise
