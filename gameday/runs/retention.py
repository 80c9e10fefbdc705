"""Decide which folders of runs, comparisons and fleet runs may be deleted, and delete them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gameday.plain_file import open_plain
from gameday.report.notes import is_blank_form
from gameday.runs.catalog import GroupKind, RunCatalog, RunGroup, read_catalog
from gameday.runs.index import render_index
from gameday.runs.run_list import CatalogRun, list_runs
from gameday.runs.season_page import redraw_season
from gameday.runs.season_record import SEASON_FILE
from gameday.values.results import Cleanliness

_RENAMED = "somebody renamed the folder: it is no longer its own"
_SERIES = {GroupKind.COMPARISON: "plan on its cluster", GroupKind.FLEET: "cluster"}
_TAIL_BYTES = 64 * 1024
"""The part of a history that is read for its last record, run_ended, which has a hundred bytes."""


@dataclass(frozen=True)
class RetentionDecision:
    """The decision on the folder of a run, or of a group with its game-days, and the rule behind it."""

    folder: Path
    deletable: bool
    why: str


def decide_retention(
    catalog: RunCatalog, keep: int, newer_than: timedelta, now: datetime
) -> tuple[RetentionDecision, ...]:
    """Decide for each run and each group of the catalog whether its folder may be deleted. Nothing is deleted.

    A run stays while it is among the newest of its plan on its cluster, or young enough. Whatever its age, it stays
    while it is evidence of an unclean cluster, while its history is not closed (it may be running), and when people
    wrote into its notes. A comparison is one with its game-days: it stays while one of them must, counts among the
    comparisons of its plan, and goes with all of them. A fleet run counts among those of its cluster. Incidents are
    people's work and are never deletable.

    Args:
        catalog: The runs and groups of a reports folder.
        keep: How many of the newest runs, and of the newest comparisons, of each plan on each cluster stay.
        newer_than: The age below which a run or a group stays.
        now: The instant from which ages count.

    Returns:
        One decision per run, newest run first, then one per group, newest first.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    decisions = []
    for run in catalog.runs:
        series: tuple[str, ...] = "run", run.summary.plan, run.summary.cluster_id
        seen[series] += 1
        newest = f"among the newest {keep} of its plan on its cluster"
        by_age = _reasons_of_age(newest, seen[series] <= keep, run.summary.started >= now - newer_than)
        decisions.append(_decide(run.folder, _reasons_of_run(run, by_age), newest))
    for one in catalog.groups:
        series = one.kind, *one.series
        seen[series] += 1
        newest = f"among the newest {keep} of its {_SERIES[one.kind]}"
        by_age = _reasons_of_age(newest, seen[series] <= keep, one.started >= now - newer_than)
        decisions.append(_decide(one.folder, _reasons_of_group(one, by_age), newest))
    return tuple(decisions)


def delete_folder(folder: Path) -> str:
    """Delete a folder that may be deleted; return why it could not be deleted, empty if it is gone."""
    try:
        shutil.rmtree(folder)
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror}"
    return ""


def _decide(folder: Path, reasons_to_stay: Iterator[str], newest: str) -> RetentionDecision:
    reason = next(reasons_to_stay, "")
    return RetentionDecision(folder, not reason, reason or f"older, and not {newest}")


def _reasons_of_age(newest: str, is_newest: bool, is_new: bool) -> list[str]:
    return [*([newest] if is_newest else []), *(["new enough"] if is_new else [])]


def _reasons_of_run(run: CatalogRun, by_age: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why a run stays; those that need a look into its folder come last."""
    yield from _reasons_of_summary(run)
    yield from by_age
    yield from _reasons_of_folder(run.folder)


def _reasons_of_group(one: RunGroup, by_age: Sequence[str]) -> Iterator[str]:
    """Yield the reasons why a group stays, with those of its game-days; their folders are read last."""
    if one.folder.name != one.id:
        yield _RENAMED
    if one.kind is GroupKind.FLEET and one.doubt:
        yield f"evidence: {one.doubt}"
    yield from by_age
    if one.ended is None:
        yield "it has not come to its end"
    if one.kind is GroupKind.COMPARISON:
        members = list_runs(one.folder)
        for run in members.runs:
            for reason in (*_reasons_of_summary(run), *_reasons_of_folder(run.folder)):
                yield f"its game-day {run.folder.name}: {reason}"
        yield from (f"its game-day {problem}" for problem in members.unreadable)
        yield from (f"its game-day {run.run_id} is still running" for run in members.running)


def _reasons_of_summary(run: CatalogRun) -> Iterator[str]:
    if run.summary.cleanliness is not Cleanliness.CLEAN:
        yield f"evidence: the run left the cluster {run.summary.cleanliness}"
    if run.folder.name != run.summary.run_id:
        yield _RENAMED


def _reasons_of_folder(folder: Path) -> Iterator[str]:
    if not is_blank_form(folder):
        yield "people wrote about it"
    if not _is_closed(folder / "history.jsonl"):
        yield "its history was never closed"


def _is_closed(history: Path) -> bool:
    try:
        with open_plain(history) as file:
            file.seek(max(0, history.stat().st_size - _TAIL_BYTES))
            return b'"kind":"run_ended"' in file.read()
    except OSError:
        return False


def without_dead_links(reports: Path, rendered_at: datetime) -> str:
    """Draw the index and the seasons' pages again if they are there, without links to folders that are gone.

    The digest links the runs of its window, which are newer than what is deleted as a rule; `gameday digest` renews it.

    Returns:
        The reason why a full or failing disk lacks one of them; empty if all are drawn.

    Raises:
        OSError: The folder cannot be read or written.
    """
    if (reports / "index.html").is_file():
        render_index(reports, read_catalog(reports), rendered_at)
    unwritten = ""
    for season in reports.glob(f"*/{SEASON_FILE}"):
        if season.parent.is_symlink():
            continue
        with suppress(ValueError, FileNotFoundError):  # a season without a page, or with a damaged one, links nothing
            unwritten = redraw_season(season.parent, rendered_at).unwritten or unwritten
    return unwritten
