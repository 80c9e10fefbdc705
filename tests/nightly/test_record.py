"""The nightly's record: what pytest's files say of a test over all rounds, and the page that is made of it."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import pytest

from tests.nightly import page
from tests.nightly.junit import Outcome, read, write
from tests.nightly.record import Round, begin, durations, following, record
from tests.nightly.suites import ROOT, SUITES
from tests.support.quarantine import Quarantined

CASE = '<testcase classname="tests.cli.test_x{owner}" name="{name}" file="tests/cli/test_x.py">{inner}</testcase>'
FAILURE = '<failure message="AssertionError: assert 1 == 2&#10;more">the traceback</failure>'
SKIPPED = '<skipped type="pytest.skip" message="no GPU" />'


def case(name: str, inner: str = "", owner: str = "") -> str:
    return CASE.format(name=name, inner=inner, owner=owner)


def written(round_: Round, suite: str, *cases: str, seconds: float = 60.0) -> None:
    """Leave a suite in a round's folder as pytest and the nightly do."""
    round_.junit(suite).write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    write(round_.whole(suite), suite, seconds, [Outcome(f"suite {suite} ends by itself", True)])


def test_a_files_tests_have_the_ids_by_which_pytest_plays_them(tmp_path: Path) -> None:
    written(
        first := following(tmp_path, 1, 1),
        "fast",
        case("test_a[b c]"),
        case("test_in", FAILURE, owner=".TestThat"),
        case("test_s", SKIPPED),
        '<testcase classname="" name="tests.cli.test_y"><error message="collection failure">no</error></testcase>',
    )
    assert read(first.junit("fast")) == [
        Outcome("tests/cli/test_x.py::test_a[b c]", True),
        Outcome("tests/cli/test_x.py::TestThat::test_in", False, "AssertionError: assert 1 == 2"),
        Outcome("tests/cli/test_x.py::test_s", None),
        Outcome("tests.cli.test_y", False, "collection failure"),
    ]


@pytest.mark.parametrize("order", [("", FAILURE), (FAILURE, "")])
def test_a_test_that_passed_and_failed_at_its_teardown_failed(order: tuple[str, str], tmp_path: Path) -> None:
    written(first := following(tmp_path, 1, 1), "fast", *(case("test_a", inner) for inner in order))
    assert [outcome.passed for outcome in read(first.junit("fast"))] == [False]


def test_passes_are_counted_over_all_rounds_and_the_worst_is_first(tmp_path: Path) -> None:
    for number in (1, 2, 3, 4):
        fails_then = FAILURE if number in (2, 3) else ""
        cases = (case("test_good"), case("test_half", fails_then), case("test_never", SKIPPED))
        written(following(tmp_path, number, 4), "fast", *cases, case("test_bad", FAILURE if number > 1 else SKIPPED))
    found = record(tmp_path, [Quarantined("tests/cli/test_x.py::test_half", date(2026, 11, 26), "a clock")])
    assert list(found.rounds) == [1, 2, 3, 4]
    assert [(test.id.rpartition("::")[2], test.passed, test.failed, test.skipped) for test in found.tests] == [
        ("test_bad", 0, 3, 1),
        ("test_half", 2, 2, 0),
        ("suite fast ends by itself", 4, 0, 0),
        ("test_good", 4, 0, 0),
    ]
    assert (found.tests[1].failed_in, found.tests[1].why) == (3, "AssertionError: assert 1 == 2")
    assert [test.is_quarantined for test in found.below] == [False, True]
    assert found.only_skipped == 1


def test_one_failure_in_two_hundred_rounds_is_not_below_the_bound_and_one_in_199_is(tmp_path: Path) -> None:
    for number in range(1, 201):
        written(following(tmp_path, number, 200), "fast", case("test_a", FAILURE if number == 1 else ""))
        if number == 199:
            assert [test.passed for test in record(tmp_path, ()).below] == [198]
    assert record(tmp_path, ()).below == []


def test_a_suite_that_was_killed_in_its_middle_does_not_count(tmp_path: Path) -> None:
    first = following(tmp_path, 1, 1)
    first.junit("fast").write_text(f"<testsuite>{case('test_a')}</testsuite>")
    assert not first.was_played("fast")
    assert record(tmp_path, ()).tests == []


def test_a_file_that_was_cut_off_is_a_failure(tmp_path: Path) -> None:
    written(first := following(tmp_path, 1, 1), "fast", case("test_a"))
    first.junit("fast").write_text("<testsuites><testsu")
    assert record(tmp_path, ()).below[0].id == "fast.xml: can be read"


def test_a_round_that_lacks_a_suite_is_gone_on_with(tmp_path: Path) -> None:
    first = begin(tmp_path, ["fast", "lab"], count=2)
    written(first, "fast", seconds=100)
    assert begin(tmp_path, ["fast", "lab"], count=7) == first
    assert (first.number, first.last) == (1, 2)
    written(first, "lab")
    second = begin(tmp_path, ["fast", "lab"], count=3)
    assert (second.number, second.last) == (2, 4)
    written(second, "fast", seconds=200)
    assert durations(tmp_path) == {"fast": 150, "lab": 60}


def test_nothing_in_the_page_is_markup_of_a_test(tmp_path: Path) -> None:
    hostile = "&lt;script&gt;alert(1)&lt;/script&gt;"
    failure = f'<failure message="{hostile}">no</failure>'
    written(following(tmp_path, 1, 1), "fast", case(f"test_a[{hostile}]", failure), case("test_b"))
    page.write(tmp_path, record(tmp_path, ()), {"gpu": "<b>no GPU</b>"})
    html = (tmp_path / page.PAGE).read_text(encoding="utf-8")
    assert html.count(hostile) == 2
    assert "<script" not in html
    assert "<b>" not in html
    content = json.loads((tmp_path / page.JSON).read_text(encoding="utf-8"))
    assert content["not_played"] == {"gpu": "<b>no GPU</b>"}
    assert content["tests"][0] == {
        "test": "tests/cli/test_x.py::test_a[<script>alert(1)</script>]",
        "passed": 0,
        "failed": 1,
        "skipped": 0,
        "percent": 0.0,
        "last_failure": "<script>alert(1)</script>",
        "last_failed_in_round": 1,
        "quarantined": False,
    }


def test_a_programs_last_words_may_be_anything(tmp_path: Path) -> None:
    write(tmp_path / "x.suite.xml", "x", 1, [Outcome("suite x ends by itself", False, "\x00<\x1b[1m>\ud800")])
    assert [outcome.passed for outcome in read(tmp_path / "x.suite.xml")] == [False]


def test_every_suite_is_a_target_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    assert {suite.target for suite in SUITES} <= targets
