"""Markdown for a wiki, in which no value can become markup."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader

from gameday.report.formatting import clock_text, duration, moment_text, number, offset, sentence, size
from gameday.report.page import TEMPLATES
from gameday.report.safe_text import clip

# What CommonMark, GitHub's tables and raw HTML could read as markup within a line (CommonMark 0.31, 2.4 and 6).
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~$&!])")


def escaped(text: str) -> str:
    """Return the text as one line, with every mark of Markdown or HTML escaped."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split())).replace(r"\<", "&lt;").replace(r"\>", "&gt;")


def markdown(folder: str, template: str, **values: object) -> str:
    """Render `templates/<folder>/<template>` with every value escaped."""
    return _environment(folder).get_template(template).render(**values)


@cache
def _environment(folder: str) -> Environment:
    made = Environment(  # noqa: S701 - Markdown: `finalize` escapes every value, for HTML as well
        loader=FileSystemLoader(TEMPLATES / folder), trim_blocks=True, lstrip_blocks=True, finalize=_value
    )
    made.filters.update({one.__name__: one for one in (duration, number, offset, sentence, size)})
    made.filters |= {"moment": moment_text, "clock": clock_text}
    return made


def _value(value: Any) -> Any:
    return escaped(str(clip(value)))
