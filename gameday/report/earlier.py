"""Find the earlier runs a run can be compared with: the folders beside it, by what their reports say of themselves."""

from __future__ import annotations

from pathlib import Path

from gameday.report.summary import Summary, read_summary

MOST_RUNS = 10
"""Runs compared with: enough for a season's quarter of weekly runs, few enough for one small chart."""
MOST_FOLDERS = 400
"""Folders looked into, newest name first (a run id starts with its date), so that years of runs cost no more."""


def earlier_than(folder: Path, now: Summary) -> tuple[Summary, ...]:
    """The newest runs of the same plan on the same cluster that began before this one, oldest first.

    Read from the `summary` of the report.json in each folder beside this one; a
    folder without a readable one is passed over. Never raises.
    """
    return tuple(summary for _, summary in earlier_folders(folder, now))[-MOST_RUNS:]


def earlier_folders(folder: Path, now: Summary) -> list[tuple[Path, Summary]]:
    """All of them, with their folders."""
    beside = ((other, read_summary(other)) for other in _beside(folder)[:MOST_FOLDERS])
    of_plan = [(at, one) for at, one in beside if one and (one.plan, one.cluster_id) == (now.plan, now.cluster_id)]
    found = [(at, one) for at, one in of_plan if one.started < now.started and one.run_id != now.run_id]
    return sorted(found, key=lambda pair: pair[1].started)


def _beside(folder: Path) -> list[Path]:
    try:
        others = [path for path in folder.resolve().parent.iterdir() if path.name != folder.resolve().name]
    except OSError:
        return []
    return sorted(others, key=lambda path: path.name, reverse=True)
