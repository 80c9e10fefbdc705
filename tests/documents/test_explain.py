"""Every mistake in a document is shown with its line, its key, its value and a suggestion; here in plans."""

from __future__ import annotations

import pytest

from gameday.errors import DocumentError
from tests.plan.plans import changed, only, problems

WITHIN = "within: 15s\n  taints"
"""The first of the two bounds in GOOD."""


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "where", "value", "suggestion"),
    [
        (WITHIN, "withn: 15s\n      within: 1s\n  taints", 14, 7, "expect.alerts[0].withn", "'15s'", "`within`"),
        (WITHIN, "within: 15\n  taints", 14, 15, "expect.alerts[0].within", "15", "`15s`"),
        (WITHIN, "within: 5 minutes\n  taints", 14, 15, "expect.alerts[0].within", "'5 minutes'", "`5m`"),
        (WITHIN, "within: 500 msec\n  taints", 14, 15, "expect.alerts[0].within", "'500 msec'", "`500ms`"),
        (WITHIN, "within: soon\n  taints", 14, 15, "expect.alerts[0].within", "'soon'", None),
        (WITHIN, "within: 0s\n  taints", 14, 15, "expect.alerts[0].within", "'0s'", None),
        ("hold: 60s", "hold: 99999999999999999999h", 8, 9, "fault.hold", "'99999999999999999999h'", None),
        ("remediation: reboot", "remediation: Rebot", 20, 16, "recover.remediation", "'Rebot'", "`reboot`"),
        ("type: xid", "type: xidd", 6, 9, "fault.type", "'xidd'", "`xid`"),
        ("xid: 79", "xid: 0", 7, 8, "fault.xid", "0", None),
        ("nodes: 1", "nodes: three", 10, 10, "targets.nodes", "'three'", None),
        ("nodes: 1", "nodes: 2", 10, 10, "targets.nodes", "2", None),
        ("  nodes: 1", "  selector: {a b: c}", 10, 14, "targets.selector['a b']", "'a b'", None),
        ("  nodes: 1", "  selector: {zone: 1}", 10, 20, "targets.selector.zone", "1", "'1'"),
        ("  nodes: 1", "  names: n1", 10, 10, "targets.names", "'n1'", "['n1']"),
        ("targets:\n  nodes: 1", "targets:", 9, 1, "targets", "nothing", "give the key a value"),
        ("title: A plan", "title: 79", 3, 8, "title", "79", "'79'"),
        ("title: A plan", "title: A plan\nremediation: none", 4, 1, "remediation", "'none'", "`recover.remediation`"),
        ("name: a-plan", "name: A plan", 2, 7, "name", "'A plan'", None),
        ("gameday/v1", "gameday/v2", 1, 13, "apiVersion", "'gameday/v2'", "`gameday/v1`"),
        (
            "  remediation: reboot",
            "  remediation: none\nguardrails:\n  max_duration: 5s",
            14,
            15,
            "expect.alerts[0].within",
            "'15s'",
            None,
        ),
        (
            "  nodes: 1",
            "  names: [a]\n  nodes: 2\nguardrails: {max_nodes: 2}",
            10,
            10,
            "targets.names",
            "a list of 1",
            None,
        ),
    ],
)
def test_each_mistake_is_shown_at_its_line_and_column(
    old: str, new: str, line: int, column: int, where: str, value: str, suggestion: str | None
) -> None:
    problem = only(changed(old, new))
    assert (problem.line, problem.column, problem.where, problem.value) == (line, column, where, value)
    if suggestion is None:
        assert problem.suggestion is None
    else:
        assert suggestion in (problem.suggestion or "")


def test_a_missing_key_points_at_its_parent_and_says_what_it_is_for() -> None:
    problem = only(changed("    - name: GPUFellOffTheBus\n      within: 15s\n", "    - name: GPUFellOffTheBus\n"))
    assert (problem.line, problem.where, problem.value) == (13, "expect.alerts[0]", None)
    assert problem.message == "`within` is missing"
    assert problem.suggestion == ("add `within:` (Longest time from the fault going in to the alert firing.)")
    assert only(changed("hypothesis: Somebody notices.\n", "")).line == 1


def test_all_problems_are_reported_together_in_the_order_of_the_file() -> None:
    text = changed("xid: 79", "xid: 0").replace("nodes: 1", "nodes: none").replace("reboot", "rebot")
    assert [problem.line for problem in problems(text)] == [7, 10, 20]


def test_problems_are_safe_to_print_and_short() -> None:
    text = changed("title: A plan", f"title: A plan\n? {'k' * 5000}\n: {'v' * 5000}")
    shown = str(DocumentError(problems(text)))
    assert len(shown) < 1000
    many = "\n".join(f"k{i}: 1" for i in range(500))
    assert str(DocumentError(problems(many))).splitlines()[-1].startswith("… and ")
