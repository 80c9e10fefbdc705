"""The pages on faults and packages of one's own show the examples as they are, and their links lead somewhere."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from gameday.plugins import Group

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples/acme-gameday"
PROJECTS = (EXAMPLE / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml")))
"""The project files of the packages that the page shows, the example's first."""


@pytest.mark.parametrize("file", ["acme_gameday/devkmsg_off.py", "tests/test_devkmsg_off.py", "devkmsg-off.yaml"])
def test_the_tutorial_shows_the_files_as_they_are(file: str) -> None:
    shown = textwrap.indent((EXAMPLE / file).read_text(encoding="utf-8"), "    ")
    assert shown in (ROOT / "docs/writing-a-fault.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("group", Group)
def test_the_page_on_extending_has_the_fragment_of_each_group_and_what_a_broken_one_does(group: Group) -> None:
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    projects = [tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in PROJECTS]
    points = [project["entry-points"][group] for project in projects if group in project.get("entry-points", {})]
    ((name, module),) = points[0].items()
    assert f'    [project.entry-points."{group}"]\n    {name} = "{module}"\n' in page
    assert re.search(rf"^\| `{group}` \|.*\|.*\|.*\|$", page, re.MULTILINE)


def test_the_page_on_extending_shows_the_example_flow_as_it_is() -> None:
    source = (ROOT / "examples/inject_await_alert.py").read_text(encoding="utf-8")
    steps = source[source.index("    with (") : source.index("\n\n\nif __name__")]
    assert steps in (ROOT / "docs/extending.md").read_text(encoding="utf-8")
