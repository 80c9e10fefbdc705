"""Reading a plan: what is accepted, and that every refusal names line, key, value and the way out."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.documents.fields import format_duration, parse_duration
from gameday.documents.source import MAX_BYTES
from gameday.errors import DocumentError
from gameday.plan.load import load_plan
from tests.plan.plans import FAULTS, GOOD, REMEDIATIONS, TestXid, changed, only, parse, problems

WITHIN = "within: 15s\n  taints"
"""The first of the two bounds in GOOD."""


def test_a_good_plan_keeps_its_bytes_and_their_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD, encoding="utf-8")
    loaded = load_plan(path, FAULTS, REMEDIATIONS)
    assert loaded.source == GOOD.encode()
    assert loaded.sha256 == hashlib.sha256(GOOD.encode()).hexdigest()
    assert isinstance(loaded.plan.fault, TestXid)
    assert loaded.plan.fault.xid == 79
    assert loaded.plan.expect.alerts[0].within == timedelta(seconds=15)
    assert loaded.plan.recover.remediation == "reboot"


def test_a_byte_order_mark_and_an_anchor_are_fine() -> None:
    text = changed("      within: 15s\n  taints", "      within: &bound 15s\n  taints").replace(
        '      value: "true"\n      within: 15s', '      value: "true"\n      within: *bound'
    )
    plan = parse(b"\xef\xbb\xbf" + text.encode()).plan
    assert plan.expect.taints[0].within == timedelta(seconds=15)


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
def test_each_mistake_is_shown_where_it_stands(
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
    assert problem.suggestion == ("add `within:` (From the fault going in to the alert firing for the target node.)")
    assert only(changed("hypothesis: Somebody notices.\n", "")).line == 1


def test_all_problems_come_at_once_and_in_the_order_of_the_file() -> None:
    text = changed("xid: 79", "xid: 0").replace("nodes: 1", "nodes: none").replace("reboot", "rebot")
    assert [problem.line for problem in problems(text)] == [7, 10, 20]


def test_a_negative_control_excludes_taints_and_says_so_at_its_own_line() -> None:
    quiet = changed("  taints:\n", "  stays_schedulable_for: 10s\n  taints:\n")
    problem = only(quiet)
    assert (problem.line, problem.column, problem.where) == (15, 26, "expect.stays_schedulable_for")


def test_a_negative_control_needs_no_alert() -> None:
    head, _, tail = GOOD.partition("expect:\n")
    text = head + "expect:\n  stays_schedulable_for: 10s\n" + tail[tail.index("recover:") :]
    assert parse(text).plan.expect.stays_schedulable_for == timedelta(seconds=10)
    assert "prove nothing" in only(text.replace("  stays_schedulable_for: 10s", "  allow_other_alerts: true")).message


def test_a_pod_that_the_topology_manager_rejects_needs_a_fault_that_finds_two_numa_nodes() -> None:
    problem = only(changed("expect:\n", "expect:\n  topology_manager_rejects: {gpus: 5}\n"))
    assert problem.where == "expect.topology_manager_rejects"
    assert "more than one NUMA node" in problem.message


def test_a_pod_that_every_numa_node_can_serve_proves_nothing() -> None:
    problem = only(changed("expect:\n", "expect:\n  topology_manager_rejects: {}\n"))
    assert "come from one NUMA node" in problem.message


def test_forbidden_severities_need_other_alerts_allowed() -> None:
    text = changed("expect:\n", "expect:\n  forbidden_severities: [critical]\n")
    assert only(text).where == "expect.forbidden_severities"
    allowed = text.replace("expect:\n", "expect:\n  allow_other_alerts: true\n")
    assert parse(allowed).plan.expect.forbidden_severities == ("critical",)


@pytest.mark.parametrize(
    ("source", "line", "column", "said"),
    [
        (b"", 1, 1, "the file is empty"),
        (b"# nothing but this\n", 1, 1, "the file is empty"),
        (b"just text", 1, 1, "a plan is a mapping"),
        (b"- a\n- b\n", 1, 1, "a plan is a mapping"),
        (b"name: a\ntitle: \xff\xfe\n", 2, 8, "byte 0xff is not UTF-8"),
        (b"\x7fELF\x02\x01\x01\x00", 1, 1, "U+007F"),
        (b"name: a\n\ttitle: b\n", 2, 1, "cannot start any token"),
        (b"name: a\n---\nname: b\n", 2, 1, "a second YAML document"),
        (b"%YAML 1.1\n---\nname: a\n", 1, 1, "directives"),
        (b"name: !!python/object:os.system x\n", 1, 7, "YAML tags such as"),
        (b"name: a\n!!str title: b\n", 2, 1, "YAML tags such as"),
        (b"a: &x [*x]\n", 1, 8, "before or inside its anchor"),
        (b"a: *nowhere\n", 1, 4, "before or inside its anchor"),
        (b"<<: {a: b}\n", 1, 1, "merge keys"),
        (b"1: a\n", 1, 1, "a key is text"),
        (b"[a]: b\n", 1, 1, "a key is plain text"),
        (b'title: "\\e[31mred"\n', 1, 8, "U+001B"),
        (b'title: "\\u202egnp.exe"\n', 1, 8, "U+202E"),
        (b'title: "\\ud800"\n', 1, 8, "U+D800"),
        (b'title: "\\Uffffffff"\n', 1, 1, "cannot be read as YAML"),
        (b"seed: " + b"9" * 5000, 1, 7, "this number cannot be read"),
        (b"title: a: b\n", 1, 9, "mapping values are not allowed here"),
        (b"title: 'open\n", 1, 8, "unexpected end of stream"),
        (b"[" * 1000, 1, 18, "nested deeper than 16"),
        (b"- " * 1000, 1, 35, "nested deeper than 16"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(source: bytes, line: int, column: int, said: str) -> None:
    problem = only(source)
    assert said in problem.message
    # ruamel reports where the token or the quoted text ends for some errors; the line is what an editor jumps to.
    assert problem.line == line
    assert problem.column == column


def test_a_key_written_twice_names_both_lines() -> None:
    problem = next(p for p in problems(changed("nodes: 1", "nodes: 1\n  nodes: 2")) if p.where == "targets.nodes")
    assert (problem.line, problem.value) == (11, "2")
    assert problem.message == "the key is written twice, first in line 10"


def test_aliases_cannot_multiply() -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert "more than 10000 values" in only("\n".join(rows)).message


def test_a_file_too_large_is_refused_unparsed() -> None:
    assert only(b"#" * (MAX_BYTES + 1)).message == "larger than 256 KiB, which no such file is"


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "nul"])
def test_a_path_that_is_no_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "nul":
        path = Path("a\0b.yaml")
    with pytest.raises(DocumentError) as caught:
        load_plan(path, FAULTS, REMEDIATIONS)
    assert caught.value.problems[0].line is None


def test_problems_are_safe_to_print_and_short() -> None:
    text = changed("title: A plan", f"title: A plan\n? {'k' * 5000}\n: {'v' * 5000}")
    shown = str(DocumentError(problems(text)))
    assert len(shown) < 1000
    many = "\n".join(f"k{i}: 1" for i in range(500))
    assert str(DocumentError(problems(many))).splitlines()[-1].startswith("… and ")


_FRAGMENTS = [
    *GOOD.splitlines(keepends=True), "&a ", "*a ", "[", "]", "{", "}", ": ", "- ", "? ", "|\n", ">\n", "'", '"', "\\",
    "\\U", "FFFFFFFF", "\t", " ", "\n", "!!python/object:os.system ", "%YAML 1.1\n", "---\n", "...\n", "<<: ", "0x",
    "1e999", "999999999", "\x00", "\x85", "\u2028", "é", "#", "~", "true", ".inf", ",", "@", "`",
]  # fmt: skip
_SOURCES = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=120).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(_FRAGMENTS), max_size=40).map(lambda parts: "".join(parts).encode()),
    st.tuples(st.integers(0, len(GOOD)), st.integers(0, 8), st.sampled_from(_FRAGMENTS)).map(
        lambda cut: (GOOD[: cut[0]] + cut[2] + GOOD[cut[0] + cut[1] :]).encode()
    ),
)


@settings(max_examples=400, deadline=None)
@given(_SOURCES)
def test_any_bytes_are_a_plan_or_a_plan_error(source: bytes) -> None:
    try:
        loaded = parse(source)
    except DocumentError as error:
        assert error.problems
        assert all(character.isprintable() or character == "\n" for character in str(error))
    else:
        assert loaded.source == source


@given(st.integers(0, 10**9))
def test_durations_read_back_what_is_written(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize(("text", "seconds"), [("60s", 60), ("5m", 300), ("1m30s", 90), ("500ms", 0.5), ("1.5h", 5400)])
def test_durations_carry_their_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "60", "s", "60 s", "60S", "-5s", "1d", "١s", "5m?", " 5m", "1" * 30 + "s"])
def test_other_spellings_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is written with its unit"):
        parse_duration(text)
