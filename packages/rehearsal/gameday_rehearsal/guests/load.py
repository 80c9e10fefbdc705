"""Find and read guests: a file, or a command line."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gameday.detectors.load import load_detector
from gameday.detectors.models import DetectorProfile
from gameday.documents.explain import explain
from gameday.documents.read import decode, read
from gameday.documents.source import Source, parse
from gameday.errors import DocumentError, DocumentProblem, ProgramMissingError
from gameday.text import printable, shown
from gameday_rehearsal.guests.models import Guest
from gameday_rehearsal.guests.placeholders import Placeholder, fill, placeholders

KIND = "Guest"
"""The `kind:` that distinguishes a guest's file from a plan's."""
_UNFIT = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class LoadedGuest:
    """A guest with what follows from its file's place."""

    guest: Guest
    folder: Path
    """Absolute path of its file's folder, in which its processes run; the current folder for a command line."""
    profile: DetectorProfile | None
    """The guest's expected answer to each fault; None if nobody has written it down."""
    profile_file: Path | None
    """The profile's own file, if the guest names it by a path."""


def load_guest(value: str) -> LoadedGuest:
    """Read the guest of an option's value: a path ending in .yaml or .yml is a guest's file, anything else a command.

    Raises:
        DocumentError: The file, or the profile that it names, cannot be used, or there is no command.
        ProgramMissingError: There is no such program.
    """
    path = Path(value)
    loaded = read_guest(path) if path.suffix in (".yaml", ".yml") else _of_command(value)
    _check_program(loaded)
    return loaded


def read_guest(path: Path) -> LoadedGuest:
    """Read and validate one file. Raises DocumentError."""
    return parse_guest(parse(decode(read(path), str(path)), str(path)), path)


def checked(parsed: Source, path: Path) -> str:
    """Return the name of the guest in a parsed document. Raises DocumentError."""
    return parse_guest(parsed, path).guest.name


def parse_guest(parsed: Source, path: Path) -> LoadedGuest:
    """Return the guest in a parsed document. Raises DocumentError, also about its detector profile."""
    try:
        guest = Guest.model_validate(parsed.data)
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, str(path), Guest)) from None
    profile, file = None, None
    if guest.detector is not None:
        file = path.parent / guest.detector if guest.detector.endswith((".yaml", ".yml")) else None
        try:
            profile = load_detector(str(file or guest.detector))
        except DocumentError as error:
            raise DocumentError(_at_detector(problem, parsed, path) for problem in error.problems) from None
    return LoadedGuest(guest, path.parent.resolve(), profile, file.resolve() if file else None)


def _at_detector(problem: DocumentProblem, parsed: Source, path: Path) -> DocumentProblem:
    """Return a problem in the profile's file as it is, and one about the profile's name at the line that names it."""
    if problem.line is not None:
        return problem
    line, column = parsed.place(("detector",)).value
    value = shown(parsed.data["detector"])
    return DocumentProblem(str(path), line, column, "detector", value, problem.message, problem.suggestion)


def _of_command(value: str) -> LoadedGuest:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise DocumentError([_of_option(value, f"is not a command: {error}")]) from None
    if not words:
        raise DocumentError([_of_option(value, "is not a command: it is empty")])
    name = _UNFIT.sub("-", Path(words[0]).name.lower())[:63].strip("-") or "guest"
    document = {"apiVersion": "gameday/v1", "kind": KIND, "name": name, "command": words}
    try:
        guest = Guest.model_validate(document)
    except ValidationError as error:
        messages = [problem["msg"] for problem in error.errors(include_url=False)]
        raise DocumentError([_of_option(value, message) for message in messages]) from None
    return LoadedGuest(guest, Path.cwd(), None, None)


def _of_option(value: str, message: str) -> DocumentProblem:
    return DocumentProblem("--guest", None, None, "", shown(value), message)


def _check_program(loaded: LoadedGuest) -> None:
    """Raise ProgramMissingError if the first word names no program. A word that is known only later is not checked."""
    first, search = loaded.guest.command[0], loaded.guest.environment.get("PATH", "")
    if {*placeholders(first), *placeholders(search)} - {Placeholder.FOLDER}:
        return
    program, path = (fill(text, {Placeholder.FOLDER: str(loaded.folder)}) for text in (first, search))
    if shutil.which(str(loaded.folder / program) if "/" in program else program, path=path or None) is None:
        raise ProgramMissingError(
            f"guest {loaded.guest.name}: command not found: {printable(program)}; "
            "build or install it, and name it by its path or put its folder on PATH"
        )
