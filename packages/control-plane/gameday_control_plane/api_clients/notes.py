"""The notes of a load: JSON lines in the pod's log, which `notes_in` of gameday.agent.task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import AwareDatetime, Field

from gameday_control_plane.api_clients.lists import Form, Read
from gameday_control_plane.api_clients.order import OwnCost
from gameday_control_plane.values.api_loads import Measured
from gameday_control_plane.values.api_requests import ApiRequest, LoadModel, LoadStage
from gameday_control_plane.values.pod_steps import PodsPlaced, PodStep

_MOST_IN_A_NOTE = 50
"""Requests in one line: about 20 KB of a pod's log."""


class StormNote(LoadModel):
    """The note that a storm begins."""

    note: Literal["storm"] = "storm"
    began_at: AwareDatetime
    clients: int = Field(description="of the largest stage")
    rounds: int
    resource: str
    form: Form
    read: Read
    act_as: str
    objects: int = Field(description="as the API server counted them")
    list_bytes: int = Field(description="of one LIST of them all as JSON, as one client read it before the storm")


class RequestsNote(LoadModel):
    """The note about requests that have ended."""

    note: Literal["requests"] = "requests"
    requests: tuple[ApiRequest, ...]


class StageNote(LoadModel):
    """The note about a stage that has ended, its pause included."""

    note: Literal["stage"] = "stage"
    stage: LoadStage


class MeasuredNote(LoadModel):
    """The note about what a load measured of itself, at its end."""

    note: Literal["measured"] = "measured"
    measured: Measured


class PodStepNote(LoadModel):
    """The note of a step of pods."""

    note: Literal["pod-step"] = "pod-step"
    step: PodStep


class PodsPlacedNote(LoadModel):
    """The note that says where all pods are, before they are deleted."""

    note: Literal["pods-placed"] = "pods-placed"
    placed: PodsPlaced


StormEnding = Literal["rounds done", "told to end", "host short of memory"]


class StormEndNote(LoadModel):
    """The note that a storm is over."""

    note: Literal["storm-end"] = "storm-end"
    ended_at: AwareDatetime
    reason: StormEnding
    cost: OwnCost = Field(description="the load's own processes, from their start to their end")


def request_notes(requests: Sequence[ApiRequest]) -> Iterator[RequestsNote]:
    """Yield the notes about requests, each short enough for a log line."""
    for first in range(0, len(requests), _MOST_IN_A_NOTE):
        yield RequestsNote(requests=tuple(requests[first : first + _MOST_IN_A_NOTE]))
