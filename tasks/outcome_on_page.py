"""The outcome of a flow run on its page in Prefect, as text and as tags: Prefect's states have names of their own.

Prefect's automations match the text, because an event has the tags that its flow run had minutes ago (3.8,
PREFECT_API_EVENTS_RELATED_RESOURCE_CACHE_TTL). Pages filter by tags.
"""

from __future__ import annotations

from collections.abc import Collection

from gameday.checks.outcome import RunOutcome, exit_code
from gameday.exit_codes import ExitCode
from gameday.values.results import Cleanliness

_OUTCOMES = {f"outcome:{one}": one for one in RunOutcome}
_CLUSTERS = {f"cluster:{one}": one for one in Cleanliness}


def verdict(outcome: RunOutcome, cluster: Cleanliness, why: str) -> str:
    """Return a state's message, such as "Passed, cluster clean. All 14 expectations held."."""
    return f"{outcome.capitalize()}, cluster {cluster}. {why}"


def begins_with(outcome: RunOutcome) -> str:
    """Return the pattern for Prefect's automations that matches messages with this outcome."""
    return f"{outcome.capitalize()}, cluster *"


def with_outcome(tags: Collection[str], outcome: RunOutcome, cluster: Cleanliness) -> set[str]:
    """Return the tags with this outcome in place of an earlier one."""
    return {*(set(tags) - _OUTCOMES.keys() - _CLUSTERS.keys()), f"outcome:{outcome}", f"cluster:{cluster}"}


def code_of(tags: Collection[str]) -> ExitCode | None:
    """Return the exit code that a flow run's tags stand for, or None if it was not judged."""
    outcome = next((_OUTCOMES[tag] for tag in tags if tag in _OUTCOMES), None)
    cluster = next((_CLUSTERS[tag] for tag in tags if tag in _CLUSTERS), None)
    return ExitCode(exit_code(outcome, cluster)) if outcome and cluster else None
