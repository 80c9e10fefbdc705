"""The league's page and its Markdown, drawn from the folders of its seasons."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gameday.league.record import LEAGUE_FILE, LeagueRecord, load_record, save_record
from gameday.league.table import LeagueTable, league_table
from gameday.report.markdown import markdown
from gameday.report.page import environment
from gameday.values.models import FrozenModel

PAGE_FILE = "league.html"


class LeagueContent(FrozenModel):
    """The content of league.json."""

    record: LeagueRecord
    table: LeagueTable


@dataclass(frozen=True)
class RenderedLeague:
    """A league's page as it was written."""

    html: Path
    json: Path
    content: LeagueContent

    @property
    def markdown(self) -> str:
        """The dated table with the tallies, for a page of documentation; no value of it can become markup."""
        return markdown("league", "league.md", record=self.content.record, table=self.content.table)


def render_league(folder: Path, rendered_at: datetime) -> RenderedLeague:
    """Write league.html and league.json from the league's record and its seasons' folders.

    Raises OSError where it cannot be read or written, ValueError where league.json holds something else.
    """
    return write_league(folder, load_record(folder), rendered_at)


def write_league(folder: Path, record: LeagueRecord, rendered_at: datetime) -> RenderedLeague:
    """Write league.html and league.json of a record. Raises OSError."""
    content = LeagueContent(record=record, table=league_table(record, folder))
    rendered = RenderedLeague(folder / PAGE_FILE, folder / LEAGUE_FILE, content)
    save_record(folder, content.model_dump_json(indent=1).encode() + b"\n")
    page = environment("league").get_template("page.html")
    text = page.render(record=record, table=content.table, rendered_at=rendered_at)
    rendered.html.write_text(text, encoding="utf-8")
    return rendered
