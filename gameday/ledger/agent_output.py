"""The output of an agent's pod: its termination message, and the notes in its log."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import BaseModel

from gameday.agent.task import Outcome
from gameday.cluster.pods import PodFollower

Note = TypeVar("Note", bound=BaseModel)


def termination_message(pods: PodFollower, name: str) -> Outcome | None:
    """Return the outcome that an agent left when it ended; None where it left none that can be read."""
    seen = pods.seen(name)
    return Outcome.parse(seen.termination) if seen and seen.termination else None


def notes_in(log: str, kind: type[Note]) -> list[Note]:
    """Return the lines of an agent's log that are notes of this kind, in order; other lines are passed over."""
    notes = []
    for line in log.splitlines():
        with suppress(ValueError):
            notes.append(kind.model_validate_json(line))
    return notes


def injected_at(pods: PodFollower, injector: str) -> datetime | None:
    """Return when the fault of an injector that has ended went in.

    The termination message holds the time also where the injector was ended while it started. Without a message it is
    only known that the fault is not in any more, so that the time is now at the latest.

    Returns:
        The time; None where the fault did not go in, or no such pod was seen.
    """
    message = termination_message(pods, injector)
    if message and message.written_at:
        return message.written_at
    return datetime.now(UTC) if (message.evidence if message else pods.seen(injector)) else None
