"""Read back what people chose in the forms of `gameday deploy`: a plan with its description, a cluster by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

WORDS = ": "
"""Separates a plan's name from its description: Prefect's forms show only the value itself."""


def plan_of(choice: str) -> str:
    """Return a plan's name or path, without the description that may follow it."""
    return choice.partition(WORDS)[0]


def _plan_of(choice: Any) -> Any:
    return plan_of(choice) if isinstance(choice, str) else choice


PlanChoice = Annotated[str, BeforeValidator(_plan_of)]
"""A plan as a form offers it, or its bare name or path; the flow receives the latter."""


def source_of(profile: str | None, profiles: Mapping[str, str] | None) -> str | None:
    """Return the path or block of a cluster's profile: that of the cluster of this name, or what was given.

    Args:
        profile: A cluster's name, a profile's path, block:NAME, or None for the environment.
        profiles: Paths and blocks by the names that the form offers; None if there was no form.
    """
    return (profiles or {}).get(profile, profile) if profile else None
