"""The sources that code, plans and pages cite can be opened by their readers: sections of docs/sources.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
TEXT = {".css", ".csv", ".go", ".html", ".js", ".json", ".jsonl", ".md", ".mod", ".py", ".toml", ".yaml"}
# Notes that were never part of the repository, in every way that they have been cited.
NOT_HERE = re.compile(r"(?<![\w./-])[r]esearch/|gpu-[h]ealth\.md|\b[r]esearch,? (?:\d|\w+\.md)|\b[D]ESIGN\b")
CITED = re.compile(r"docs/sources\.md, (.{0,80})")
LINKED = re.compile(r"\bsources\.md#([\w-]+)")


def _files() -> Iterator[Path]:
    """Every text file of ours: no hidden folder, and of the runs the sample only."""
    yield from (path for path in ROOT.iterdir() if path.suffix in TEXT or path.name in {"Makefile", "Dockerfile"})
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    for folder in [path for path in folders if path.name != "reports"] + [ROOT / "reports" / "sample"]:
        yield from (path for path in folder.rglob("*") if path.suffix in TEXT)


@cache
def _texts() -> dict[str, str]:
    """By path, each with its lines joined: a citation may go on in the next line of a comment, or of JSON's text."""
    comment = re.compile(r"(?:\n|\\n)[ \t]*(?:#+[ \t]*|//[ \t]*)?")
    return {str(path.relative_to(ROOT)): comment.sub(" ", path.read_text(encoding="utf-8")) for path in _files()}


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _heading(cited: str) -> str | None:
    """The heading that a citation's text begins with."""
    return next((it for it in HEADINGS if re.match(re.escape(it) + r"(?![\w-])", cited)), None)


def test_nothing_cites_notes_that_are_not_in_the_repository() -> None:
    assert {path: found.group() for path, text in _texts().items() if (found := NOT_HERE.search(text))} == {}


def test_every_citation_names_a_heading_of_the_sources() -> None:
    cited = [(path, words) for path, text in _texts().items() for words in CITED.findall(text)]
    assert cited
    assert [one for one in cited if _heading(one[1]) is None] == []


def test_every_link_into_the_sources_has_its_anchor() -> None:
    anchors = {_anchor(it) for it in HEADINGS}
    linked = {(path, anchor) for path, text in _texts().items() for anchor in LINKED.findall(text)}
    own = {("docs/sources.md", anchor) for anchor in re.findall(r"\]\(#([\w-]+)\)", PAGE)}
    assert {one for one in linked | own if one[1] not in anchors} == set()


def test_the_sources_hold_nothing_that_nobody_cites() -> None:
    cited = {_heading(words) for text in _texts().values() for words in CITED.findall(text)}
    assert [it for it in HEADINGS if it not in cited] == []
