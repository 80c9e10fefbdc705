"""The league's page and its Markdown, drawn from the folders of its seasons."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gameday.league.record import LEAGUE_FILE, LeagueRecord, load_record, save_record
from gameday.league.table import LeagueTable, league_table
from gameday.plain_file import read_plain, write_whole
from gameday.report.markdown import markdown
from gameday.report.page import environment
from gameday.values.models import FrozenModel

PAGE_FILE = "league.html"


class LeagueContent(FrozenModel):
    """The content of league.json."""

    record: LeagueRecord
    table: LeagueTable

    @property
    def result(self) -> str:
        """Sentence on what each detector noticed, and whether the league came to its end."""
        said = [
            f"{one.name} noticed {one.noticed} of {one.played}" + (f", acted wrongly {one.wrong}×" if one.wrong else "")
            for one in self.table.tallies
        ]
        dirty = sum(bool(cell.left) for row in self.table.rows for cell in row.cells)
        said += [f"{dirty} left dirty"] if dirty else []
        said += [] if self.record.ended else ["not to its end"]
        return "; ".join(said) + "."


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


def read_league(folder: Path) -> LeagueContent:
    """Read what league.json holds; raises OSError, and ValueError for a file that holds something else."""
    return LeagueContent.model_validate_json(read_plain(folder / LEAGUE_FILE))


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
    write_whole(rendered.html, text)
    return rendered
