"""Plans whose faults are made of others: mistakes inside the parts have their lines, too."""

from __future__ import annotations

import pytest

from gameday.errors import DocumentError, DocumentProblem
from gameday.faults.registry import parameter_models
from gameday.plan.load import parse_plan

HEAD = """\
apiVersion: gameday/v1
name: a
title: t
hypothesis: h
expect:
  taints: [{key: a, within: 5s}]
"""


def problem(text: str) -> DocumentProblem:
    with pytest.raises(DocumentError) as caught:
        parse_plan((HEAD + text).encode(), "p.yaml", parameter_models())
    (found,) = caught.value.problems
    return found


def parts(*lines: str) -> str:
    return "fault:\n  type: compound\n  parts:\n" + "".join(f"    - {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "line", "where", "message", "suggestion"),
    [
        (
            parts("{type: xid, xid: 79}", "{type: xid, xid: 79, foorm: bare}"),
            11,
            "fault.parts[1].foorm",
            "not known here",
            "`form`",
        ),
        (
            parts("{type: xid, xid: 79}", "{type: unit_stoped}"),
            11,
            "fault.parts[1].type",
            "unknown fault type",
            "`unit",
        ),
        (parts("{type: power_cap, watts: 300}", "{type: power_cap, watts: 300}"), 11, "parts[1].type", "both take", ""),
        (
            parts("{type: xid, xid: 79}", "{type: compound, parts: [{type: xid, xid: 1}, {type: xid, xid: 2}]}"),
            11,
            "fault.parts[1].type",
            "cannot be a part of another",
            "",
        ),
        (parts("{type: xid, xid: 79}", "{type: gpu_burn}"), 8, "fault.type", "gpu_burn is dangerous", ""),
        (
            "fault: {type: xid, xid: 3}\nrecover:\n  remediation: reboot\n  fault_during: {type: node_reboot}\n",
            10,
            "recover.fault_during.type",
            "node_reboot is dangerous",
            "",
        ),
        (
            "fault: {type: xid, xid: 3}\nrecover:\n  fault_during: {type: xid, xid: 3}\n",
            9,
            "recover.fault_during",
            "no remediation to disturb",
            "",
        ),
        (
            "fault:\n  type: repeated\n  times: 9\n  every: 10s\n  fault: {type: xid, xid: 94}\n",
            7,
            "fault.hold",
            "hold (60s) ends before",
            "",
        ),
        (
            parts("{type: xid, xid: 79}", "{type: list_storm}"),
            11,
            "fault.parts[1].type",
            "list_storm runs on an API-client node",
            "",
        ),
        (
            "fault:\n  type: repeated\n  times: 2\n  every: 10s\n  fault: {type: list_storm}\n",
            11,
            "fault.fault.type",
            "list_storm runs on an API-client node",
            "",
        ),
    ],
)
def test_a_mistake_has_its_line_its_key_and_a_suggestion(
    text: str, line: int, where: str, message: str, suggestion: str
) -> None:
    found = problem(text)
    assert found.line == line
    assert where in found.where
    assert message in found.message
    assert suggestion in (found.suggestion or "")


def test_a_dangerous_part_is_allowed_by_its_own_name() -> None:
    text = HEAD + parts("{type: xid, xid: 79}", "{type: gpu_burn}") + "guardrails: {allow_dangerous: [gpu_burn]}\n"
    plan = parse_plan(text.encode(), "p.yaml", parameter_models()).plan
    assert set(plan.dangers()) == {"gpu_burn"}
