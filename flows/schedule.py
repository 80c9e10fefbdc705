"""Refuse scheduled runs that start more than an hour late.

A worker that comes back after a night takes every run it missed, however old: Prefect's server only marks them late.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prefect.context import FlowRunContext

from gameday.errors import RefusedError
from gameday.values.results import Trigger

# Long enough for a worker that restarts or a season before it that took its time; short enough that the people who
# were there to see it still are.
_LATE_AT_MOST = timedelta(hours=1)


def refuse_overdue(trigger: Trigger) -> None:
    """Raise RefusedError for a scheduled flow run that was due more than an hour ago; its season's runs are due now."""
    context = FlowRunContext.get()
    due = context.flow_run.expected_start_time if context and context.flow_run else None
    if trigger == "scheduled" and due is not None and datetime.now(UTC) - due > _LATE_AT_MOST:
        raise RefusedError(
            f"was due at {due.astimezone(UTC):%Y-%m-%d %H:%M} UTC; not run late",
            "start it by hand if it is wanted now, or wait for its next time",
        )
