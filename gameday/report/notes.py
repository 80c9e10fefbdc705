"""People's notes on a run or an incident: notes.yaml beside its report, read at every rendering.

The file is left as a form to fill in, and is never overwritten. Game-days and post-mortems share one model, so that
the digest and the next run of a plan read the actions of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from gameday.documents.explain import explain
from gameday.documents.fields import DocumentModel
from gameday.documents.read import decode
from gameday.documents.source import MAX_BYTES, parse
from gameday.errors import DocumentError, NotesError
from gameday.plain_file import open_plain, write_whole

NOTES_FILE = "notes.yaml"

FORM = """\
# What only people know. Fill in what there is, then render again: {command}
# Every key may stay empty; docs/report.md explains them. Times have date and zone: 2026-03-03T09:12:00Z
# A list is written as:   went_well: ["first", "second"]   or one `- item` a line.
summary: ""          # what happened, in two sentences, for somebody who was not there
impact: ""           # in numbers: GPU hours, jobs, people
authors: []
people:              # a name, or a list of names
  owner:
  coordinator:
  observer:
  reporter:
acknowledged:        # {at: 2026-03-03T09:12:00Z, who: ada}: somebody took the alert
first_action:        # {at: 2026-03-03T09:14:00Z, who: ada, what: cordoned the rack}
runbook:
  link: ""
  steps: []
  # - {step: "read dmesg", followed: true}
  # - {step: "drain the node", followed: false, why: "the taint had done it"}
timeline: []         # - {at: 2026-03-03T09:12:00Z, who: ada, what: paged}
went_well: []
went_wrong: []
lucky: []            # where we got lucky
surprises: []        # what surprised us, and why
contributors: []     # what had to come together for this to happen
mitigators: []       # what kept it from being worse
difficulties: []     # what made it hard to see, to understand or to mend
actions: []          # open ones come back in the plan's next reports, until they are done or dropped
# - id: A1
#   what: Page on Xid 95 within a minute
#   type: detect       # prevent, detect, mitigate or process
#   severity: high     # high, medium or low
#   owner: ada
#   ticket: OPS-123    # or its address
#   due: 2026-04-01
#   retest: 2026-04-15 # when a game-day shows that it helped
#   state: open        # open, done or dropped
"""
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}.*([Zz]|[+-]\d{2}:?\d{2})")


def _nothing(value: object) -> object:
    """Read a key without a value as an empty one."""
    return () if value is None else value


def _names(value: object) -> object:
    return (value,) if isinstance(value, str) else _nothing(value)


def _moment(value: object) -> object:
    """Refuse a number: pydantic would take it for seconds since 1970, which nobody means here."""
    if (isinstance(value, str) and not _MOMENT.fullmatch(value)) or isinstance(value, int | float):
        raise PydanticCustomError("moment", "a time is written with date and zone, like 2026-03-03T09:12:00Z")
    return value


def _day(value: object) -> object:
    if isinstance(value, int | float):
        raise PydanticCustomError("day", "a day is written like 2026-04-01")
    return value


_Texts = Annotated[tuple[str, ...], BeforeValidator(_nothing)]
_Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
_Moment = Annotated[AwareDatetime, BeforeValidator(_moment)]
_Day = Annotated[date, BeforeValidator(_day)]


class ActionType(StrEnum):
    PREVENT = "prevent"
    DETECT = "detect"
    MITIGATE = "mitigate"
    PROCESS = "process"


class ActionSeverity(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class ActionState(StrEnum):
    OPEN = "open"
    DONE = "done"
    DROPPED = "dropped"


class ActionItem(DocumentModel):
    """Something to do."""

    id: str | None = None
    """Name by which later notes refer to the same action; without one, its text is its name."""
    what: str = Field(min_length=1)
    type: ActionType | None = None
    severity: ActionSeverity | None = None
    owner: str | None = None
    ticket: str | None = None
    due: _Day | None = None
    retest: _Day | None = None
    """Day of the game-day that shows that it helped."""
    state: ActionState = ActionState.OPEN

    @property
    def key(self) -> str:
        return self.id or self.what

    @property
    def is_open(self) -> bool:
        return self.state is ActionState.OPEN


class CarriedAction(DocumentModel):
    """An action that an earlier run of the plan left open."""

    run_id: str
    action: ActionItem


class HumanEvent(DocumentModel):
    """Something that a person did or saw."""

    at: _Moment
    who: str = ""
    what: str


class Acknowledged(DocumentModel):
    """The moment at which somebody took the alert."""

    at: _Moment
    who: str = ""


class People(DocumentModel):
    """The people who had a part in it."""

    owner: _Names = ()
    coordinator: _Names = ()
    observer: _Names = ()
    reporter: _Names = ()


class RunbookStep(DocumentModel):
    step: str = Field(min_length=1)
    followed: bool | None = None
    """True if the step was followed; None if that was not noted."""
    why: str = ""


class Runbook(DocumentModel):
    """The runbook that was in use, and which of its steps were."""

    link: str | None = None
    steps: Annotated[tuple[RunbookStep, ...], BeforeValidator(_nothing)] = ()

    @property
    def fidelity(self) -> float | None:
        """Share of the judged steps that were followed, 0 to 1; None if none was judged."""
        judged = [step.followed for step in self.steps if step.followed is not None]
        return sum(judged) / len(judged) if judged else None


class Notes(DocumentModel):
    """Empty if nobody wrote anything yet."""

    summary: str | None = None
    impact: str | None = None
    authors: _Names = ()
    people: Annotated[People, BeforeValidator(lambda value: People() if value is None else value)] = People()
    acknowledged: Acknowledged | None = None
    first_action: HumanEvent | None = None
    runbook: Annotated[Runbook, BeforeValidator(lambda value: Runbook() if value is None else value)] = Runbook()
    timeline: Annotated[tuple[HumanEvent, ...], BeforeValidator(_nothing)] = ()
    went_well: _Texts = ()
    went_wrong: _Texts = ()
    lucky: _Texts = ()
    surprises: _Texts = ()
    contributors: _Texts = ()
    mitigators: _Texts = ()
    difficulties: _Texts = ()
    actions: Annotated[tuple[ActionItem, ...], BeforeValidator(_nothing)] = ()

    @property
    def open_actions(self) -> tuple[ActionItem, ...]:
        return tuple(action for action in self.actions if action.is_open)

    def moments(self) -> Iterator[HumanEvent]:
        """Yield everything that people dated, for the timeline."""
        if self.acknowledged:
            yield HumanEvent(at=self.acknowledged.at, who=self.acknowledged.who, what="Took the alert")
        if self.first_action:
            yield self.first_action
        yield from self.timeline


def write_form(folder: Path, command: str) -> None:
    """Put the empty form into the folder, unless it has notes already. Raises OSError.

    `command` renders the folder's report again; the folder's path is not part of it.
    """
    path = folder / NOTES_FILE
    if not path.exists():
        write_whole(path, FORM.replace("{command}", f"{command} {folder}"))


def is_blank_form(folder: Path) -> bool:
    """Return True if the folder's notes are the untouched form, or absent. Never raises.

    A comment is a person's word, too; an unreadable file, or another version's form, may contain one.
    """
    path = folder / NOTES_FILE
    try:
        return not path.exists() or _untouched(_text(path))
    except (OSError, DocumentError):
        return False


def _text(path: Path) -> str:
    with open_plain(path) as file:
        return decode(file.read(MAX_BYTES + 1), str(path))


def _untouched(text: str) -> bool:
    return text.partition("\n")[2] == FORM.partition("\n")[2]


def _says_nothing(text: str) -> bool:
    """Return True if the text is the untouched form, or only comments.

    It need not be parsed then: a report beside a hundred runs would parse a hundred forms.
    """
    return _untouched(text) or all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())


def read_notes(folder: Path) -> Notes:
    """Return the folder's notes, or empty ones. Raises NotesError, with the line of the problem."""
    path = folder / NOTES_FILE
    try:
        if not path.exists():
            return Notes()
        text = _text(path)
        if _says_nothing(text):
            return Notes()
        source = parse(text, str(path))
        try:
            return Notes.model_validate(source.data)
        except ValidationError as error:
            raise DocumentError(explain(error, source, str(path), Notes)) from None
    except OSError as error:  # a link, or a folder that may not be looked into
        raise NotesError(f"{path}: cannot be read ({error.strerror})") from None
    except DocumentError as error:
        raise NotesError(str(error)) from None
