"""Runs of a package that the reader has not installed: what they have of it is named, and never judged or lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gameday.history.frames import Frames
from gameday.report.run_folder import judge_run_folder
from gameday_control_plane.events import FlowControlRead, SeatsRead
from gameday_control_plane.expect.control_plane import ExpectedApiCanary
from gameday_control_plane.settings import FlowControl
from tests.report.page import Page
from tests.report.run_builder import PLAN, Timed, passing, write

SEATS = [Timed(8.5, SeatsRead(phase="before", seats={"a": 2})), Timed(12.0, SeatsRead(phase="after", seats={"a": 2}))]
READ = [Timed(22.0, FlowControlRead(changes=()))]
CANARY = PLAN.expect.model_copy(update={"api_canary": ExpectedApiCanary()})
LIMITED = PLAN.settings.model_copy(update={"flow_control": FlowControl()})
INSTALL = "install the package with which the run was made, and render the report again"
RUNS = ("of-the-core", "events", "settings", "expectation")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reports = tmp_path_factory.mktemp("reports")
    write(reports / "of-the-core", passing(), Frames())
    write(reports / "events", [*passing(), *SEATS, *READ], Frames())
    write(reports / "settings", passing(), Frames(), PLAN.model_copy(update={"settings": LIMITED}))
    plan = PLAN.model_copy(update={"settings": LIMITED, "expect": CANARY})
    write(reports / "expectation", [*passing(), *SEATS, *READ], Frames(), plan)
    return reports


@pytest.fixture(scope="module")
def read(folders: Path) -> dict[str, Any]:
    """The report of each folder, as somebody with the core alone reads it."""
    argv = [sys.executable, "-m", "tests.report.core_alone", *(str(folders / name) for name in RUNS)]
    output = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return dict(zip(RUNS, map(json.loads, output.splitlines()), strict=True))


def test_a_run_of_the_core_that_was_made_beside_the_package_is_judged_as_ever(read: dict[str, Any]) -> None:
    assert (read["of-the-core"]["outcome"], read["of-the-core"]["problems"]) == ("passed", [])


def test_events_are_named_and_the_rest_is_judged(read: dict[str, Any]) -> None:
    assert read["events"]["outcome"] == "passed"
    assert read["events"]["problems"] == [
        "history.jsonl: 3 events of flow_control_read, seats_read are of a package that is not installed here; they "
        "are kept, and not judged."
    ]


def test_a_setting_is_named_and_the_rest_is_judged(read: dict[str, Any]) -> None:
    assert read["settings"]["outcome"] == "passed"
    assert read["settings"]["problems"] == [
        f"plan.json: no package that is installed here defines settings.flow_control; {INSTALL}."
    ]


def test_an_expectation_that_nobody_judges_leaves_the_run_unknown(read: dict[str, Any], folders: Path) -> None:
    assert read["expectation"]["outcome"] == "unknown"
    verdicts = read["expectation"]["verdicts"]
    assert verdicts.pop("api-canary") == [
        "unknown", f"no package that is installed here defines expect.api_canary; {INSTALL}"
    ]  # fmt: skip
    assert verdicts == read["of-the-core"]["verdicts"]
    problem = f"defines expect.api_canary, settings.flow_control; {INSTALL}."
    assert [one for one in read["expectation"]["problems"] if one.endswith(problem)]
    page = Page((folders / "expectation" / "report.html").read_text())
    assert problem in page.text("problems")
    assert "could not be drawn" not in page.text()


def test_with_the_package_it_is_judged(folders: Path, read: dict[str, Any]) -> None:
    run = judge_run_folder(folders / "expectation")
    assert run.problems == ()
    assert "api-canary-latency" in {one.check for one in run.verdicts}


@pytest.mark.parametrize(
    ("key", "value", "given"),
    [("x", None, False), ("x", [], False), ("x", False, False), ("x", 0, True), ("x", {}, True), ("\x1b[2J", 1, True)],
)
def test_a_key_that_nobody_knows_is_unknown_where_the_plan_gives_it(
    key: str, value: object, given: bool, tmp_path: Path
) -> None:
    plan = json.loads(PLAN.model_dump_json())
    plan["expect"][key] = value
    folder = write(tmp_path / "run", passing(), Frames(), plan=None)
    (folder / "plan.json").write_text(json.dumps(plan))
    run = judge_run_folder(folder)
    assert run.result.outcome == ("unknown" if given else "passed")
    assert len(run.problems) == given
    assert "\x1b" not in f"{run.problems}{run.verdicts}"


@pytest.mark.parametrize(
    "plan", [b"[" * 100_000, b"[]", b"null", b'{"expect": []}', b'{"expect": {"x": 1}, "settings": 3}', b'{"expect']
)
def test_what_is_no_plan_stays_damaged(plan: bytes, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing(), Frames(), plan=None)
    (folder / "plan.json").write_bytes(plan)
    run = judge_run_folder(folder)
    assert run.plan is None
    assert [one.check for one in run.verdicts] == ["plan"]
    (problem,) = run.problems
    assert problem.startswith("plan.json is damaged (")
