"""Find and read the corpus: a file for each case."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import ValidationError

from gameday.corpus.models import Case
from gameday.documents.explain import explain
from gameday.documents.problems import dotted
from gameday.documents.read import decode, read
from gameday.documents.source import Source, parse
from gameday.errors import DocumentError, DocumentProblem

KIND = "DetectorCase"
"""The `kind:` that distinguishes a case's file from a plan's."""
CASES = Path(__file__).parent / "cases"


@cache
def shipped_cases() -> dict[str, Case]:
    """Return the shipped cases by name, in the order of the names. Raises what `read_case` raises."""
    return {path.stem: read_case(path) for path in sorted(CASES.glob("*.yaml"))}


@cache
def cases_by_plan() -> dict[str, Case]:
    """Return the shipped cases by the name of the plan that plays or may play them. Raises what `read_case` raises."""
    return {case.plan or case.name: case for case in shipped_cases().values()}


def read_case(path: Path) -> Case:
    """Read and check one file.

    Raises:
        DocumentError: It is no case; each problem has its line.
    """
    return parse_case(parse(decode(read(path), str(path)), str(path)), str(path))


def parse_case(parsed: Source, file: str) -> Case:
    """Return the case in a parsed file; `file` is only named in problems. Raises DocumentError."""
    try:
        case = Case.model_validate(parsed.data)
    except ValidationError as error:
        raise DocumentError(explain(error, parsed, file, Case)) from None
    if Path(file).stem != case.name:
        line, column = parsed.place(("name",)).value
        message, hint = f"the file is called {Path(file).name}", "rename one"
        raise DocumentError([DocumentProblem(file, line, column, dotted(("name",)), case.name, message, hint)])
    return case
