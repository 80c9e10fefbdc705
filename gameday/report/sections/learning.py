"""The lessons that people took from the run, in their own words."""

from __future__ import annotations

from pydantic import BaseModel

from gameday.report.run_folder import RunFolder

ORDER = 107
TITLE = "Learning"
GROUP = "People and earlier runs"


class Learned(BaseModel):
    title: str
    items: tuple[str, ...]


class Learning(BaseModel):
    """`parts` has every heading, even those under which nobody wrote anything."""

    problem: str
    said: bool
    parts: tuple[Learned, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.said else "nobody has written down yet what went well, what went wrong and what surprised"


def build(run: RunFolder) -> Learning:
    notes = run.notes
    parts = (
        Learned(title="What went well", items=notes.went_well),
        Learned(title="What went wrong", items=notes.went_wrong),
        Learned(title="Where we got lucky", items=notes.lucky),
        Learned(title="Surprises", items=notes.surprises),
        Learned(title="Contributors", items=notes.contributors),
        Learned(title="Mitigators", items=notes.mitigators),
        Learned(title="Difficulties", items=notes.difficulties),
    )
    return Learning(problem=run.notes_problem, said=any(part.items for part in parts), parts=parts)
