"""Detector profiles as files: the shipped ones, a team's own, and wrong ones with their lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gameday.detectors.load import find_detector, known_detectors, load_detector, read_detector
from gameday.detectors.models import Evidence
from gameday.errors import DocumentError
from gameday_health.episodes.acts import _DONE
from tests.detectors.profiles import PROFILE, profile, profile_problems, written

SHIPPED = {name: read_detector(path) for name, path in known_detectors().items()}


def test_the_shipped_profiles_are_those_the_field_names_and_all_load() -> None:
    assert set(SHIPPED) == {
        "aks-gpu-health",
        "aks-node-auto-repair",
        "device-plugin",
        "eks-node-monitoring-agent",
        "gameday",
        "gke-node-auto-repair",
        "gpud",
        "karpenter-node-repair",
        "konduktor",
        "node-problem-detector",
        "nvsentinel",
        "nvsentinel-kernel-log",
    }


def test_every_rule_of_a_shipped_profile_names_its_source() -> None:
    vague = [
        (name, rule)
        for name, found in SHIPPED.items()
        for rule in found.rules
        if not any(mark in rule.source for mark in ("docs/sources.md", "gameday/"))
    ]
    assert vague == []


def test_every_rule_of_a_shipped_profile_says_whether_it_was_seen_or_read() -> None:
    silent = [(name, rule) for name, found in SHIPPED.items() for rule in found.rules if rule.evidence is None]
    assert silent == []


def test_the_page_counts_the_rules_seen_of_each_shipped_profile() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "detectors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \|.*\| (\d+ of \d+) \|$", page, re.MULTILINE))
    seen = {name: sum(rule.evidence is Evidence.SEEN for rule in found.rules) for name, found in SHIPPED.items()}
    assert rows == {name: f"{seen[name]} of {len(found.rules)}" for name, found in SHIPPED.items()}


def test_no_rule_of_a_shipped_profile_is_hidden_by_one_before_it() -> None:
    """A rule without `when` speaks of all faults of its types: a later rule about the same type is never read."""
    for name, found in SHIPPED.items():
        spoken_for: set[str] = set()
        for rule in found.rules:
            assert not (spoken_for & set(rule.faults)), (name, rule)
            if not rule.when:
                spoken_for |= set(rule.faults)


def test_our_profile_reads_the_kind_of_a_repair_from_each_event_of_the_repairer() -> None:
    repairs = SHIPPED["gameday"].repairs
    assert repairs and repairs.hops.repaired
    events = [sign.event for sign in repairs.hops.repaired.signs if sign.event]
    assert {event.component for event in events} == {"gameday-repair"}
    assert {event.reason for event in events} == set(_DONE.values())


def test_a_profile_in_a_teams_folder_replaces_the_shipped_one_of_its_name(tmp_path: Path) -> None:
    written(tmp_path / "konduktor.yaml", PROFILE, "name: ours", "name: konduktor")
    assert load_detector("konduktor", [tmp_path]).title == "Our own detector"
    assert load_detector("konduktor").title != "Our own detector"


def test_a_path_is_a_profile_too(tmp_path: Path) -> None:
    profile(tmp_path)
    assert load_detector(str(tmp_path / "ours.yaml")).name == "ours"


def test_a_name_nobody_has_suggests_the_nearest() -> None:
    with pytest.raises(DocumentError, match="did you mean nvsentinel"):
        find_detector("nvsentinal")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such folder"):
        known_detectors([tmp_path / "none"])


@pytest.mark.parametrize(
    ("old", "new", "line", "where", "says"),
    [
        ("[power_cap]", "[power_cup]", 22, "rules[2].faults[0]", "unknown fault type"),
        ("xid: [79]", "xod: [79]", 11, "rules[0].when.xod", "no such parameter"),
        ("xid: [79]", "xid: ['79']", 11, "rules[0].when.xid[0]", "write it as 79"),
        ("xid: [79]", "xid: [7900]", 11, "rules[0].when.xid[0]", "less than or equal to 999"),
        ("xid: [79]", "form: [kernal]", 11, "rules[0].when.form[0]", "'kernel'"),
        ("xid: [79]", "decision: [cordon]", 11, "rules[0].when.decision[0]", "'quarantine'"),
        ("OursXid{xid}", "OursXid{code}", 15, "rules[0].events[0].reason", "not a parameter of every fault"),
        ("typically: 1s", "typically: 1m", 12, "rules[0].taints[0].typically", "longer than the bound"),
        ("name: ours", "name: theirs", 3, "name", "the file is called ours.yaml"),
        ("  - faults: [power_cap]", "  - layers: [newtork]", 22, "rules[2].layers[0]", "must be one of"),
        ("within: 20s, typically", "within: 20, typically", 12, "rules[0].taints[0].within", "with its unit"),
        ("quiet_for", "quite_for", 7, "quite_for", "not known here"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_profile_is_said_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, where: str, says: str
) -> None:
    found = profile_problems(tmp_path, old, new)
    assert len(found) == 1, [str(one) for one in found]
    assert (found[0].line, found[0].where) == (line, where)
    assert says in str(found[0])


def test_a_rule_that_cannot_see_a_fault_and_acts_on_it_is_refused(tmp_path: Path) -> None:
    old = "cannot_see: it does not look at power"
    found = profile_problems(tmp_path, old, f"{old}\n    taints: [{{key: a/b, within: 5s}}]")
    assert "does nothing about it" in str(found[0])


def test_a_rule_about_nothing_is_refused(tmp_path: Path) -> None:
    found = profile_problems(tmp_path, "  - faults: [power_cap]\n    cannot_see", "  - cannot_see")
    assert "of which `faults` or `layers` it speaks" in str(found[0])


@pytest.mark.parametrize(
    "written", ["evidence: seen", "seen_on: 2026-11-24", "evidence: read\n    seen_on: 2026-11-24"]
)
def test_a_rule_was_seen_on_a_day_or_not_at_all(tmp_path: Path, written: str) -> None:
    found = profile_problems(tmp_path, "source: our runbook, 3", f"source: our runbook, 3\n    {written}")
    assert "write `evidence: seen` and the day together" in str(found[0])
