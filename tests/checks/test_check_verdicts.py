"""Each check on one complete run and its variants: held, broken, and unknown where nothing was proved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gameday.checks import run as run_module
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.expect.conditions import ExpectedCondition
from gameday.history.events import (
    AlertSeen,
    FaultInjected,
    FaultUndone,
    IntentRecorded,
    NodeReturned,
    NodeSeen,
    Problem,
    QaChecked,
    Refused,
    Remediated,
    SteadyStateChecked,
    StepEnded,
    StepStarted,
    TaintSeen,
    WorkloadSeen,
)
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.values.nodes import Taint
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.report import run_builder as build
from tests.report.run_builder import (
    ALERT,
    NODE,
    PLAN,
    TAINT,
    Timed,
    at,
    ended,
    history_of,
    passing,
    replacing,
    snapshot,
    without,
)


def judge(timed, check: str, plan=PLAN) -> Verdict:
    verdicts = [v for v in run_checks(plan, history_of(timed), Frames()) if v.check == check]
    assert len(verdicts) == 1, f"{check}: {verdicts}"
    return verdicts[0]


def is_alert(state: str):
    return lambda e: isinstance(e, AlertSeen) and e.expected and e.state == state


def is_kind(*kinds):
    return lambda e: isinstance(e, kinds)


def with_plan(**expect) -> object:
    return PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update=expect)})


def test_a_complete_run_holds_everywhere_and_cites_its_evidence():
    history = history_of(passing())
    verdicts = run_checks(PLAN, history, Frames())
    assert {v.check: (v.status, v.why) for v in verdicts if v.status is not Status.HELD} == {}
    ids = [v.check for v in verdicts]
    assert ids == [
        "steady-state", "fault-in", "alert-fires", "no-other-alerts", "alert-resolves", "taint-set", "workload-canary",
        "workload-resubmitted", "workload-running", "workload-return", "remediation", "qa",
        "node-as-before", "undo-proof",
    ]  # fmt: skip
    seqs = {record.seq for record in history.records}
    assert all(set(v.evidence) <= seqs for v in verdicts)
    fires = next(v for v in verdicts if v.check == "alert-fires")
    assert (fires.measured, fires.bound, fires.node) == ("5.4 s", "≤ 30 s", NODE)
    fired = next(r for r in history.records if r.seq == fires.evidence[0]).event
    assert isinstance(fired, AlertSeen) and fired.state == "firing"


def test_an_alert_that_fires_too_late_is_broken_with_the_time_it_took():
    plan = with_plan(alerts=(PLAN.expect.alerts[0].model_copy(update={"within": timedelta(seconds=5)}),))
    verdict = judge(passing(), "alert-fires", plan)
    assert (verdict.status, verdict.measured, verdict.seconds) == (Status.BROKEN, "5.4 s", pytest.approx(5.4))
    assert "0.40 s too late" in verdict.why


def test_an_alert_that_never_fires_while_the_step_could_see_is_broken():
    verdict = judge(build.detector_off(), "alert-fires")
    assert (verdict.status, verdict.seconds, verdict.measured) == (Status.BROKEN, None, "")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: ended(t, Step.AWAIT_ALERT, StepOutcome.UNKNOWN, "Prometheus at http://127.0.0.1:9090 refused"),
        lambda t: [*t, Timed(12, Problem(step=Step.AWAIT_ALERT, what="Prometheus at http://127.0.0.1:9090 refused"))],
    ],
    ids=["step-unknown", "problem"],
)
def test_an_alert_nobody_could_see_is_unknown_not_broken(spoil):
    verdict = judge(spoil(build.detector_off()), "alert-fires")
    assert verdict.status is Status.UNKNOWN
    assert "Prometheus at" in verdict.why


def test_a_firing_alert_without_its_label_is_broken_and_says_which():
    timed = replacing(passing(), is_alert("firing"), labels={"severity": "warning"})
    verdict = judge(timed, "alert-fires")
    assert verdict.status is Status.BROKEN
    assert verdict.why == "fired, but label severity is 'warning', not 'critical'"


@pytest.mark.parametrize("change", [{"node": "another-node"}, {"at_baseline": True}, {"alert": "SomethingElse"}])
def test_only_this_alert_for_this_node_after_the_fault_counts(change):
    assert judge(replacing(passing(), is_alert("firing"), **change), "alert-fires").status is Status.BROKEN


def test_clocks_that_disagree_make_a_time_unknown():
    verdict = judge(replacing(passing(), is_alert("firing"), at=at(build.FAULT_AT - 7)), "alert-fires")
    assert verdict.status is Status.UNKNOWN
    assert "clocks disagree" in verdict.why


def test_steps_not_reached_are_unknown_and_say_why():
    refusal = [
        Timed(0.4, StepStarted(step=Step.BASELINE, deadline_s=60)),
        Timed(1, SteadyStateChecked(name="Prometheus", ok=None, detail="connection refused")),
        Timed(2, StepEnded(step=Step.BASELINE, outcome=StepOutcome.UNKNOWN, why="Prometheus is down")),
        Timed(3, Refused(why="Prometheus is down")),
    ]
    verdicts = run_checks(PLAN, history_of(refusal), Frames())
    assert {v.status for v in verdicts} == {Status.UNKNOWN}
    later = [v for v in verdicts if v.check != "steady-state"]
    assert later
    assert all("not reached" in v.why for v in later), [(v.check, v.why) for v in later]
    assert "Prometheus is down" in next(v.why for v in later if v.check == "alert-fires")


@pytest.mark.parametrize("seconds", [0.2, 3.0, 9.0, 12.5, 18.0, 25.0, 40.0, 45.7])
def test_a_killed_run_is_never_broken_only_unknown(seconds):
    verdicts = run_checks(PLAN, history_of(build.cut_off(passing(), seconds)), Frames())
    assert {v.status for v in verdicts} <= {Status.HELD, Status.UNKNOWN}
    assert Status.UNKNOWN in {v.status for v in verdicts}


def test_an_empty_history_is_unknown_throughout():
    assert {v.status for v in run_checks(PLAN, History(()), Frames())} == {Status.UNKNOWN}


def test_resolution_counts_from_the_end_of_remediation():
    assert judge(passing(), "alert-resolves").seconds == pytest.approx(2.8)
    late = replacing(passing(), is_alert("resolved"), at=at(31.2 + 31))
    assert judge(late, "alert-resolves").status is Status.BROKEN
    assert judge(without(passing(), is_alert("resolved")), "alert-resolves").status is Status.BROKEN
    early = judge(replacing(passing(), is_alert("resolved"), at=at(25)), "alert-resolves")
    assert (early.status, early.seconds) == (Status.HELD, 0.0)


def test_a_resolution_that_a_later_firing_takes_back_is_none():
    again = next(t for t in passing() if is_alert("firing")(t.event)).event.model_copy(update={"at": at(36)})
    assert judge([*passing(), Timed(36.2, again)], "alert-resolves").status is Status.BROKEN


def of_another_gpu(state: str, seconds: float) -> Timed:
    """The plan's alert for the same node, as its rule by PCI bus id fires for a second GPU."""
    one = next(t.event for t in passing() if is_alert("firing")(t.event))
    labels = one.labels | {"pci_bus_id": "0000:18:00"}
    return Timed(seconds + 0.3, one.model_copy(update={"labels": labels, "state": state, "at": at(seconds)}))


def test_an_alert_resolves_when_the_last_of_its_label_sets_does():
    fired = [*passing(), of_another_gpu("firing", 15.5)]
    still = judge(fired, "alert-resolves")
    assert (still.status, still.seconds) == (Status.BROKEN, None)
    assert still.why == "1 of its 2 label sets did not resolve: not seen while the run recovered the node"
    slow = judge([*fired, of_another_gpu("resolved", 34.4)], "alert-resolves")
    assert (slow.status, slow.seconds) == (Status.HELD, pytest.approx(3.2))
    assert judge([*fired, of_another_gpu("pending", 34.1)], "alert-resolves").seconds == pytest.approx(2.9)
    only_pending = [*passing(), of_another_gpu("pending", 15.5)]
    assert judge(only_pending, "alert-resolves").seconds == pytest.approx(2.8)


def quarantined(*, returned: bool = True) -> tuple[list[Timed], object]:
    """A run whose alert reads the taint, which goes with the node's return; and its plan."""
    timed = replacing(passing(), lambda e: isinstance(e, AlertSeen), alert="NodeQuarantined")
    alert = PLAN.expect.alerts[0].model_copy(update={"name": "NodeQuarantined"})
    timed = timed if returned else without(timed, is_kind(NodeReturned))
    return timed, with_plan(alerts=(alert,))


def test_an_alert_of_the_quarantine_counts_from_the_nodes_return():
    timed, plan = quarantined()
    back = next(one.seconds for one in timed if isinstance(one.event, NodeReturned))
    resolved = judge(replacing(timed, is_alert("resolved"), at=at(back + 20)), "alert-resolves", plan)
    assert (resolved.status, resolved.seconds, resolved.step) == (Status.HELD, pytest.approx(20), Step.QA_NODE)
    assert "after its return" in resolved.expectation
    late = replacing(timed, is_alert("resolved"), at=at(back + 31))
    assert judge(late, "alert-resolves", plan).status is Status.BROKEN
    assert judge(without(timed, is_alert("resolved")), "alert-resolves", plan).status is Status.BROKEN


def test_an_alert_of_the_quarantine_is_not_asked_to_resolve_of_a_node_that_stays_out():
    timed, plan = quarantined(returned=False)
    assert judge(without(timed, is_alert("resolved")), "alert-resolves", plan).status is Status.UNKNOWN


@pytest.mark.parametrize(
    ("alert", "expect", "status"),
    [
        ("NodeQuarantined", {}, Status.HELD),
        ("NodeQuarantined", {"taints": ()}, Status.BROKEN),
        ("NodeGPUConditionFailed", {}, Status.BROKEN),
        (
            "NodeGPUConditionFailed",
            {"conditions": (ExpectedCondition(type="GPUXidFault", status="True", within=timedelta(seconds=30)),)},
            Status.HELD,
        ),
    ],
)
def test_an_alert_that_only_shows_what_the_plan_expects_of_the_detector_is_no_other(alert, expect, status):
    beside = Timed(15.2, other_alert().event.model_copy(update={"alert": alert}))
    verdict = judge([*passing(), beside], "no-other-alerts", with_plan(**expect))
    assert verdict.status is status
    assert alert in (verdict.measured if status is Status.HELD else verdict.why)


def other_alert(node: str | None = NODE, **change) -> Timed:
    event = AlertSeen(alert="KubeletDown", state="firing", labels={}, node=node, expected=False, at=at(15), **change)
    return Timed(15.2, event)


def test_unexpected_alerts_break_unless_allowed_or_there_before():
    broken = judge([*passing(), other_alert()], "no-other-alerts")
    assert (broken.status, broken.measured) == (Status.BROKEN, "1 alert")
    assert f"KubeletDown ({NODE})" in broken.why
    assert judge([*passing(), other_alert(at_baseline=True)], "no-other-alerts").status is Status.HELD
    allowed = run_checks(with_plan(allow_other_alerts=True), history_of([*passing(), other_alert()]), Frames())
    assert not [v for v in allowed if v.check == "no-other-alerts"]


@pytest.mark.parametrize(
    "other",
    [
        other_alert("somebody-elses-node"),
        other_alert(since=at(build.FAULT_AT - 60)),
        other_alert(None, since=at(build.FAULT_AT - 60)),
        other_alert(None, background=True),
    ],
    ids=["another-node", "pending-before-the-fault", "of-the-cluster-before-the-fault", "background"],
)
def test_an_alert_that_the_fault_cannot_have_set_off_is_listed_apart_and_breaks_nothing(other: Timed):
    verdict = judge([*passing(), other], "no-other-alerts")
    assert (verdict.status, verdict.why) == (Status.HELD, "")
    assert (
        verdict.measured
        == f"0 alerts; beside it 1 alert of other origin: KubeletDown ({other.event.node or 'no node'})"
    )


def test_an_alert_of_no_node_that_began_after_the_fault_may_be_its_doing():
    verdict = judge([*passing(), other_alert(None, since=at(build.FAULT_AT + 1))], "no-other-alerts")
    assert (verdict.status, verdict.why) == (Status.BROKEN, "KubeletDown (no node)")


def test_no_other_alert_is_only_held_when_the_window_could_be_watched():
    blind = ended(passing(), Step.AWAIT_ALERT, StepOutcome.UNKNOWN, "Prometheus went away")
    assert judge(blind, "no-other-alerts").status is Status.UNKNOWN
    seen_anyway = judge([*blind, other_alert()], "no-other-alerts")
    assert seen_anyway.status is Status.BROKEN


@pytest.mark.parametrize(
    "taint",
    [
        Taint(key=TAINT.key, value="yes", effect="NoSchedule"),
        Taint(key=TAINT.key, value="true", effect="NoExecute"),
    ],
)
def test_a_taint_with_another_value_or_effect_is_broken(taint):
    verdict = judge(replacing(passing(), lambda e: isinstance(e, TaintSeen) and e.present, taint=taint), "taint-set")
    assert verdict.status is Status.BROKEN
    assert str(taint) in verdict.why


def test_a_taint_in_time_late_and_absent():
    assert judge(passing(), "taint-set").seconds == pytest.approx(0.97)
    late = replacing(passing(), lambda e: isinstance(e, TaintSeen) and e.present, at=at(build.FAULT_AT + 15.5))
    assert judge(late, "taint-set").status is Status.BROKEN
    assert judge(without(passing(), is_kind(TaintSeen)), "taint-set").status is Status.BROKEN


@pytest.mark.parametrize("purpose", ["canary", "resubmitted", "running", "return"])
@pytest.mark.parametrize(("ok", "status"), [(False, Status.BROKEN), (None, Status.UNKNOWN), (True, Status.HELD)])
def test_workloads_follow_what_was_observed(purpose, ok, status):
    timed = replacing(passing(), lambda e: isinstance(e, WorkloadSeen) and e.purpose == purpose, ok=ok)
    assert judge(timed, f"workload-{purpose}").status is status


@pytest.mark.parametrize(("purpose", "node"), [("canary", NODE), ("resubmitted", NODE), ("return", "gpu-node-06")])
def test_a_pod_in_the_wrong_place_is_broken_whatever_its_observer_says(purpose, node):
    timed = replacing(passing(), lambda e: isinstance(e, WorkloadSeen) and e.purpose == purpose, node=node, ok=True)
    assert judge(timed, f"workload-{purpose}").status is Status.BROKEN


def test_the_newest_sighting_of_a_pod_counts():
    pending = next(t for t in passing() if isinstance(t.event, WorkloadSeen) and t.event.purpose == "resubmitted")
    early = Timed(18, pending.event.model_copy(update={"ok": None, "phase": "Pending", "node": None}))
    assert judge([*passing(), early], "workload-resubmitted").status is Status.HELD


def test_workload_no_pod_proves_nothing():
    timed = without(passing(), lambda e: isinstance(e, WorkloadSeen) and e.purpose == "running")
    assert judge(timed, "workload-running").status is Status.UNKNOWN


def test_remediation_failed_late_and_not_asked_for():
    assert (
        judge(replacing(passing(), is_kind(Remediated), ok=False, detail="timed out"), "remediation").status
        is Status.BROKEN
    )
    plan = PLAN.model_copy(update={"recover": PLAN.recover.model_copy(update={"within": timedelta(seconds=10)})})
    late = judge(passing(), "remediation", plan)
    assert (late.status, late.measured) == (Status.BROKEN, "10.1 s")
    none = PLAN.model_copy(update={"recover": PLAN.recover.model_copy(update={"remediation": "none"})})
    silent = run_checks(none, history_of(without(passing(), is_kind(Remediated))), Frames())
    assert not [v for v in silent if v.check == "remediation"]


@pytest.mark.parametrize(("ok", "status"), [(False, Status.BROKEN), (None, Status.UNKNOWN)])
def test_one_bad_qa_result_of_many_decides(ok, status):
    test = lambda e: isinstance(e, QaChecked) and (e.check, e.gpu) == ("GEMM BF16", 3)  # noqa: E731
    verdict = judge(replacing(passing(), test, ok=ok), "qa")
    assert (verdict.status, verdict.measured) == (status, "82 of 83 checks")
    assert "GEMM BF16 on GPU 3" in verdict.why


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"tainted": True}, "taint trainy.konduktor.ai/faulty on gpu-node-03 was absent"),
        ({"cordoned": True}, "scheduling on gpu-node-03 was schedulable and is cordoned"),
        ({"left": "over"}, "label left on gpu-node-03 was absent and is over"),
    ],
)
def test_a_node_that_ends_differently_is_broken_with_the_difference(after, words):
    test = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    verdict = judge(replacing(passing(), test, snapshot=snapshot(boot="other", **after)), "node-as-before")
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "1 difference")
    assert words in verdict.why


def test_a_cordons_taint_that_outlives_the_cordon_is_the_control_planes_delay():
    test = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    late = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    seen = snapshot(boot="other")
    verdict = judge(replacing(passing(), test, snapshot=seen.model_copy(update={"taints": (late,)})), "node-as-before")
    assert verdict.status is Status.UNKNOWN
    assert verdict.why.endswith("it is for the node lifecycle controller to take off")
    cordoned = seen.model_copy(update={"taints": (late,), "unschedulable": True})
    assert judge(replacing(passing(), test, snapshot=cordoned), "node-as-before").status is Status.BROKEN


def test_a_node_not_seen_at_the_end_is_unknown_though_the_step_ended_well():
    verdict = judge(without(passing(), lambda e: isinstance(e, NodeSeen) and e.phase == "after"), "node-as-before")
    assert verdict.status is Status.UNKNOWN


def test_undo_proof_needs_every_intent():
    one = lambda e: isinstance(e, FaultUndone) and e.intent == "i3"  # noqa: E731
    assert judge(without(passing(), one), "undo-proof").status is Status.UNKNOWN
    dirty = judge(replacing(passing(), one, cleanliness=Cleanliness.DIRTY), "undo-proof")
    assert (dirty.status, dirty.measured) == (Status.BROKEN, "3 of 4 changes")
    assert "canary" in dirty.why
    retried = replacing(passing(), one, cleanliness=Cleanliness.DIRTY)
    again = next(t for t in passing() if one(t.event))
    assert judge([*retried, Timed(46.25, again.event)], "undo-proof").status is Status.HELD
    assert judge(without(passing(), is_kind(IntentRecorded, FaultUndone)), "undo-proof").status is Status.UNKNOWN


def test_a_fault_that_never_went_in_tests_nothing():
    timed = ended(
        without(passing(), is_kind(FaultInjected)), Step.INJECT, StepOutcome.BROKEN, "the pod never became ready"
    )
    assert judge(timed, "fault-in").status is Status.UNKNOWN
    verdict = judge(timed, "alert-fires")
    assert verdict.status is Status.UNKNOWN
    assert "the pod never became ready" in verdict.why


def test_a_steady_state_that_is_not_steady():
    gate = lambda e: isinstance(e, SteadyStateChecked) and e.name == "log path"  # noqa: E731
    assert judge(replacing(passing(), gate, ok=False), "steady-state").status is Status.BROKEN
    assert judge(replacing(passing(), gate, ok=None), "steady-state").status is Status.UNKNOWN


def test_a_check_that_raises_is_one_unknown_verdict(monkeypatch):
    from gameday.checks import qa

    def explode(plan, history, frames):
        raise ZeroDivisionError("so many GPUs")

    monkeypatch.setattr(qa, "check", explode)
    verdicts = run_checks(PLAN, history_of(passing()), Frames())
    (bad,) = [v for v in verdicts if v.status is not Status.HELD]
    assert (bad.check, bad.status) == ("qa", Status.UNKNOWN)
    assert "ZeroDivisionError: so many GPUs" in bad.why
    assert len(verdicts) == 14


def test_every_check_module_states_its_order():
    assert [one.name for one in run_module.checks_of(PLAN) if one.order >= 1000] == []


def test_an_alert_can_be_named_for_each_of_several_nodes():
    second = "gpu-node-04"
    both = replacing(
        passing(),
        lambda e: e.kind == "targets_chosen",
        targets=tuple(build.Target(node=node, gpu=0) for node in (NODE, second)),
    )
    verdicts = {v.node: v.status for v in run_checks(PLAN, history_of(both), Frames()) if v.check == "alert-fires"}
    assert verdicts == {NODE: Status.HELD, second: Status.UNKNOWN}
    assert ALERT in PLAN.expect.alerts[0].name


def test_without_remediation_the_alert_resolves_from_the_faults_own_undo():
    none = PLAN.model_copy(update={"recover": PLAN.recover.model_copy(update={"remediation": "none"})})
    verdict = judge(without(passing(), is_kind(Remediated)), "alert-resolves", none)
    assert verdict.seconds == pytest.approx(34.0 - 22.3)  # not from i1, i3 or i4, which undo other things


def test_an_annotation_of_ours_that_stays_is_residue():
    after = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    left = snapshot().model_copy(update={"annotations": {"gameday.dev/faulty-reason": "x" * 500}})
    verdict = judge(replacing(passing(), after, snapshot=left), "node-as-before")
    assert verdict.status is Status.BROKEN
    assert len(verdict.why) < 200


def test_a_why_is_a_sentence_not_a_listing():
    verdict = judge(replacing(passing(), is_kind(QaChecked), ok=False), "qa")
    assert verdict.why.endswith("; and 80 more")
