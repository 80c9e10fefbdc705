"""A league's folder made of stored seasons: runs as the report's own tests write them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from gameday.coverage.run_row import render_run
from gameday.history.events import DetectorConsulted, GuestNamed, RunStarted, TaintSeen
from gameday.league.record import LeagueEntry, LeagueFault, LeagueRecord
from gameday.plan.models import Plan
from gameday.season.record import Assignment, DirtyNode, LeftOut, SeasonRecord
from tests.coverage.builders import plan
from tests.report.page import only
from tests.report.run_builder import NODE, START, Timed, at, passing, replacing, without, write

OURS = LeagueEntry(given="ours", name="ours", version="1.0")
NPD = LeagueEntry(given="npd.yaml", name="npd", version="v1 (commit 6632ca6)")


def fault(name: str, *, stays_in_service: bool = False, title: str = "") -> LeagueFault:
    return LeagueFault(
        plan=name,
        asked_as=name,
        title=title or f"The fault {name}",
        fault="xid",
        layer="kernel log",
        asks_for_action=not stays_in_service,
        stays_in_service=stays_in_service,
    )


def record(
    *faults: LeagueFault, entries: tuple[LeagueEntry, ...] = (OURS, NPD), source: str = "kind: League"
) -> LeagueRecord:
    return LeagueRecord(
        id="league-1",
        title="Who notices?",
        started=START,
        source=source,
        nodes=8,
        gpus=8,
        seed=1,
        at_once=4,
        within="2m",
        entries=entries,
        faults=faults,
    )


def consulted(sees: bool | None, why: str = "") -> Timed:
    said = DetectorConsulted(detector="npd", title="npd", source="test", sees=sees, why=why, filled=())
    return Timed(0.4, said)


def named() -> Timed:
    return Timed(0.5, GuestNamed(name="npd", version="v1"))


def untainted(*more: Timed) -> list[Timed]:
    """A run in which the detector gave no signal."""
    return [*without(passing(), lambda event: isinstance(event, TaintSeen)), *more]


def run(
    league: Path, entry: LeagueEntry, season: str, name: str, events: Iterable[Timed], mine: Plan | None = None
) -> Assignment:
    """Write a run as it leaves its folder when it has ended, its report without sections that no league reads."""
    run_id = f"{season}-{name}"
    timed = replacing(events, lambda event: isinstance(event, RunStarted), run_id=run_id)
    write(league / entry.name / run_id, timed, plan=mine or plan(name))
    with only():
        render_run(league / entry.name / run_id, datetime.now(UTC))
    return Assignment(run_id=run_id, plan=name, asked_as=name, targets=(NODE,))


def season(
    league: Path,
    entry: LeagueEntry,
    id: str,
    *places: Assignment,
    left_out: tuple[LeftOut, ...] = (),
    ended: bool = True,
    dirty_nodes: tuple[DirtyNode, ...] = (),
) -> None:
    """Write a season's record beside its runs."""
    SeasonRecord(
        id=id,
        cluster="rehearsal",
        trigger="rehearsal",
        command="gameday coverage",
        seed=1,
        at_once=4,
        started=START,
        ended=at(90) if ended else None,
        places=places,
        left_out=left_out,
        dirty_nodes=dirty_nodes,
    ).save(league / entry.name / id)
