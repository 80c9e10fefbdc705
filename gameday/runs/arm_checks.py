"""The checks that a plan's arms name under `may_break` and `must_break`; unknown ones are refused before the run."""

from __future__ import annotations

import difflib

from gameday.checks.run import run_checks
from gameday.documents.problems import dotted
from gameday.documents.source import parse
from gameday.errors import DocumentError, DocumentProblem
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.text import shown


def known_checks(plan: Plan) -> tuple[str, ...]:
    """Return the names of the checks that judge a run of this plan, found by judging an empty history."""
    return tuple(sorted({verdict.check for verdict in run_checks(plan, History(()), Frames())}))


def refuse_unknown_checks(loaded: LoadedPlan) -> None:
    """Refuse a plan with an arm that names a check that does not judge the arm's runs.

    Args:
        loaded: The plan, with its arms, completed by its detector's profile.

    Raises:
        DocumentError: An arm names another check.
    """
    problems = []
    for one in loaded.arms:
        known = known_checks(one.plan)
        for key in ("may_break", "must_break"):
            for number, check in enumerate(getattr(one.arm, key)):
                if check not in known:
                    at = (*one.at[:-1], key, number)
                    problems.append(_unknown(loaded, at, check, known))
    if problems:
        raise DocumentError(problems)


def _unknown(loaded: LoadedPlan, at: tuple[str | int, ...], check: str, known: tuple[str, ...]) -> DocumentProblem:
    file = str(loaded.file)
    line, column = parse(loaded.source.decode("utf-8-sig"), file).place(at).value
    near = difflib.get_close_matches(check, known, n=1, cutoff=0.6)
    fix = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known)}"
    return DocumentProblem(file, line, column, dotted(at), shown(check), "no check of this arm's runs", fix)
