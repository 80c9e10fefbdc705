"""Undo what dead runs left in the cluster, on a schedule."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import load_profile
from gameday.errors import AdapterError, ProfileError
from gameday.exit_codes import ExitCode
from gameday.flows.choices import source_of
from gameday.flows.judged_state import judged_state
from gameday.reaper.packages import announce_packages
from gameday.reaper.reap import reap
from gameday.tasks.reaped_runs import notify_reaped, report_reaped_elsewhere


@flow(name="reaper", persist_result=False)
def reaper(
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    reports: str = "reports",
) -> State[None]:
    """Undo every open entry of the ledgers of dead runs, render those runs' reports again, and notify people.

    Args:
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        reports: Folder the runs' own folders are in.
    """
    try:
        cluster = load_profile(source_of(profile, profiles))
        with closing(Kubernetes(cluster)) as kubernetes:
            result = reap(kubernetes)
            for one in result.reaped:
                get_run_logger().info("%s", one.describe())
            for part in result.unreadable:
                get_run_logger().warning("kept, for no undo can be made of it: %s", part)
            notify_reaped(cluster, result, Path(reports))
            report_reaped_elsewhere(kubernetes, Path(reports))
            announce_packages(kubernetes, "flow")
    except (AdapterError, ProfileError) as error:
        return judged_state(ExitCode.REFUSED, str(error), None)
    message = f"{len(result.reaped)} entries undone, {len(result.alive)} runs alive"
    return Completed(message=message) if result.is_clean else Failed(message=f"{message}; not everything is clean")
