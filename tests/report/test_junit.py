from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from gameday.history.events import RunStarted
from gameday.report.junit import junit
from gameday.report.run_folder import load_run_folder
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import VARIANTS, ended, passing, replacing, write


def suite(folder: Path) -> ElementTree.Element:
    found = ElementTree.fromstring(junit(load_run_folder(folder))).find("testsuite")
    assert found is not None
    return found


def test_one_case_per_verdict_and_one_for_cleanliness(tmp_path: Path) -> None:
    run = load_run_folder(write(tmp_path, passing()))
    assert len(suite(tmp_path).findall("testcase")) == len(run.verdicts) + 1


def test_a_passing_run_is_green(tmp_path: Path) -> None:
    made = suite(write(tmp_path, passing()))
    assert (made.get("failures"), made.get("errors")) == ("0", "0")
    assert not list(made.iter("failure")) + list(made.iter("error"))


def test_a_broken_expectation_is_a_failure_and_counts_on_the_suite(tmp_path: Path) -> None:
    made = suite(write(tmp_path, VARIANTS["detector-off"]()))
    failures = list(made.iter("failure"))
    assert made.get("failures") == str(len(failures))
    assert failures


def test_what_could_not_be_judged_is_an_error_and_never_green(tmp_path: Path) -> None:
    made = suite(write(tmp_path, VARIANTS["killed"]()))
    assert int(made.get("errors", "0")) == len(list(made.iter("error"))) > 0


def test_hostile_names_make_well_formed_xml(tmp_path: Path) -> None:
    bad = "a\x00\x1b[31m\ufffe<b>&\"' ]]>"
    events = replacing(passing(), lambda e: isinstance(e, RunStarted), plan_name=bad, cluster=bad)
    made = suite(write(tmp_path, events))
    assert "<b>&\"' ]]>" in (made.get("name") or "")


@pytest.mark.parametrize("variant", VARIANTS)
def test_times_are_numbers_of_seconds(tmp_path: Path, variant: str) -> None:
    made = suite(write(tmp_path, VARIANTS[variant]()))
    assert all(float(case.get("time", "x")) >= 0 for case in made.iter("testcase"))


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_suite_has_what_ants_schema_requires_in_its_order(tmp_path: Path, variant: str) -> None:
    """windyroad/JUnit-Schema, JUnit.xsd: the attributes with use="required", and the sequence of a suite's children."""
    made = suite(write(tmp_path, VARIANTS[variant]()))
    required = {"name", "id", "package", "hostname", "timestamp", "tests", "failures", "errors", "time"}
    assert required <= set(made.attrib)
    assert all(made.get(name) for name in required)
    cases = [child.tag for child in made if child.tag == "testcase"]
    assert [child.tag for child in made] == ["properties", *cases, "system-out", "system-err"]


def test_a_run_that_failed_by_a_step_alone_is_not_green(tmp_path: Path) -> None:
    why = "the alert is still active"
    made = suite(write(tmp_path, ended(passing(), Step.RECOVER, StepOutcome.BROKEN, why)))
    (failure,) = made.iter("failure")
    assert why in failure.get("message", "")
