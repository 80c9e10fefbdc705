"""Links of our pages lead to files and headings, and the paths that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for folder in (".", "benchmarks", "deploy", "docs", "docs/runbooks", "packages/*", "reports")
    for page in ROOT.glob(f"{folder}/*.md")
)
OF_US = [page for page in PAGES if page.name != "sources.md"]
"""Pages without paths of other people's repositories."""
PACKAGES = [path.parent.name for path in ROOT.glob("packages/*/*/__init__.py")]
FOLDERS = [
    "benchmarks",
    "deploy",
    "examples",
    "flows",
    "gameday",
    "lab",
    "packages",
    "plans",
    "scripts",
    "tasks",
    *PACKAGES,
]
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`")
EXAMPLES = {"gameday/v1", "plans/x.yaml"}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in found}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    text = re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, heading = target.partition("#")
        if "://" in target:
            continue
        found = page.parent / path if path else page
        assert found.exists(), target
        assert not heading or found.suffix != ".md" or heading in headings(found), target


@pytest.mark.parametrize("page", OF_US, ids=name)
def test_the_paths_of_ours_that_a_page_names_are_there(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8"))) - EXAMPLES
    assert [path for path in named if not (ROOT / path).exists() and not (page.parent / path).exists()] == []
