"""The corpus: every case can be read, names its source, and shows what its plan writes."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from gameday.cli import run as command
from gameday.corpus.load import CASES, cases_by_plan, read_case, shipped_cases
from gameday.corpus.models import Answer, Case, Family, Happens, Layer
from gameday.corpus.plays import why_not_played
from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError
from gameday.faults.dcgm_field import DcgmFieldParameters
from gameday.faults.kernel_lines import KernelLinesParameters
from gameday.faults.repeated import RepeatedParameters
from gameday.faults.sxid import SxidParameters
from gameday.faults.xid import XidParameters
from gameday.plan.catalogue import shipped_plans
from gameday.plan.fault import FaultParameters
from gameday.xid.lines import format_xid

ORIGIN = re.compile(r"captured: |documented: |constructed|composed|the (?:line|value) ")
BROKEN = """\
apiVersion: gameday/v1
kind: DetectorCase
name: broken
title: A case
family: memory
layer: kernel log
steps:
  - lines: "NVRM: Xid (PCI:0000:3f:00): 48"
answer: act
why: the catalogue
source: constructed here
link: https://docs.nvidia.com/deploy/xid-errors/
"""


def test_at_least_a_hundred_cases_and_two_fifths_that_nobody_must_act_on() -> None:
    answers = Counter(case.answer for case in shipped_cases().values())
    assert answers.total() >= 100
    assert answers[Answer.LEAVE] >= 0.4 * answers.total()


def test_every_kind_layer_and_event_has_cases() -> None:
    cases = shipped_cases().values()
    assert {case.family for case in cases} == set(Family)
    assert {case.layer for case in cases} == set(Layer)
    assert {step.happens for case in cases for step in case.steps} == {*Happens, None}


def test_every_case_says_where_its_input_is_from() -> None:
    assert [case.name for case in shipped_cases().values() if not ORIGIN.match(case.source)] == []


def test_no_two_cases_show_the_same() -> None:
    shown = Counter(case.steps for case in shipped_cases().values())
    assert [steps for steps, count in shown.items() if count > 1] == []


SHIPPED = [case for case in cases_by_plan().values() if case.plan]
WRITTEN = [case for case in shipped_cases().values() if not case.plan and not why_not_played(case)]


@pytest.mark.parametrize("case", SHIPPED, ids=lambda case: case.name)
def test_a_case_shows_what_its_plan_injects(case: Case) -> None:
    assert case.plan
    assert _shown_by(load_complete_plan(shipped_plans()[case.plan], ()).plan.fault) == _shown(case)


def test_the_other_cases_have_a_plan_written_or_a_reason(tmp_path: Path) -> None:
    assert command(["cases", "--plans", str(tmp_path)]) == 0
    assert {path.stem for path in tmp_path.iterdir()} == {case.name for case in WRITTEN}
    assert len(WRITTEN) + len(SHIPPED) > 100
    for case in WRITTEN:
        plan = load_complete_plan(tmp_path / f"{case.name}.yaml", ()).plan
        if isinstance(plan.fault, KernelLinesParameters):
            shown = [line for step in case.steps for line in str(step.lines).splitlines()]
            assert all(a in b for a, b in zip(plan.fault.lines, shown, strict=True))
        else:
            assert _shown_by(plan.fault) == _shown(case)
        assert bool(plan.expect.taints) is (case.answer is Answer.ACT)


def _shown(case: Case) -> tuple[tuple[str, float], ...]:
    if case.layer is Layer.DCGM:
        return tuple((one.field, one.value) for step in case.steps for one in step.dcgm or ())
    return tuple((str(step.lines), step.repeat) for step in case.steps)


def _shown_by(fault: FaultParameters) -> tuple[tuple[str, float], ...]:
    match fault:
        case XidParameters():
            return ((format_xid(fault.xid, "0000:4e:00", fault.form), fault.repeat),)
        case SxidParameters():
            return ((fault.line, 1),)
        case KernelLinesParameters():
            return tuple((line, 1) for line in fault.lines)
        case DcgmFieldParameters():
            return ((str(fault.field), float(fault.injected)),)
        case RepeatedParameters():
            return ((_shown_by(fault.fault)[0][0], fault.times),)
    raise AssertionError(f"no case is played by a fault of type {fault.type}")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("answer: act", "answer: perhaps", 9, "must be"),
        ("family: memory", "family: memroy", 5, "must be"),
        ("source: constructed here\n", "", None, "source"),
        ("link: https://docs", "link: docs", 12, "link"),
        ("  - lines:", "  - happens: boot\n    lines:", 8, "exactly one"),
        ('  - lines: "NVRM: Xid (PCI:0000:3f:00): 48"', "  - happens: boot", None, "must show"),
        ('  - lines: "NVRM: Xid (PCI:0000:3f:00): 48"', "  - {repeat: 2, happens: boot}", 8, "only lines"),
        ("layer: kernel log", "layer: NVML", 8, "shows nvml"),
        ("answer: act", "answr: act", None, "answr"),
        ("name: broken", "name: other", 3, "broken.yaml"),
        ("steps:\n", "steps: [\n", 8, ""),
    ],
)
def test_a_bad_file_gets_an_error_with_a_line(tmp_path: Path, old: str, new: str, line: int | None, said: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN, encoding="utf-8")
    assert read_case(file).answer is Answer.ACT
    file.write_text(BROKEN.replace(old, new), encoding="utf-8")
    with pytest.raises(DocumentError) as refused:
        read_case(file)
    problem = refused.value.problems[0]
    assert any(said in str(one) for one in refused.value.problems)
    assert line in (None, problem.line)


def test_each_file_is_a_case_and_no_other_file_is_there() -> None:
    assert {path.suffix for path in CASES.iterdir()} == {".yaml"}
