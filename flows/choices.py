"""A flow's plan and cluster: as a person chose them in a form of `gameday deploy`, or as a program passes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from gameday.cluster.profile import ClusterProfile
from gameday.detectors.resolve import load_complete_plan
from gameday.plan.catalogue import find_plan
from gameday.plan.load import LoadedPlan

WORDS = ": "
"""Separator between a plan's name and its description, because Prefect's forms show only the value itself."""


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


class GivenPlan:
    """A plan that the program which calls a flow has read and completed.

    It is no dataclass, so Prefect cannot serialize it: its server keeps `<GivenPlan>` in place of the whole plan.
    """

    __slots__ = ("loaded",)

    def __init__(self, loaded: LoadedPlan) -> None:
        self.loaded = loaded


def plan_to_play(given: GivenPlan | None, plan: str, cluster: ClusterProfile) -> LoadedPlan:
    """Return the plan that a program passed; without one, read the plan of this name and complete it for the cluster.

    Raises:
        DocumentError: The plan, or a detector's profile that it needs, cannot be used.
    """
    return given.loaded if given else load_complete_plan(find_plan(plan), cluster.detector_profiles, cluster.detector)
