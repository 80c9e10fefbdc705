"""A gang must land on fast nodes, all of it: held, broken, unknown, and cut off."""

from __future__ import annotations

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.expect.placement import ExpectedPlacement
from gameday.history.events import GangPlaced, GangPod
from gameday.history.frames import Frames
from gameday.report.narration import narrate
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import PLAN, Timed, ended, history_of, passing

GANG = ExpectedPlacement(pods=2)
EXPECTED = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"placement": GANG})})
FULL = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def on(gpu_class: str, node: str | None = "n1", unschedulable: str = "") -> GangPod:
    return GangPod(pod="p", node=node, gpu_class=gpu_class, unschedulable=unschedulable)


def placed(*pods: GangPod, why_not: str = "") -> Timed:
    return Timed(0, GangPlaced(pods=pods, prefers_fast=True, why_not_sent=why_not))


def verdict(*timed: Timed, run: list[Timed] | None = None) -> Verdict:
    verdicts = run_checks(EXPECTED, history_of([*timed, *(run or passing())]), Frames())
    (found,) = [one for one in verdicts if one.check == "placement"]
    return found


def test_a_gang_on_fast_nodes_holds_and_names_its_record() -> None:
    held = verdict(placed(on("fast"), on("fast", "n2")))
    assert (held.status, held.bound, held.measured) == (Status.HELD, "all, ≤ 60 s", "2 class fast")
    assert len(held.evidence) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (on("slow"), "p is on n1, class slow"),
        (on("typical"), "p is on n1, class typical"),
        (on(""), "p is on n1, without a class"),
        (on("", None), "p has no node"),
    ],
)
def test_one_pod_elsewhere_or_forgotten_breaks_it(other: GangPod, why: str) -> None:
    broken = verdict(placed(on("fast"), other))
    assert (broken.status, broken.why) == (Status.BROKEN, why)


def test_a_pod_that_fits_nowhere_proves_nothing_and_one_elsewhere_still_breaks_it() -> None:
    unknown = verdict(placed(on("fast"), on("", None, FULL)))
    assert (unknown.status, unknown.why) == (Status.UNKNOWN, f"p: {FULL}")
    assert unknown.measured == "1 class fast, 1 without a node"
    assert verdict(placed(on("slow"), on("", None, FULL))).status is Status.BROKEN


def test_a_gang_that_was_not_sent_is_unknown_with_the_reason() -> None:
    unknown = verdict(placed(why_not="no node has the label"))
    assert (unknown.status, unknown.why, unknown.measured) == (Status.UNKNOWN, "no node has the label", "")


def test_no_record_and_a_step_cut_off_are_unknown() -> None:
    assert verdict().status is Status.UNKNOWN
    assert verdict(run=ended(passing(), Step.VERIFY_TAINT, StepOutcome.ABORTED)).status is Status.UNKNOWN


def test_a_plan_without_a_gang_is_not_judged() -> None:
    assert not [one for one in run_checks(PLAN, history_of(passing()), Frames()) if one.check == "placement"]


def test_the_timeline_says_where_the_gang_is_and_why_none_was_sent() -> None:
    def said(timed: Timed) -> tuple[str, str]:
        (record,) = history_of([timed]).records
        sentence = narrate(record.event)
        assert sentence is not None
        return sentence.text, sentence.tone

    text = "A gang of 2 pods, which prefers fast nodes, on n1; n2"
    assert said(placed(on("fast"), on("fast", "n2"))) == (text, "good")
    assert said(placed(on("fast"), on("slow", "n2"))) == (f"{text}: p is on n2, class slow", "bad")
    assert said(placed(why_not="no room")) == ("No gang was sent: no room", "doubt")
