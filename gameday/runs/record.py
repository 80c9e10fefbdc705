"""The record of game-days that were played together, or of a fleet run: a file from which its page is drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import AwareDatetime, Field

from gameday.plain_file import read_plain, write_whole
from gameday.values.models import FrozenModel


class GroupRecord(FrozenModel):
    """The part of the record that a season, a comparison and a fleet run share."""

    FILE: ClassVar[str]
    """Name of the file in the group's own folder."""

    id: str
    cluster: str
    command: str = Field(description="shell line that runs the same again")
    started: AwareDatetime
    ended: AwareDatetime | None = Field(default=None, description="None while it runs, and of one that was killed")
    stopped: str = Field(default="", description="why it ended early; empty if it did not")

    def save(self, folder: Path) -> None:
        """Write the file into a folder that is made for it; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / self.FILE, self.model_dump_json(indent=1))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load a folder's record. Raises OSError, or ValueError if the file holds something else."""
        return cls.model_validate_json(read_plain(folder / cls.FILE))
