"""Undo what dead runs left in the cluster; scheduled, because nobody may be there to ask for it."""

from __future__ import annotations

from pathlib import Path

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.ledger.reaper import reap


@flow(name="reaper", persist_result=False)
def reaper(
    profile: str | None = None,
) -> State[None]:
    """Undo every open entry of every ledger whose run is dead.

    Args:
        profile: Cluster profile's path; none: GAMEDAY_* of the environment.
    """
    kubernetes = Kubernetes(load_profile(Path(profile) if profile else None))
    try:
        result = reap(kubernetes)
    finally:
        kubernetes.close()
    for one in result.reaped:
        get_run_logger().info("run %s: %s: %s", one.run_id, one.entry.act, one.cleanliness)
    message = f"{len(result.reaped)} entries undone, {len(result.alive)} runs alive"
    return Completed(message=message) if result.clean else Failed(message=f"{message}; not everything is clean")
