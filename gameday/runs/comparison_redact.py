"""A comparison without its site's names: one set of neutral names for its page and its game-days' reports."""

from __future__ import annotations

from pathlib import Path

from gameday.report.redact import Clean, cleaner, words_of_command
from gameday.report.render import load_with_its_past
from gameday.runs.comparison_record import ARMS_FILE, ComparisonRecord


def cleaner_of(folder: Path) -> Clean:
    """Return the function that takes the site's names out of a text, for all that is in a comparison's folder.

    A node has the same number on the page and in each report, whatever else each of them names.
    Raises OSError, and ValueError, as `ComparisonRecord.load` does.
    """
    record = ComparisonRecord.load(folder)
    folders = (folder / place.run_id for place in record.runs)
    runs = [load_with_its_past(run) for run in folders if (run / "history.jsonl").is_file()]
    words = list(words_of_command(record.command))
    if not any(run.started and run.started.trigger == "rehearsal" for run in runs):
        words.append((record.cluster, "the cluster"))
    return cleaner(runs, (node for place in record.runs for node in place.targets), words)


def cleaner_of_member(run_folder: Path) -> Clean | None:
    """Return `cleaner_of` the comparison that a game-day's folder is in; None where it is in none."""
    around = run_folder.resolve().parent
    return cleaner_of(around) if (around / ARMS_FILE).is_file() else None
