"""Decide which runs' folders may be deleted, and delete them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from gameday.archive.catalog import CatalogRun, RunCatalog
from gameday.report.notes import is_blank_form
from gameday.values.results import Cleanliness

_TAIL_BYTES = 64 * 1024
"""A run_ended record has a hundred bytes and is the last of its history."""


@dataclass(frozen=True)
class RetentionDecision:
    """The decision on one run's folder, and the rule behind it."""

    run: CatalogRun
    deletable: bool
    why: str


def decide_retention(
    catalog: RunCatalog, keep: int, newer_than: timedelta, now: datetime
) -> tuple[RetentionDecision, ...]:
    """Decide for each run of the catalog whether its folder may be deleted. Nothing is deleted.

    A run stays while it is among the newest of its plan on its cluster, or young enough. Whatever its age, it stays
    while it is evidence of an unclean cluster, while its history is not closed (it may be running), and when people
    wrote into its notes. Incidents are people's work and are never deletable.

    Args:
        catalog: The runs of a reports folder.
        keep: How many of the newest runs of each plan on each cluster stay.
        newer_than: The age below which a run stays.
        now: The instant from which ages count.

    Returns:
        One decision per run, newest run first.
    """
    seen: Counter[tuple[str, str]] = Counter()
    decisions = []
    for run in catalog.runs:
        series = run.summary.plan, run.summary.cluster_id
        seen[series] += 1
        decisions.append(_decide(run, seen[series], keep, now - newer_than))
    return tuple(decisions)


def delete_runs(decisions: Sequence[RetentionDecision]) -> None:
    """Delete the folders that may be deleted.

    Raises:
        OSError: A folder cannot be deleted; those after it are not touched.
    """
    for decision in decisions:
        if decision.deletable:
            shutil.rmtree(decision.run.folder)


def _decide(run: CatalogRun, rank: int, keep: int, oldest: datetime) -> RetentionDecision:
    """Decide on a run that is the `rank`-th newest of its plan on its cluster."""
    reason = next(_reasons_to_stay(run, rank, keep, oldest), "")
    return RetentionDecision(
        run, not reason, reason or f"older, and not among the newest {keep} of its plan on its cluster"
    )


def _reasons_to_stay(run: CatalogRun, rank: int, keep: int, oldest: datetime) -> Iterator[str]:
    """Yield the reasons why a run stays; those that need a look into its folder come last."""
    if run.summary.cleanliness is not Cleanliness.CLEAN:
        yield f"evidence: the run left the cluster {run.summary.cleanliness}"
    if run.folder.name != run.summary.run_id:
        yield "somebody renamed the folder: it is no longer the run's own"
    if rank <= keep:
        yield f"among the newest {keep} of its plan on its cluster"
    if run.summary.started >= oldest:
        yield "new enough"
    if not is_blank_form(run.folder):
        yield "people wrote about it"
    if not _is_closed(run.folder / "history.jsonl"):
        yield "its history was never closed"


def _is_closed(history: Path) -> bool:
    try:
        with history.open("rb") as file:
            file.seek(max(0, history.stat().st_size - _TAIL_BYTES))
            return b'"kind":"run_ended"' in file.read()
    except OSError:
        return False
