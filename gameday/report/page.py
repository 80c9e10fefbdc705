"""The self-contained page: the templates' environment, and a policy under which only our own script can run.

Every page of ours (run report, comparison, digest, index, post-mortem) extends `templates/report/base.html` and is
rendered through `environment()`, so that escaping, style, script and policy are decided only here.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from gameday.exit_codes import ExitCode
from gameday.report.formatting import (
    change,
    clock,
    duration,
    limit,
    moment,
    number,
    offset,
    sentence,
    signed,
    size,
)
from gameday.report.safe_text import clip, linked, verbatim
from gameday.shipped import shipped

TEMPLATES = shipped("templates")
_ACCENTS: dict[int, str] = {
    ExitCode.PASSED: "passed",
    ExitCode.FAILED: "failed",
    ExitCode.ABORTED: "aborted",
    ExitCode.DIRTY: "failed",
    ExitCode.REFUSED: "refused",
}


def accent(exit_code: int) -> str:
    """Return the class of a page by its exit code, which decides its colour."""
    return _ACCENTS.get(exit_code, "unknown")


_FILTERS = (accent, duration, limit, sentence, offset, change, clock, moment, number, signed, size, verbatim, linked)


@cache  # a template is compiled once in a process: that takes longer than to fill it
def environment(*folders: str) -> Environment:
    """Return an autoescaping environment with the report's filters.

    It looks for templates in `templates/<folder>` first, then in the report's. Its globals `style`, `script` and
    `policy` go into the head by base.html: nothing is fetched, and only our script may run.
    """
    made = Environment(
        loader=FileSystemLoader([TEMPLATES / folder for folder in (*folders, "report")]),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=clip,
    )
    made.filters.update({one.__name__: one for one in _FILTERS})
    script = (TEMPLATES / "report" / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.globals |= {
        "style": Markup((TEMPLATES / "report" / "style.css").read_text(encoding="utf-8")),  # noqa: S704 our own file
        "script": Markup(script),  # noqa: S704 our own file
        "policy": (
            f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
            "base-uri 'none'; form-action 'none'"
        ),
    }
    return made
