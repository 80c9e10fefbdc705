"""The choices of people in the forms of `gameday deploy`, read back: a plan with its words, a cluster by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

WORDS = ": "
"""Between a plan's name and the words that say what it is: Prefect's forms show a value, and nothing beside it."""


def plan_of(choice: str) -> str:
    """Return the name or the path of a plan, which its words may follow."""
    return choice.partition(WORDS)[0]


def _plan_of(choice: Any) -> Any:
    return plan_of(choice) if isinstance(choice, str) else choice


PlanChoice = Annotated[str, BeforeValidator(_plan_of)]
"""A plan of a form, or its bare name or path: the flow gets the latter."""


def source_of(profile: str | None, profiles: Mapping[str, str] | None) -> str | None:
    """Return a profile's path or block: that of the cluster of this name, or what was given.

    Args:
        profile: A cluster's name, a profile's path, block:NAME, or None for the environment.
        profiles: The paths and blocks by the names that the form offers; None where no form was.
    """
    return (profiles or {}).get(profile, profile) if profile else None
