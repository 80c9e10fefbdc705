"""Nodes and pods beside a fault of the control plane: left alone, come to harm, or not read."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected
from gameday.history.frames import Frames
from gameday.values.nodes import NodeReadiness
from gameday_control_plane.checks.nodes_and_pods import check
from gameday_control_plane.events import NodesAndPodsSeen
from gameday_control_plane.expect.control_plane import ExpectedContainment
from tests.report.run_builder import PLAN, Timed, history_of, passing

PLAN_HERE = PLAN.model_copy(
    update={"expect": PLAN.expect.model_copy(update={"containment": ExpectedContainment(nodes_and_pods_stay=True)})}
)
RUN = passing()
WRITTEN = next(event.written_at for event in history_of(RUN).of(FaultInjected))
LONG_AGO = WRITTEN - timedelta(hours=1)
READY = NodeReadiness(ready=True, since=LONG_AGO)


def seen(phase: str, nodes: dict[str, NodeReadiness], **pods: str) -> Timed:
    return Timed(0, NodesAndPodsSeen.model_validate({"phase": phase, "nodes": nodes, "pods": pods}))


def judged(*timed: Timed) -> dict[str, Verdict]:
    return {one.check: one for one in check(PLAN_HERE, history_of([*timed, *RUN]), Frames())}


BEFORE = seen("before", {"a": READY, "b": READY}, uid1="training/one", uid2="training/two")


def test_what_is_as_it_was_holds() -> None:
    verdicts = judged(
        BEFORE, seen("after", {"a": READY, "b": READY}, uid1="training/one", uid2="training/two", uid3="x/y")
    )
    assert {one.status for one in verdicts.values()} == {Status.HELD}
    assert verdicts["containment-nodes"].measured == "0 of 2 nodes"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (None, "b is gone"),
        (NodeReadiness(ready=False, since=WRITTEN), "b is NotReady"),
        (NodeReadiness(ready=True, since=WRITTEN + timedelta(seconds=9)), "b was NotReady, and is Ready again since"),
    ],
)
def test_a_node_that_was_not_ready_all_the_time_breaks_it(now: NodeReadiness | None, why: str) -> None:
    after = {"a": READY} | ({"b": now} if now else {})
    verdict = judged(BEFORE, seen("after", after, uid1="training/one", uid2="training/two"))["containment-nodes"]
    assert (verdict.status, verdict.measured) == (Status.BROKEN, "1 of 2 nodes")
    assert why in verdict.why


def test_a_node_that_was_not_ready_before_is_not_this_faults() -> None:
    before = seen("before", {"a": READY, "b": NodeReadiness(ready=False, since=LONG_AGO)}, uid1="x/y")
    after = seen(
        "after", {"a": READY, "b": NodeReadiness(ready=True, since=WRITTEN + timedelta(seconds=3))}, uid1="x/y"
    )
    assert judged(before, after)["containment-nodes"].status is Status.HELD


def test_a_pod_that_is_ended_breaks_it_and_is_named() -> None:
    verdict = judged(BEFORE, seen("after", {"a": READY, "b": READY}, uid1="training/one"))["containment-pods"]
    assert (verdict.status, verdict.why) == (Status.BROKEN, "training/two")


@pytest.mark.parametrize("timed", [[], [BEFORE], [seen("before", {}), seen("after", {})]])
def test_what_was_not_read_or_not_there_is_unknown(timed: list[Timed]) -> None:
    verdicts = judged(*timed)
    assert {one.status for one in verdicts.values()} == {Status.UNKNOWN}
    assert all(one.why for one in verdicts.values())


def test_a_plan_that_does_not_ask_gets_no_verdict() -> None:
    plan = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"containment": ExpectedContainment()})})
    assert check(plan, history_of([BEFORE, *RUN]), Frames()) == []


def test_the_moment_of_a_change_is_known_to_the_second_only() -> None:
    """A condition's time has no fraction, so that a change in the fault's own second is one after it."""
    since: datetime = WRITTEN.replace(microsecond=0)
    after = seen(
        "after", {"a": READY, "b": NodeReadiness(ready=True, since=since)}, uid1="training/one", uid2="training/two"
    )
    assert judged(BEFORE, after)["containment-nodes"].status is Status.BROKEN
