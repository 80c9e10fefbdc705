"""The usual duration of each plan's game-days on a cluster, from the runs of a reports folder."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from statistics import median

from gameday.checks.outcome import RunOutcome
from gameday.runs.catalog import read_catalog

_PLAYED_TO_THE_END = (RunOutcome.PASSED, RunOutcome.FAILED, RunOutcome.UNKNOWN)


def usual_durations(reports: Path, cluster: str) -> dict[str, timedelta]:
    """Return the median by plan over the runs that were played to their end; empty where there is no such folder.

    Args:
        reports: Folder of all runs.
        cluster: The cluster's name in its profile.
    """
    try:
        runs = read_catalog(reports).runs
    except OSError:
        return {}
    took: dict[str, list[float]] = defaultdict(list)
    for one in (run.summary for run in runs):
        if one.cluster == cluster and one.outcome in _PLAYED_TO_THE_END:
            took[one.plan].append(one.seconds)
    return {plan: timedelta(seconds=median(seconds)) for plan, seconds in took.items()}
