"""Refuse scheduled runs that start more than an hour late.

A worker that comes back after a night takes every run that it missed, however old: Prefect's server only marks them
late.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prefect.context import FlowRunContext

from gameday.errors import RefusedError
from gameday.flows.invocation import occasion
from gameday.values.results import Trigger

# Long enough for a worker that restarts, or for a long season before it; short enough that the people who planned to
# watch are still there. Our own choice.
_MOST_DELAY = timedelta(hours=1)


def refuse_overdue(trigger: Trigger) -> None:
    """Raise RefusedError for a scheduled flow run that was due more than an hour ago."""
    context = FlowRunContext.get()
    due = context.flow_run.expected_start_time if context and context.flow_run else None
    if occasion(trigger) == "scheduled" and due is not None and datetime.now(UTC) - due > _MOST_DELAY:
        raise RefusedError(
            f"the run was due at {due.astimezone(UTC):%Y-%m-%d %H:%M} UTC, more than an hour ago",
            "start it by hand, or wait for its next time",
        )
