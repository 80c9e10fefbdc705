"""Reading a plan: its bytes, and the conflicts between its keys."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.errors import DocumentError
from gameday.plan.load import load_plan
from tests.plan.plans import FAULTS, GOOD, REMEDIATIONS, TestXid, changed, only, parse


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


def test_a_plan_may_have_a_byte_order_mark_and_an_anchor() -> None:
    text = changed("      within: 15s\n  taints", "      within: &bound 15s\n  taints").replace(
        '      value: "true"\n      within: 15s', '      value: "true"\n      within: *bound'
    )
    plan = parse(b"\xef\xbb\xbf" + text.encode()).plan
    assert plan.expect.taints[0].within == timedelta(seconds=15)


def test_a_negative_control_with_taints_is_refused_at_the_line_of_the_control() -> None:
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


def test_a_rejected_pod_that_asks_for_nothing_large_is_refused() -> None:
    problem = only(changed("expect:\n", "expect:\n  topology_manager_rejects: {}\n"))
    assert "come from one NUMA node" in problem.message


def test_forbidden_severities_need_other_alerts_allowed() -> None:
    text = changed("expect:\n", "expect:\n  forbidden_severities: [critical]\n")
    assert only(text).where == "expect.forbidden_severities"
    allowed = text.replace("expect:\n", "expect:\n  allow_other_alerts: true\n")
    assert parse(allowed).plan.expect.forbidden_severities == ("critical",)


@pytest.mark.parametrize(
    ("targets", "where"),
    [
        ("{domain: {label: rack}, nodes: 2}", "targets.nodes"),
        ("{domain: {label: rack}, names: [n]}", "targets.names"),
        ("{domain: {label: rack, percent: 0}}", "targets.domain.percent"),
        ("{domain: {value: a}}", "targets.domain"),
        ("{domain: {label: rack, value: ''}}", "targets.domain.value"),
    ],
)
def test_a_domain_takes_the_place_of_a_number_and_of_names(targets: str, where: str) -> None:
    assert only(changed("targets:\n  nodes: 1\n", f"targets: {targets}\n")).where == where


def test_a_domains_plan_that_was_stored_with_all_its_keys_can_be_read_again() -> None:
    plan = parse(changed("targets:\n  nodes: 1\n", "targets: {domain: {label: rack}}\n")).plan
    assert parse(plan.model_dump_json()).plan.targets == plan.targets


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
def test_any_bytes_give_a_plan_or_a_document_error(source: bytes) -> None:
    try:
        loaded = parse(source)
    except DocumentError as error:
        assert error.problems
        assert all(character.isprintable() or character == "\n" for character in str(error))
    else:
        assert loaded.source == source
