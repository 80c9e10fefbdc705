"""A plan that names a detector gets what its profile says; what the plan writes itself wins."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gameday.detectors.resolve import load_complete_plan
from gameday.plan.load import DetectorWarning
from tests.detectors.profiles import PLAN, completed, refused, written

EXPECT_NOTHING = "expect: {}"


def test_a_plan_gets_every_expectation_it_leaves_out(tmp_path: Path) -> None:
    loaded = completed(tmp_path)
    expect = loaded.plan.expect
    assert [(one.key, one.value) for one in expect.taints] == [("ours/gpu", "bad")]
    assert [(one.type, one.status, one.reason) for one in expect.conditions] == [("OursGPU", "True", "Xid79")]
    assert [one.key for one in expect.labels] == ["ours/state"]
    assert [one.reason for one in expect.events] == ["OursXid79"]
    taken = loaded.from_detector
    assert taken is not None
    assert (taken.detector, taken.sees, taken.why, taken.source) == (
        "ours",
        True,
        "asks for a reboot",
        "our runbook, 1",
    )
    assert set(taken.filled) == {"taints", "conditions", "labels", "events"}


def test_what_the_plan_writes_wins_and_is_not_called_the_profiles(tmp_path: Path) -> None:
    loaded = completed(tmp_path, EXPECT_NOTHING, "expect: {taints: [{key: mine/own, within: 5s}], events: []}")
    assert [one.key for one in loaded.plan.expect.taints] == ["mine/own"]
    assert loaded.plan.expect.events == ()
    assert loaded.from_detector is not None
    assert set(loaded.from_detector.filled) == {"conditions", "labels"}


def test_a_negative_control_gets_no_quarantine_from_the_profile(tmp_path: Path) -> None:
    expect = completed(tmp_path, EXPECT_NOTHING, "expect: {stays_schedulable_for: 5s}").plan.expect
    assert not expect.expects_quarantine
    assert expect.conditions


def test_a_fault_that_is_not_to_quarantine_becomes_a_negative_control(tmp_path: Path) -> None:
    expect = completed(tmp_path, "xid: 79", "xid: 13").plan.expect
    assert expect.stays_schedulable_for == timedelta(seconds=9)


def test_a_fault_the_detector_cannot_see_becomes_a_negative_control_that_says_why(tmp_path: Path) -> None:
    loaded = completed(tmp_path, "{type: xid, xid: 79}", "{type: power_cap, watts: 300}")
    assert loaded.plan.expect.stays_schedulable_for == timedelta(seconds=9)
    assert loaded.from_detector is not None
    assert (loaded.from_detector.sees, loaded.from_detector.why) == (False, "it does not look at power")


def test_a_fault_the_profile_says_nothing_of_is_refused_where_the_plan_expects_nothing(tmp_path: Path) -> None:
    said = refused(tmp_path, "xid: 79", "xid: 48")
    assert "plan.yaml:5:11: detector: this plan expects nothing" in said
    assert "the profile ours says nothing about this xid fault" in said


def test_a_fault_the_profile_says_nothing_of_leaves_the_plan_as_it_is(tmp_path: Path) -> None:
    other = "fault: {type: xid, xid: 48}\nexpect: {alerts: [{name: A, within: 5s}]}"
    loaded = completed(tmp_path, "fault: {type: xid, xid: 79}\nexpect: {}", other)
    assert loaded.from_detector is not None
    assert (loaded.from_detector.sees, loaded.from_detector.filled) == (None, ())
    assert loaded.plan.expect.stays_schedulable_for is None


def test_a_plan_that_names_no_detector_is_left_alone(tmp_path: Path) -> None:
    old = "detector: ours.yaml\nfault: {type: xid, xid: 79}\nexpect: {}"
    loaded = completed(tmp_path, old, "fault: {type: xid, xid: 79}\nexpect: {alerts: [{name: A, within: 5s}]}")
    assert loaded.from_detector is None
    assert not loaded.plan.expect.taints


def test_a_bound_of_the_profile_that_outlasts_the_run_is_refused_at_the_plans_line(tmp_path: Path) -> None:
    said = refused(tmp_path, EXPECT_NOTHING, "expect: {}\nguardrails: {max_duration: 10s}")
    assert "plan.yaml:5:11: detector" in said
    assert "longer than guardrails.max_duration" in said


def test_a_plan_that_expects_nothing_and_names_no_detector_is_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, "detector: ours.yaml\n", "")
    assert "a plan that expects nothing can prove nothing" in said


SXID = "{type: sxid, sxid: 20034, pci: 0000:c1:00}"


def warnings(
    tmp_path: Path, fault: str, *, named: str = "", watching: str | None = None, recover: str = "{}"
) -> tuple[DetectorWarning, ...]:
    """Return what is said of a plan with this fault, which may name a detector, on a cluster that has one."""
    text = PLAN.replace("detector: ours.yaml\n", f"detector: {named}\n" if named else "")
    text = text.replace("{type: xid, xid: 79}", fault).replace("expect: {}", "expect: {stays_schedulable_for: 5s}")
    path = written(tmp_path / "plan.yaml", text + f"recover: {recover}\n", "", "")
    return load_complete_plan(path, watching=watching).detector_warnings


@pytest.mark.parametrize(
    "fault",
    [
        SXID,
        "{type: sxid, sxid: 12028, pci: 0000:c1:00, link: 32}",
        f"{{type: repeated, fault: {SXID}, times: 2, every: 5s}}",
        f"{{type: compound, parts: [{SXID}, {{type: xid, xid: 79}}]}}",
        f"{{type: compound, parts: [{SXID}, {{type: net_netem, interface: ib0, delay: 5ms}}]}}",
    ],
)
@pytest.mark.parametrize("where", [{"named": "nvsentinel"}, {"watching": "nvsentinel"}])
def test_an_sxid_that_nvsentinel_never_gets_past_is_a_warning(
    tmp_path: Path, fault: str, where: dict[str, str]
) -> None:
    (warning,) = warnings(tmp_path, fault, **where)
    assert warning.detector == "nvsentinel"
    assert "never gets past" in warning.what
    assert "gpu_metadata.json" in warning.fix and "`pci`" in warning.fix


def test_a_fault_during_the_repair_is_warned_of_too(tmp_path: Path) -> None:
    recover = f"{{remediation: reboot, fault_during: {SXID}}}"
    assert len(warnings(tmp_path, "{type: xid, xid: 79}", watching="nvsentinel", recover=recover)) == 1


def test_one_detector_warns_once(tmp_path: Path) -> None:
    assert len(warnings(tmp_path, SXID, named="nvsentinel", watching="nvsentinel")) == 1


@pytest.mark.parametrize(
    ("fault", "watching"),
    [
        (SXID, None),
        (SXID, "gameday"),
        (SXID, "konduktor"),
        ("{type: xid, xid: 79}", "nvsentinel"),
        ("{type: sxid, sxid: 20034, pci: 0000:c1:00, link: null}", "nvsentinel"),
        ("{type: sxid, sxid: 20034, pci: 0000:c1:00, form: bare}", "nvsentinel"),
    ],
)
def test_a_detector_that_bears_the_fault_warns_of_nothing(tmp_path: Path, fault: str, watching: str | None) -> None:
    assert warnings(tmp_path, fault, watching=watching) == ()


def test_a_cluster_s_detector_that_nobody_knows_is_named(tmp_path: Path) -> None:
    (warning,) = warnings(tmp_path, SXID, watching="nvsentinal")
    assert "'nvsentinal'" in warning.what and "did you mean nvsentinel?" in warning.what
    assert "`detector` in the cluster profile" in warning.fix
