"""Verdicts from histories."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.exit_codes import ExitCode
from gameday.history.journal import History
from gameday.values.results import Cleanliness
from gameday_prove.judge import ALERTS, Proof, ProofVerdict, Word, judge
from gameday_prove.leftovers import left_by_others
from gameday_prove.look import profiles
from gameday_prove.values import LoadedRule, Posture
from tests.prove.histories import (
    CONDITION_RULE,
    alert,
    condition,
    cordon,
    event,
    history,
    monitoring,
    taint,
)

NPD = "node-problem-detector"
NOTICED = (event(200.2), condition(200.9))


def judged(found: History) -> Proof:
    return judge(found, {one.name: one for one in profiles()})


def on(proof: Proof, who: str, line: int = 3) -> ProofVerdict:
    (one,) = [one for one in proof.of_line(line) if one.who == who]
    return one


def test_what_answers_in_time_has_noticed() -> None:
    proof = judged(history(*NOTICED))
    one = on(proof, NPD)
    assert (one.word, one.seconds) == (Word.NOTICED, pytest.approx(0.2))
    assert "GPUXidFault=True after 0.9 s" in one.why
    assert (proof.outcome, proof.exit_code) == (RunOutcome.PASSED, ExitCode.PASSED)


def test_a_line_that_it_cannot_see_by_its_profile_is_no_fault_of_the_cluster() -> None:
    proof = judged(history(*NOTICED))
    for line in (1, 2):
        assert on(proof, NPD, line).word is Word.BLIND and not on(proof, NPD, line).is_red


def test_nothing_is_missed() -> None:
    proof = judged(history())
    assert on(proof, NPD).word is Word.MISSED
    assert (proof.exit_code, proof.headline) == (ExitCode.FAILED, f"{NPD}: missed.")


def test_half_of_an_answer_is_missed_and_says_which_half() -> None:
    one = on(judged(history(event(200.2))), NPD)
    assert one.word is Word.MISSED
    assert one.why.startswith("no GPUXidFault=True; it did show Event GPUXidHardware after 0.2 s")


def test_an_answer_after_its_bound_is_late() -> None:
    one = on(judged(history(event(200.2), condition(275.0))), NPD)
    assert (one.word, one.is_red) == (Word.LATE, True)
    assert "wanted GPUXidFault=True within 60 s" in one.why


def test_an_answer_before_the_line_is_none() -> None:
    assert on(judged(history(event(150.0), condition(150.0))), NPD).word is Word.MISSED


def test_a_known_reason_makes_it_blind() -> None:
    reason = "DaemonSet ns/npd has no pod on this node"
    one = on(judged(history(blind=[reason])), NPD)
    assert (one.word, one.why, one.is_red) == (Word.BLIND, f"because {reason}", True)


def test_a_suspected_reason_counts_for_nothing_if_it_noticed() -> None:
    assert on(judged(history(*NOTICED, blind=["its pod is not ready"])), NPD).word is Word.NOTICED


def test_a_quarantine_for_a_harmless_line_is_wrong_and_named() -> None:
    proof = judged(history(taint(1.5, "example.com/broken"), cordon(101.0), *NOTICED))
    assert on(proof, "some-controller", 1).word is Word.WRONGLY_ACTED
    assert "cordoned the node after 1.0 s (written by kubectl)" in on(proof, "kubectl", 2).why
    assert proof.exit_code is ExitCode.FAILED


def test_a_quarantine_that_a_profile_foresees_is_right() -> None:
    proof = judged(history(taint(4.0), detectors=["konduktor"], posture=Posture.QUARANTINE, played=1))
    assert on(proof, "konduktor", 1).word is Word.NOTICED
    assert on(proof, "konduktor", 2).word is Word.NOT_JUDGED
    assert proof.exit_code is ExitCode.PASSED


def test_a_mark_that_stood_before_the_line_is_not_judged() -> None:
    proof = judged(history(taint(4.0), detectors=["konduktor"], posture=Posture.QUARANTINE, played=2))
    assert on(proof, "konduktor", 2).why.endswith("stood since the line before")


def test_a_mark_that_went_and_did_not_come_again_is_missed() -> None:
    events = (taint(4.0), taint(50.0, present=False))
    proof = judged(history(*events, detectors=["konduktor"], posture=Posture.QUARANTINE, played=2))
    assert on(proof, "konduktor", 2).word is Word.MISSED


@pytest.mark.parametrize(
    ("events", "word", "why"),
    [
        ((taint(204.0), taint(240.0, present=False)), Word.NOTICED, "back in service after 40.0 s"),
        ((taint(204.0),), Word.MISSED, "still out of service: trainy.konduktor.ai/faulty=true:NoSchedule"),
        ((taint(204.0), cordon(205.0), taint(240.0, present=False)), Word.MISSED, "still out of service: the cordon"),
        ((), Word.NOT_JUDGED, "never left service"),
    ],
)
def test_a_repair_is_judged_by_the_nodes_return(events: tuple[Any, ...], word: Word, why: str) -> None:
    proof = judged(history(event(200.1, "GPUXid79"), *events, detectors=["gameday"], posture=Posture.REPAIR))
    one = on(proof, "repair")
    assert (one.word, one.is_red) == (word, word is Word.MISSED)
    assert why in one.why


def test_an_event_that_nobody_foresees_is_shown_and_proves_nothing() -> None:
    proof = judged(history(event(2.0, "GPUTrouble", "in-house"), detectors=[], played=2))
    assert "Event GPUTrouble after 2.0 s" in on(proof, "in-house", 1).why
    assert proof.outcome is RunOutcome.UNKNOWN


def test_a_firing_alert_has_noticed() -> None:
    proof = judged(
        history(*NOTICED, alert(231.0, state="pending"), alert(260.0), prometheus=monitoring(CONDITION_RULE))
    )
    assert on(proof, ALERTS).why == "GPUBroken fires after 60.0 s"


def test_a_deleted_rule_is_named() -> None:
    other = LoadedRule(name="Hot", query="DCGM_FI_DEV_GPU_TEMP > 90")
    one = on(judged(history(*NOTICED, prometheus=monitoring(other))), ALERTS)
    assert (one.word, one.is_red) == (Word.BLIND, True)
    assert "none of 90 loaded rules reads" in one.why and "GPUXidFault=True" in one.why


def test_a_rule_whose_label_never_matches_is_named() -> None:
    dead = CONDITION_RULE.model_copy(update={"never": "there is no such series"})
    one = on(judged(history(*NOTICED, prometheus=monitoring(dead))), ALERTS)
    assert (one.word, one.why) == (Word.BLIND, "because GPUBroken never can: there is no such series")


def test_a_rule_about_another_condition_reads_nothing_of_it() -> None:
    other = LoadedRule(name="Other", query='kube_node_status_condition{condition="GPUXidFalt"} == 1')
    assert on(judged(history(*NOTICED, prometheus=monitoring(other))), ALERTS).word is Word.BLIND


def test_a_rule_that_could_fire_and_does_not_has_missed() -> None:
    one = on(judged(history(*NOTICED, alert(290.0, state="pending"), prometheus=monitoring(CONDITION_RULE))), ALERTS)
    assert one.word is Word.MISSED and "pending: GPUBroken" in one.why


def test_a_rule_is_not_blamed_for_a_detector_that_showed_nothing() -> None:
    assert on(judged(history(prometheus=monitoring(CONDITION_RULE))), ALERTS).word is Word.NOT_JUDGED


def test_without_prometheus_no_alert_is_judged() -> None:
    assert not [one for one in judged(history(*NOTICED)).verdicts if one.who == ALERTS]


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ({"stopped": "you pressed Ctrl-C"}, ExitCode.ABORTED),
        ({"cleanliness": Cleanliness.DIRTY}, ExitCode.DIRTY),
        ({"cleanliness": Cleanliness.UNKNOWN}, ExitCode.UNKNOWN),
    ],
)
def test_the_end_decides_before_the_verdicts(end: dict[str, object], code: ExitCode) -> None:
    assert judged(history(*NOTICED, **end)).exit_code is code


def test_a_killed_proof_has_ended_early() -> None:
    proof = judged(history(*NOTICED, ended=False))
    assert (proof.outcome, on(proof, NPD).word) == (RunOutcome.ABORTED, Word.NOTICED)


def test_where_every_detector_is_blind_by_its_design_nobody_would_notice() -> None:
    proof = judged(history(detectors=["device-plugin"]))
    assert (proof.exit_code, proof.headline) == (ExitCode.FAILED, "Nothing that is installed here can see such a line.")


def test_what_others_left_is_named_with_the_way_out() -> None:
    left = left_by_others(
        history(*NOTICED, taint(201.0), cordon(202.0), taint(203.0, "x/gone"), taint(204.0, "x/gone", present=False))
    )
    assert [line.partition(" ")[0] for line in left] == ["taint", "cordon", "condition"]
    assert "`kubectl taint node gpu-1 trainy.konduktor.ai/faulty:NoSchedule-`" in left[0]
    assert "`kubectl uncordon gpu-1`" in left[1]
    assert "GPUXidFault=True" in left[2]
