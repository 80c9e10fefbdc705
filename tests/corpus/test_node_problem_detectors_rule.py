"""The rule that we recommend for node-problem-detector acts on nothing that it must leave alone."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gameday.corpus.load import shipped_cases
from gameday.corpus.models import Answer, Case, Layer
from gameday.xid.record import read_record

ROOT = Path(__file__).parents[2]
RULE = json.loads((ROOT / "examples/guests/node-problem-detector-kmsg.json").read_text("utf-8"))["rules"][0]
# The program ties the pattern to the end of the lines that it holds (pkg/systemlogmonitor/log_buffer.go, 6632ca6).
PATTERN = re.compile(RULE["pattern"] + r"\Z")


def matched(case: Case) -> list[str]:
    lines = [line for step in case.steps for line in (step.lines or "").splitlines()]
    return [line for line in lines if PATTERN.search(read_record(line).message)]


def cases(answer: Answer) -> list[Case]:
    kernel = (case for case in shipped_cases().values() if case.layer is Layer.KERNEL_LOG)
    return [case for case in kernel if case.answer is answer and not any(step.happens for step in case.steps)]


def test_no_line_that_must_be_left_alone_matches_but_one_that_only_root_can_forge() -> None:
    # RE2 cannot look ahead for the fields of a packet.
    assert [case.name for case in cases(Answer.LEAVE) if matched(case)] == ["forged-by-a-firewall"]


def test_hardware_xids_match_in_the_old_form_of_mig_and_of_a_game_day() -> None:
    names = {case.name for case in cases(Answer.ACT) if matched(case)}
    assert {"xid-95-in-the-old-form", "xid-95-of-a-mig-instance", "gpu-fell-off-the-bus", "form-kmsg-lost"} <= names


def test_the_page_of_detectors_has_the_same_rule() -> None:
    assert json.dumps(RULE["pattern"]) in (ROOT / "docs/detectors.md").read_text("utf-8")
