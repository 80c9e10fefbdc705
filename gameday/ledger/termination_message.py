"""The termination message of an agent's pod."""

from __future__ import annotations

from datetime import datetime

from gameday.agent.task import AgentResult
from gameday.cluster.pods import PodFollower


def termination_message(pods: PodFollower, name: str) -> AgentResult | None:
    """Return the result that an agent left when it ended; None if it left none that can be read."""
    seen = pods.seen(name)
    return AgentResult.parse(seen.termination) if seen and seen.termination else None


def injected_at(pods: PodFollower, injector: str) -> datetime | None:
    """Return when the fault of a finished injector went in.

    The termination message has the time even if the injector was ended while it started. Without a message it is only
    known that the fault is no longer in, so the time is now at the latest.

    Returns:
        The time; None if the fault did not go in, or no such pod was seen.
    """
    message = termination_message(pods, injector)
    if message and message.written_at:
        return message.written_at
    return pods.clock.now() if (message.evidence if message else pods.seen(injector)) else None
