"""The most that a game-day may cost: the limits that a plan and a cluster profile share, and who approves it."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gameday.documents.fields import TIME_OF_DAY, Bound, DocumentModel, Duration


class Weekday(StrEnum):
    """A day of the week, as plans write it."""

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
"""The name of a zone in the IANA time zone database."""
TimeOfDay = Annotated[str, Field(pattern=TIME_OF_DAY)]


class TimeWindow(DocumentModel):
    """A time window in which game-days may run. An end that is not after the start is on the next day."""

    days: tuple[Weekday, ...] = tuple(Weekday)
    """Days on which the window opens."""
    start: Annotated[str, Field(pattern=TIME_OF_DAY.removesuffix("|^24:00$"))] = "00:00"
    """Time of day at which the window opens."""
    end: TimeOfDay = "24:00"
    """Time of day at which the window closes; one that is not after `start` is on the next day."""
    zone: TimeZone = "UTC"
    """IANA time zone of both, like Europe/Berlin."""


class Limits(DocumentModel):
    """The most that a game-day may cost.

    The cluster profile and the plan may both set limits. The smaller of two numbers applies, lists add up, and a run
    must be in the windows of both.
    """

    max_nodes: int | None = Field(default=None, ge=1)
    """The most nodes that may be broken at the same time."""
    max_gpus: int | None = Field(default=None, ge=1)
    """The most GPUs on those nodes: a quarantine takes all of a node's GPUs out of work, even if only one is broken."""
    max_pool_percent: float | None = Field(default=None, gt=0, le=100)
    """The most nodes of the GPU pool (the profile's `pool_selector`) that may be broken at the same time, percent."""
    max_domain_percent: float | None = Field(default=None, gt=0, le=100)
    """The most GPU nodes of any rack, zone or other domain (the profile's `topology_label`) that may be broken at the
    same time, percent."""
    max_unhealthy_nodes: int | None = Field(default=None, ge=0)
    """The most other GPU nodes that may be NotReady, cordoned or quarantined, before and during the run."""
    protected_namespaces: tuple[str, ...] = ()
    """Namespaces that may have no pod on a target, except pods of DaemonSets and the kubelet's static pods."""
    protected_priority_classes: tuple[str, ...] = ()
    """Priority classes that no pod on a target may have, with the same exceptions."""
    windows: tuple[TimeWindow, ...] = ()
    """Time windows in which runs may take place; none: at any time. A run that is still on when its window closes is
    aborted."""
    stop_alerts: tuple[str, ...] = ()
    """Names of alerts that stop the run if they fire for anything but its targets."""
    stop_severities: tuple[str, ...] = ()
    """Values of the label `severity` of alerts that stop the run if they fire for anything but its targets."""


class Guardrails(Limits):
    """The most that this game-day may cost. A plan can only be stricter than the cluster's profile."""

    max_nodes: int | None = Field(default=1, ge=1)
    """The most nodes that may be broken at the same time."""
    max_duration: Duration = timedelta(minutes=30)
    """Longest duration of the whole run; one that takes longer is aborted and undone."""
    allow_dangerous: tuple[str, ...] = ()
    """Types of dangerous faults that this plan may use; the cluster profile has to allow them as well."""


class Approval(DocumentModel):
    """A person's approval, after the baseline and before anything is broken."""

    required: bool = False
    """If true, a person must approve the run: in the Prefect UI, or with `gameday run --approved-by`."""
    within: Bound = timedelta(minutes=15)
    """Longest time from the question to the answer. No answer is a refusal; the wait counts towards
    `guardrails.max_duration`."""
