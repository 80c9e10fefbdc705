"""Report a real incident, from the Prefect UI: read what the servers still have, render, link. Nothing is injected."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import AwareDatetime, Field

from gameday.cluster.profile import load_profile
from gameday.errors import AdapterError, PostMortemError, ProfileError
from gameday.exit_codes import ExitCode
from gameday.flows.choices import source_of
from gameday.flows.judged_state import judged_state
from gameday.post_mortem.collect import collect_incident
from gameday.post_mortem.incident import command_line
from gameday.post_mortem.times import checked_window
from gameday.tasks.post_mortem import render_incident


@flow(name="post-mortem", flow_run_name="{node}", persist_result=False, validate_parameters=True)
def post_mortem(
    node: Annotated[str, Field(min_length=1)],
    start: AwareDatetime,
    end: AwareDatetime | None = None,
    profile: str | None = None,
    profiles: dict[str, str] | None = None,
    reports: str = "reports",
    publish_to: str | None = None,
) -> State[str]:
    """Report what happened on a node in a window, and which game-day would have caught it. Reads only.

    Args:
        node: The node it happened on, as Kubernetes spells it.
        start: Beginning of the window, with its time zone.
        end: End of the window, with its time zone. Empty: now.
        profile: Cluster profile's path, or block:NAME; none: GAMEDAY_* of the environment.
        profiles: Profiles by the clusters' names that a form offers; `gameday deploy` sets it.
        reports: Folder the incident's own folder is made in.
        publish_to: fsspec URL the folder is copied to, like s3://bucket/gamedays. Empty: where the profile says.
    """
    now, profile = datetime.now(UTC), source_of(profile, profiles)
    try:
        first, last = checked_window(start, end or now, now)
        cluster = load_profile(profile)
        folder = collect_incident(cluster, node, first, last, Path(reports), command_line(node, first, last, profile))
    except (AdapterError, PostMortemError, ProfileError) as error:
        return judged_state(ExitCode.REFUSED, str(error), str(error))
    made = render_incident(folder, publish_to or cluster.publish_to)
    return Completed(message=made.story.headline, data=str(made.html))
