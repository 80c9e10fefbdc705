"""The durations of a reports folder's runs: as an OpenMetrics file for a scraper, and the usual ones by plan."""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median

from gameday.checks.outcome import RunOutcome
from gameday.plain_file import write_whole
from gameday.report.openmetrics import openmetrics
from gameday.runs.run_list import CatalogRun, list_runs

_PLAYED_TO_THE_END = (RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.UNKNOWN)


def write_timings(reports: Path, file: Path) -> None:
    """Write the timings of the newest run of each plan on each cluster, without runs of comparisons.

    If runs end together, each writer waits for the one before, so that the last one leaves none out.

    Args:
        reports: Folder of all runs.
        file: The file. Its folder is made if only that is missing.

    Raises:
        OSError: The reports cannot be read, or the file not written.
    """
    file.parent.mkdir(exist_ok=True)
    with _alone(file.parent):
        write_whole(file, timings_of(list_runs(reports).runs))


def timings_of(runs: Iterable[CatalogRun]) -> bytes:
    """Return the timings of the newest run of each plan on each cluster."""
    return openmetrics(run.summary for run in runs)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock for the block; a process that dies releases it."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def usual_durations(reports: Path, cluster: str) -> dict[str, timedelta]:
    """Return the median by plan over the runs that were played to their end; empty if there is no such folder.

    Args:
        reports: Folder of all runs.
        cluster: The cluster's name in its profile.
    """
    try:
        runs = list_runs(reports).runs
    except OSError:
        return {}
    took: dict[str, list[float]] = defaultdict(list)
    for one in (run.summary for run in runs):
        if one.cluster == cluster and one.outcome in _PLAYED_TO_THE_END:
            took[one.plan].append(one.seconds)
    return {plan: timedelta(seconds=median(seconds)) for plan, seconds in took.items()}
