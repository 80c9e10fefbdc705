"""All schedules of a plan, and their play."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.undo_schedules.aftermaths import AFTERMATHS, after_deadline, after_kill
from tests.undo_schedules.disturbances import DISTURBANCES, after_disturbance
from tests.undo_schedules.instants import instants, requests

# Each lost answer is a warning of urllib3.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
_NOBODY_COMES = "nobody comes: the pods' own deadlines act"


@dataclass(frozen=True)
class Schedule:
    """One schedule; `at` is an instant's number, or a request's where the run goes on."""

    plan: str
    at: int
    then: str

    def __str__(self) -> str:
        return f"{self.plan}, {self.at}: {self.then}"


@dataclass
class Tally:
    """Schedules that were played, and what was wrong."""

    schedules: int = 0
    states: int = 0
    """How many of them began from a cluster, or at a time, that no other schedule of the same kind began from."""
    wrong: dict[str, list[str]] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Add another tally's figures."""
        self.schedules += other.schedules
        self.states += other.states
        self.wrong |= other.wrong


def schedules(plan: str, reports: Path) -> Iterator[Schedule]:
    """Yield all schedules of a plan."""
    for at in range(len(instants(plan, reports))):
        for then in (_NOBODY_COMES, *(one.name for one in AFTERMATHS)):
            yield Schedule(plan, at, then)
    for disturbance in DISTURBANCES:
        for nth in range(len(requests(plan, reports))):
            yield Schedule(plan, nth, disturbance)


def play_all(plan: str, reports: Path, at_least: int | None = None) -> Tally:
    """Play a plan's schedules, or so many of them, the same ones each time.

    Instants between which nothing happened leave the same cluster at the same time: what follows one of them is played
    once, and stands for all.
    """
    found, tally = instants(plan, reports), Tally()
    alike = dict[tuple[str, int], list[Schedule]]()
    for schedule in schedules(plan, reports):
        state = schedule.at if schedule.then in DISTURBANCES else found[schedule.at].state
        alike.setdefault((schedule.then, state), []).append(schedule)
    drawn = list(alike.values())
    if at_least is not None:
        random.Random(0).shuffle(drawn)
    for same in drawn:
        if at_least is not None and tally.schedules >= at_least:
            break
        wrong = _play(same[0], reports)
        tally.states += 1
        tally.schedules += len(same)
        if wrong:
            tally.wrong |= {str(schedule): wrong for schedule in same}
    return tally


def _play(schedule: Schedule, reports: Path) -> list[str]:
    if schedule.then in DISTURBANCES:
        return after_disturbance(schedule.plan, schedule.then, schedule.at, reports)
    instant = instants(schedule.plan, reports)[schedule.at]
    if schedule.then == _NOBODY_COMES:
        return after_deadline(schedule.plan, instant)
    (aftermath,) = [one for one in AFTERMATHS if one.name == schedule.then]
    return after_kill(schedule.plan, instant, aftermath)
