"""A plan that names a detector gets what its profile says; what the plan writes itself wins."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError
from gameday.plan.load import DetectorWarning
from gameday.plan.models import Recovery
from gameday.values.results import RepairHop, RepairKind
from tests.detectors.profiles import PLAN, PROFILE, completed, refused, written

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
    found = warnings(tmp_path, "{type: xid, xid: 79}", watching="nvsentinel", recover=recover)
    assert sum("never gets past" in warning.what for warning in found) == 1


@pytest.mark.parametrize("where", [{"named": "nvsentinel"}, {"watching": "nvsentinel"}])
def test_a_game_day_that_repairs_is_warned_of_a_stack_that_repairs_too(tmp_path: Path, where: dict[str, str]) -> None:
    (warning,) = warnings(tmp_path, "{type: xid, xid: 79}", recover="{remediation: reboot}", **where)
    assert warning.detector == "nvsentinel"
    assert warning.what.startswith("NVSentinel repairs the node as well where its repair is on")
    assert "reads our uncordon and taint-removed as an order to stop" in warning.what
    assert "by: cluster" in warning.fix


@pytest.mark.parametrize(
    ("watching", "remediation"), [("gameday", "reboot"), ("konduktor", "reboot"), ("nvsentinel", "none")]
)
def test_there_is_no_such_warning_where_only_one_repairs(tmp_path: Path, watching: str, remediation: str) -> None:
    recover = f"{{remediation: {remediation}}}"
    assert warnings(tmp_path, "{type: xid, xid: 79}", watching=watching, recover=recover) == ()


def test_a_cluster_that_repairs_nothing_is_named_before_a_hands_off_run(tmp_path: Path) -> None:
    """As a negative control, which is allowed."""
    text = PLAN.replace("detector: ours.yaml", "detector: konduktor")
    hops = "{repair_begun: {within: 10s}, ready: {within: 10s}}"
    path = written(tmp_path / "plan.yaml", f"{text}recover: {{by: cluster, hops: {hops}}}\n", "", "")
    nothing, blind = load_complete_plan(path).detector_warnings
    assert nothing.what.startswith("it repairs nothing: ")
    assert blind.what == "no sign is known of the hops repair begun, so that the run may end there as failed"


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


REPAIRS = """\
repairs:
  by: our-repairer
  configuration: as deployed
  hops:
    quarantined: {within: 20s}
    repair_begun: {within: 30s, signs: [{label: {key: ours/state, values: [repairing]}}]}
    repaired: {within: 5m}
    returned: {within: 40s}
  source: our runbook, 4
rules:
"""
HANDS_OFF = "recover: {by: cluster}"


def _hands_off(tmp_path: Path, *changes: tuple[str, str], recover: str = HANDS_OFF) -> Recovery:
    text = PROFILE.replace("rules:\n", REPAIRS)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "ours.yaml").write_text(text, encoding="utf-8")
    path = tmp_path / "plan.yaml"
    path.write_text(f"{PLAN}{recover}\n", encoding="utf-8")
    return load_complete_plan(path, [tmp_path]).plan.recover


def test_a_hands_off_plan_gets_the_hops_of_the_profile(tmp_path: Path) -> None:
    hops = _hands_off(tmp_path).hops
    assert [(hop, expected.within.total_seconds()) for hop, expected in hops.expected()] == [
        (RepairHop.QUARANTINED, 20),
        (RepairHop.REPAIR_BEGUN, 30),
        (RepairHop.REPAIRED, 300),
        (RepairHop.RETURNED, 40),
    ]


def test_the_bound_of_the_plan_wins_and_the_signs_stay_the_profiles(tmp_path: Path) -> None:
    recover = "recover: {by: cluster, hops: {repair_begun: {within: 5s}, repaired: null}}"
    hops = _hands_off(tmp_path, recover=recover).hops
    assert hops.repair_begun
    assert (hops.repair_begun.within.total_seconds(), len(hops.repair_begun.signs)) == (5, 1)
    assert hops.repaired is None


def test_the_rule_says_which_kind_of_repair_the_fault_gets(tmp_path: Path) -> None:
    recover = _hands_off(tmp_path, ("    ends_with: [gpu-reset, reboot]", "    repaired_by: [gpu-reset]"))
    assert recover.node_ends == "in-service"
    assert recover.hops.repaired
    assert recover.hops.repaired.kinds == (RepairKind.GPU_RESET,)


def test_a_fault_that_the_stack_leaves_to_a_person_must_keep_the_node_out(tmp_path: Path) -> None:
    recover = _hands_off(tmp_path, ("    ends_with: [gpu-reset, reboot]", "    repaired_by: []"))
    assert recover.node_ends == "out-of-service"
    assert [hop for hop, _ in recover.hops.expected()] == [RepairHop.QUARANTINED, RepairHop.RETURNED]


def test_a_plan_that_repairs_the_node_itself_gets_no_hops(tmp_path: Path) -> None:
    assert _hands_off(tmp_path, recover="recover: {by: game-day}").hops.expected() == []


def test_hands_off_with_a_stack_that_repairs_nothing_needs_hops_of_its_own(tmp_path: Path) -> None:
    nothing = (REPAIRS, "repairs_nothing: it only taints\nrules:\n")
    with pytest.raises(DocumentError) as refused:
        _hands_off(tmp_path, nothing)
    (problem,) = refused.value.problems
    assert "it only taints" in problem.message
    assert problem.suggestion == "write the hops that you expect under `recover.hops`"
    written_hops = "recover: {by: cluster, hops: {repaired: {within: 30s}}}"
    assert _hands_off(tmp_path, nothing, recover=written_hops).hops.repaired


SCALED = """\
arms:
  compare:
    - {name: mine}
    - {name: same, set: {detector: sub/../ours.yaml}}
    - {name: ours, set: {detector: nvsentinel}}
scales:
  talk:
    title: as large as in the talk
    memory: 12GiB
"""


def test_a_detectors_file_is_found_from_the_plans_own_folder_at_a_scale_too(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    talk = completed(tmp_path, EXPECT_NOTHING, f"{EXPECT_NOTHING}\n{SCALED}").of_scale("talk")
    assert [one.from_detector.detector for one in talk.played if one.from_detector] == ["ours", "ours", "nvsentinel"]
