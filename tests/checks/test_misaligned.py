"""A pod that no single NUMA node can serve: what its end says of the Topology Manager."""

from __future__ import annotations

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.cluster.pods import PodSeen
from gameday.expect.topology_manager_rejects import MisalignedPod
from gameday.history.events import WorkloadSeen
from gameday.history.frames import Frames
from gameday.tasks.moments.topology_probe import judge_rejection
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import NODE, PLAN, Timed, ended, history_of, passing

ASKS = MisalignedPod(gpus=5)
EXPECTED = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"topology_manager_rejects": ASKS})})


def pod(phase: str, reason: str = "", unschedulable: str | None = None) -> PodSeen:
    node = None if unschedulable else NODE
    return PodSeen("p", "u", "misaligned", node, phase, reason, False, False, unschedulable, None, None)


@pytest.mark.parametrize(
    ("seen", "ok", "why"),
    [
        (pod("Failed", "TopologyAffinityError"), True, "rejected: TopologyAffinityError"),
        (pod("Running"), False, "not single-numa-node, or a NUMA node has 5 GPU(s) and 1 CPU(s)"),
        (pod("Failed", "OutOfcpu"), None, "Failed OutOfcpu"),
        (pod("Pending"), None, "Pending"),
        (pod("Pending", unschedulable="0/3 nodes: Insufficient cpu"), None, "no room for it: 0/3 nodes"),
        (None, None, "never seen"),
    ],
)
def test_only_the_rejection_for_topology_counts_as_one(seen: PodSeen | None, ok: bool | None, why: str) -> None:
    judged, detail = judge_rejection(seen, ASKS)
    assert judged is ok
    assert why in detail


def noted(ok: bool | None, phase: str, detail: str = "") -> Timed:
    event = WorkloadSeen(purpose="misaligned", pod="p", node=NODE, phase=phase, wanted="", ok=ok, detail=detail)
    return Timed(0, event)


def verdict(*timed: Timed, run: list[Timed] | None = None) -> Verdict:
    verdicts = run_checks(EXPECTED, history_of([*timed, *(run or passing())]), Frames())
    found = [one for one in verdicts if one.check == "workload-misaligned"]
    assert len(found) == 1, found
    return found[0]


def test_a_rejected_pod_holds_and_names_its_record() -> None:
    held = verdict(noted(True, "Failed"))
    assert (held.status, held.bound, len(held.evidence)) == (Status.HELD, "TopologyAffinityError", 1)


def test_a_pod_that_runs_breaks_it() -> None:
    assert verdict(noted(False, "Running", "admitted")).status is Status.BROKEN


def test_a_running_pod_is_no_rejected_one_whatever_the_observer_says() -> None:
    assert verdict(noted(True, "Running")).status is Status.BROKEN


def test_no_room_is_unknown_with_the_reason() -> None:
    unknown = verdict(noted(None, "", "0 GPU(s) are free"))
    assert (unknown.status, "0 GPU(s) are free" in unknown.why) == (Status.UNKNOWN, True)


def test_no_pod_sent_and_a_step_cut_off_are_unknown() -> None:
    assert verdict().status is Status.UNKNOWN
    assert verdict(run=ended(passing(), Step.VERIFY_TAINT, StepOutcome.ABORTED)).status is Status.UNKNOWN


def test_a_plan_without_such_a_pod_is_not_judged() -> None:
    assert not [v for v in run_checks(PLAN, history_of(passing()), Frames()) if v.check == "workload-misaligned"]
