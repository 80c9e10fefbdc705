"""`gameday doctor`: a table that can be read at any width, with what is to be mended last."""

from __future__ import annotations

import io

import pytest

from gameday.cli.console import GameDayConsole
from gameday.cli.doctor import _print
from gameday.guard.doctor.prerequisite import Prerequisite

FIX = "scrape the node-health controller: kubectl apply -k deploy/node-health/podmonitor"
FOUND = [
    ("p", Prerequisite("prometheus", "rule GPUFellOffTheBus", False, "it can never fire: no series", FIX)),
    ("p", Prerequisite("rights", "get nodes", True, "granted", "nothing to do")),
    ("p", Prerequisite("rights", "list pods", True, "granted")),
    ("p", Prerequisite("agent", "image on gpu-1", None, "the node does not list it", "--send-pod looks")),
]


def printed(found: list[tuple[str, Prerequisite]], width: int) -> list[str]:
    out = io.StringIO()
    _print(GameDayConsole(file=out, width=width, highlight=False, markup=False), found, several=False)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 110])
def test_a_fix_stands_below_its_check_and_what_failed_stands_last(width: int) -> None:
    lines = printed(FOUND, width)
    assert max(map(len, lines)) <= width
    rows = [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in ("ok", "unknown", "failed")]
    assert rows == ["ok", "unknown", "failed"]
    at = next(at for at, line in enumerate(lines) if line.lstrip().startswith("failed"))
    assert lines[at].endswith("rule GPUFellOffTheBus: it can never fire: no series")
    assert lines[at + 1].strip().startswith("fix: scrape the node-health controller")
    assert "nothing to do" not in "".join(lines)
    assert sum("rights" in line for line in lines) == 1, "granted rights are one short row"


@pytest.mark.parametrize(("left", "code"), [(FOUND, 5), (FOUND[1:], 2), (FOUND[1:3], 0)])
def test_the_last_line_says_what_the_exit_code_means(left: list[tuple[str, Prerequisite]], code: int) -> None:
    assert f"(exit code {code})" in printed(left, 110)[-1]
