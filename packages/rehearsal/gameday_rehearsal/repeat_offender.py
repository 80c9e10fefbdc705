"""The record of a node that came back with the same fault several times."""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.xid.catalogue import Remedy
from gameday_health.episodes.model import Episode, PastEpisode, SeenFault, State

_BETWEEN = timedelta(hours=5)
"""Time between two of its returns, so that three of them are within the policy's window of 24 hours."""


def offender_record(node: str, uid: str, now: datetime) -> Episode:
    """Return the record of a node that was reset and returned three times, the last time five hours ago."""
    ends = [now - _BETWEEN * number for number in (3, 2, 1)]
    past = [
        PastEpisode(
            id=f"ep-rehearsed-{number}",
            ended=ended,
            state=State.RETURNED,
            faults=(_fault(ended),),
            rungs=(("gpu-reset", ended - timedelta(minutes=5)),),
        )
        for number, ended in enumerate(ends[:-1], 1)
    ]
    last = ends[-1]
    return Episode(
        id="ep-rehearsed-3",
        node=node,
        uid=uid,
        boot="",
        gpus=None,
        gpu_capacity=None,
        opened=last - timedelta(minutes=6),
        cordoned=False,
        faults=(_fault(last),),
        state=State.RETURNED,
        since=last,
        ended=last,
        why="QA passed",
        past=tuple(past),
    )


def _fault(ended: datetime) -> SeenFault:
    return SeenFault(kind="xid", code=95, device=None, at=ended - timedelta(minutes=6), remedy=Remedy.GPU_RESET)
