"""The pages over a folder of runs, after some of those runs were deleted."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from pathlib import Path

from gameday.runs.catalog import read_catalog
from gameday.runs.index import render_index
from gameday.runs.season_page import redraw_season
from gameday.runs.season_record import SEASON_FILE


def without_dead_links(reports: Path, rendered_at: datetime) -> None:
    """Draw the index and the seasons' pages again where they are, without links to folders that are gone.

    The digest links the runs of its window, which are newer than what is deleted as a rule; `gameday digest` renews it.

    Raises:
        OSError: The folder cannot be read or written.
    """
    if (reports / "index.html").is_file():
        render_index(reports, read_catalog(reports), rendered_at)
    for season in reports.glob(f"*/{SEASON_FILE}"):
        if season.parent.is_symlink():
            continue
        with suppress(ValueError, FileNotFoundError):  # a season without a page, or with a damaged one, links nothing
            redraw_season(season.parent, rendered_at)
