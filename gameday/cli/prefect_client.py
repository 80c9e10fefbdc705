"""Prefect's client in a process that a person waits for: quiet, and quick to give up a server that is gone.

Prefect's own patience with such a server held a run's result back for 150 s
after the run was over and clean. What it is patient about, the states of its
flow run and their events, is not the evidence: that stands in the history.
"""

from __future__ import annotations

import os

from gameday.rehearsal.prefect_server import QUIET

_DEFAULTS = {**QUIET, "PREFECT_CLIENT_MAX_RETRIES": "3"}
"""20 s of attempts for each request; Prefect's own five retries take 75 s, and a run's end has two requests."""
_WITHOUT_A_PAUSE = 3
"""Prefect's client of events sleeps a second before each attempt to reconnect after its third."""
# In the words of Prefect 3.8's flow engine and of its temporary server.
_NO_PREFECT = ("Failed to reach API", "connect to ephemeral Prefect API")


def set_defaults() -> None:
    """Set the environment where it says nothing else; Prefect reads it when it is imported."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)


def give_events_up_at_once() -> None:
    """Spare each event its 8 s of attempts at a server that refuses connections; the next one sends it again."""
    from prefect.events.clients import PrefectEventsClient  # noqa: PLC0415
    from prefect.events.worker import (  # noqa: PLC0415
        EventsWorker,
        emit_events_to_cloud,
        should_emit_events_to_running_server,
    )

    if should_emit_events_to_running_server() and not emit_events_to_cloud():
        EventsWorker.set_client_override(PrefectEventsClient, reconnection_attempts=_WITHOUT_A_PAUSE)


def told_as_gone(error: BaseException) -> str:
    """What to tell a person when it was Prefect's server that could not be reached; empty for everything else."""
    import httpx  # noqa: PLC0415
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415

    if not isinstance(error, httpx.TransportError) and not any(sign in str(error) for sign in _NO_PREFECT):
        return ""
    where = PREFECT_API_URL.value() or "of this machine"
    return f"the Prefect server {where} does not answer; start it, or unset PREFECT_API_URL for one that lasts a run"
