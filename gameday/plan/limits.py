"""What a game-day may at most cost: the limits that a plan and a cluster profile share, and the plan's own."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gameday.documents.fields import TIME_OF_DAY, DocumentModel, Duration


class Weekday(StrEnum):
    MONDAY = "mon"
    TUESDAY = "tue"
    WEDNESDAY = "wed"
    THURSDAY = "thu"
    FRIDAY = "fri"
    SATURDAY = "sat"
    SUNDAY = "sun"


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise PydanticCustomError("time_zone", "no such time zone; write it like Europe/Berlin, or UTC") from None
    return name


TimeZone = Annotated[str, AfterValidator(_known_zone), Field(max_length=64)]
"""A name of the IANA time zone database."""
TimeOfDay = Annotated[str, Field(pattern=TIME_OF_DAY)]


class TimeWindow(DocumentModel):
    """When game-days may run. An end that is not after the start lies on the next day."""

    days: tuple[Weekday, ...] = tuple(Weekday)
    """Days on which the window opens."""
    start: Annotated[str, Field(pattern=TIME_OF_DAY.removesuffix("|^24:00$"))] = "00:00"
    """Time of day at which it opens."""
    end: TimeOfDay = "24:00"
    """Time of day at which it closes; not after `start`: on the next day."""
    zone: TimeZone = "UTC"
    """IANA time zone of both, like Europe/Berlin."""


class Limits(DocumentModel):
    """What a game-day may at most cost. The cluster profile and the plan both may limit; the stricter of the two holds,
    lists of what stops a run add up, and a run must lie in the windows of both."""

    max_nodes: int | None = Field(default=None, ge=1)
    """The most nodes that may be broken at once."""
    max_gpus: int | None = Field(default=None, ge=1)
    """The most GPUs on those nodes: a quarantine takes all of a node's GPUs out of work, whatever was broken."""
    max_pool_percent: float | None = Field(default=None, gt=0, le=100)
    """The share of the GPU pool (the profile's `pool_selector`) that may be broken at once, percent of its nodes."""
    max_domain_percent: float | None = Field(default=None, gt=0, le=100)
    """The share of any one rack, zone or other domain (the profile's `topology_label`), percent of its GPU nodes."""
    max_unhealthy_nodes: int | None = Field(default=None, ge=0)
    """The most other GPU nodes that may be NotReady, cordoned or quarantined, before and during the run."""
    protected_namespaces: tuple[str, ...] = ()
    """No pod of these may be on a target; pods of DaemonSets and the kubelet's static pods do not count."""
    protected_priority_classes: tuple[str, ...] = ()
    """The same for pods of these priority classes."""
    windows: tuple[TimeWindow, ...] = ()
    """When runs may take place; none means at any time. A run that is still on when its window closes is aborted."""
    stop_alerts: tuple[str, ...] = ()
    """Alerts that stop the run whenever they fire for anything but its targets."""
    stop_severities: tuple[str, ...] = ()
    """The same for every alert with one of these values of its `severity` label."""


class Guardrails(Limits):
    """What this game-day may at most cost. A plan can only be stricter than the cluster's profile."""

    max_nodes: int | None = Field(default=1, ge=1)
    """The most nodes that may be broken at once."""
    max_duration: Duration = timedelta(minutes=30)
    """The whole run; tripping it aborts and undoes."""
    allow_dangerous: tuple[str, ...] = ()
    """Types of dangerous faults that this plan may use; the cluster profile has to allow them as well."""
