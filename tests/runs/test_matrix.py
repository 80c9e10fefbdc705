"""A run as a row of the matrix: which signal came when, and what its absence means."""

from __future__ import annotations

import pandas as pd
import pytest

from gameday.checks.outcome import RunOutcome
from gameday.detectors.signals import Signal
from gameday.history.events import (
    Aborted,
    AlertSeen,
    AllocatableSeen,
    CanaryMeasured,
    ConditionSeen,
    Event,
    FaultInjected,
    GuestNamed,
    GuestSpoke,
    GuestState,
    HopSeen,
    KubernetesEventSeen,
    NodeSeen,
    Problem,
    TaintSeen,
)
from gameday.history.frames import Frames
from gameday.plan.models import Plan
from gameday.report.run_folder import RunFolder
from gameday.runs.cells import CellState, CoverageCell
from gameday.runs.matrix import FaultNoticed, FaultRow, joined, matrix_of
from gameday.values.results import Step, StepOutcome
from tests.report.run_builder import FAULT_AT, NODE, Timed, at, detector_off, ended, frames, passing, snapshot, without
from tests.runs.row_builders import no_fault, plan, seen, stored


def row(run: RunFolder) -> FaultRow:
    (only,) = matrix_of(run).rows
    return only


LOST = plan()


def cell(signal: Signal, *more: Timed, plan: Plan = LOST, timed: list[Timed] | None = None) -> CoverageCell:
    return row(stored(plan, [*(timed if timed is not None else passing()), *more])).cell(signal)


def test_every_signal_has_a_cell_in_the_order_of_the_chain() -> None:
    assert [one.signal for one in row(stored(plan())).cells] == [one for one in Signal if one is not Signal.SAID]


@pytest.mark.parametrize(
    ("signal", "what"),
    [
        (Signal.LOG, "the kernel-log line in the log store"),
        (Signal.ALERT, "GpuXidCritical"),
        (Signal.TAINT, "trainy.konduktor.ai/faulty=true:NoSchedule"),
    ],
)
def test_an_expected_signal_is_a_latency_from_the_fault_going_in(signal: Signal, what: str) -> None:
    found = cell(signal)
    assert (found.state, found.what) == (CellState.SEEN, what)
    assert found.seconds is not None
    assert 0 < found.seconds < 6


def test_a_signal_that_was_looked_for_and_did_not_come_is_missed_and_a_gap() -> None:
    quiet = without(passing(), lambda e: isinstance(e, TaintSeen))
    matrix = matrix_of(stored(plan(), quiet))
    assert matrix.rows[0].cell(Signal.TAINT).state is CellState.MISSED
    (gap,) = [gap for gap in matrix.gaps if gap.signals == (Signal.TAINT,)]
    assert gap.why.startswith(f"not seen on {NODE} in the ")
    assert "lands on the broken node" in gap.advice


def test_a_signal_nobody_expects_and_nobody_saw_is_no_gap() -> None:
    found = cell(Signal.CONDITION, plan=plan(fault={"type": "power_cap", "watts": 300}))
    assert (found.state, found.text) == (CellState.NOT_EXPECTED, "not expected")


def test_a_signal_that_came_though_nobody_expects_it_keeps_its_latency() -> None:
    event = AlertSeen(alert="Odd", state="firing", labels={}, node=NODE, expected=False, at=at(FAULT_AT + 3))
    quiet = plan("control", stays_schedulable_for="15s", allow_other_alerts=True)
    timed = without(passing(), lambda e: isinstance(e, AlertSeen))
    found = cell(Signal.ALERT, seen(3, event), plan=quiet, timed=timed)
    assert (found.state, found.seconds, found.what) == (CellState.UNEXPECTED, 3.0, "Odd, which the plan does not name")


@pytest.mark.parametrize("alert", ["NodeQuarantined", "NodeGPUConditionFailed"])
def test_an_alert_that_only_shows_what_the_detector_did_is_no_notice_of_its_own(alert: str) -> None:
    event = AlertSeen(alert=alert, state="firing", labels={}, node=NODE, expected=False, at=at(FAULT_AT + 3))
    quiet = plan("control", stays_schedulable_for="15s", allow_other_alerts=True)
    timed = without(passing(), lambda e: isinstance(e, AlertSeen))
    assert cell(Signal.ALERT, seen(3, event), plan=quiet, timed=timed).state is CellState.NOT_EXPECTED
    named = event.model_copy(update={"expected": True})
    assert cell(Signal.ALERT, seen(3, named), timed=timed).state is CellState.SEEN


def test_an_alert_about_another_node_is_no_signal_of_this_fault() -> None:
    event = AlertSeen(alert="Odd", state="firing", labels={}, node="elsewhere", expected=False, at=at(FAULT_AT + 3))
    quiet = plan("control", stays_schedulable_for="15s", allow_other_alerts=True)
    timed = without(passing(), lambda e: isinstance(e, AlertSeen))
    assert cell(Signal.ALERT, seen(3, event), plan=quiet, timed=timed).state is CellState.NOT_EXPECTED


def test_a_step_that_could_not_see_makes_its_signals_unknown_with_the_reason() -> None:
    blind = ended(
        without(passing(), lambda e: isinstance(e, AlertSeen)),
        Step.AWAIT_ALERT,
        StepOutcome.UNKNOWN,
        "Prometheus did not answer",
    )
    found = cell(Signal.ALERT, timed=blind)
    assert found.state is CellState.UNKNOWN
    assert "Prometheus did not answer" in found.why


def test_a_signal_whose_step_the_flow_leaves_out_is_not_asked_and_no_gap() -> None:
    silent = without(passing(), lambda e: isinstance(e, AlertSeen | TaintSeen))
    unasked = ended(silent, Step.VERIFY_TAINT, StepOutcome.NOT_ASKED, "the flow leaves the step out")
    (row,) = matrix_of(stored(plan(), unasked)).rows
    taint = row.cell(Signal.TAINT)
    assert (taint.state, taint.why) == (CellState.NOT_ASKED, "the flow leaves the step out")
    assert row.cell(Signal.ALERT).state is CellState.MISSED
    assert Signal.TAINT not in {gap.signal for gap in row.gaps}
    assert row.noticed is FaultNoticed.NO
    unasked = ended(unasked, Step.AWAIT_ALERT, StepOutcome.NOT_ASKED, "the flow leaves the step out")
    assert matrix_of(stored(plan(), unasked)).rows[0].noticed is FaultNoticed.NOT_ASKED


def test_a_log_store_that_could_not_be_tailed_leaves_the_log_signal_unknown() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    blind = Problem(step=Step.AWAIT_ALERT, what="the log store could not be tailed: refused")
    found = cell(Signal.LOG, seen(1, blind), timed=timed)
    assert (found.state, found.why) == (CellState.UNKNOWN, "the log store could not be tailed: refused")


def test_without_samples_from_before_the_fault_a_metric_is_unknown() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    found = cell(Signal.METRIC, timed=timed)
    assert found.state is CellState.UNKNOWN
    assert "before the fault" in found.why


def test_a_metric_is_dated_by_its_first_sample_outside_the_baseline() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    moved = frames()
    moved.metrics = moved.metrics[moved.metrics["metric"] == "DCGM_FI_DEV_XID_ERRORS"]
    found = row(stored(plan(), timed, moved)).cell(Signal.METRIC)
    assert found.state is CellState.SEEN
    assert found.what == "DCGM_FI_DEV_XID_ERRORS of GPU 5 0 → 79"
    assert found.seconds == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("signal", "event", "what"),
    [
        (
            Signal.CONDITION,
            ConditionSeen(node=NODE, condition="GPUBad", status="True", reason="Xid", at=at(FAULT_AT + 2)),
            "GPUBad=True (Xid)",
        ),
        (Signal.ALLOCATABLE, AllocatableSeen(node=NODE, gpus=7, before=8, at=at(FAULT_AT + 2)), "8 → 7 GPUs"),
        (
            Signal.EVENT,
            KubernetesEventSeen(
                node=NODE, reason="GPUXid79", type="Warning", source="npd", message="", at=at(FAULT_AT + 2)
            ),
            "GPUXid79 of npd",
        ),
    ],
)
def test_what_the_watches_of_the_node_showed_is_a_signal(signal: Signal, event: Event, what: str) -> None:
    found = cell(signal, seen(2, event))
    assert found.state in (CellState.SEEN, CellState.UNEXPECTED)
    assert found.seconds == pytest.approx(2.0)
    assert found.what == what


def test_what_happens_after_the_fault_is_out_is_no_signal() -> None:
    event = ConditionSeen(node=NODE, condition="Ready", status="False", at=at(45))
    assert cell(Signal.CONDITION, Timed(45, event)).state is not CellState.UNEXPECTED


def still() -> Frames:
    """Series that stand still all along."""
    kept = frames()
    kept.metrics = kept.metrics[kept.metrics["metric"] == "DCGM_FI_DEV_XID_ERRORS"].assign(value=0.0)
    return kept


def test_a_rule_that_never_held_over_series_that_stood_still_is_a_missed_metric() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    assert row(stored(plan(), timed, still())).cell(Signal.METRIC).state is CellState.MISSED


def test_without_a_rule_to_ask_the_few_series_that_were_kept_prove_nothing() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    burn = plan("burn", fault={"type": "dcgm_pause"}, stays_schedulable_for="15s")
    found = row(stored(burn, timed, still())).cell(Signal.METRIC)
    assert found.state is CellState.UNKNOWN
    assert found.why.startswith("the series that were kept did not move")


def canary(phase: str, value: float | None, seconds: float) -> Timed:
    event = CanaryMeasured(
        node=NODE,
        measure="all-reduce bus bandwidth",
        phase=phase,
        value=value,
        unit="GB/s",
        ok=None,
        at=at(FAULT_AT + seconds),
    )
    return seen(seconds, event)


FAR = plan("far", fault={"type": "numa"}, stays_schedulable_for="15s", canary={"falls_below": "90%"})


def test_a_canary_beyond_the_plans_bound_is_a_signal() -> None:
    found = cell(Signal.CANARY, canary("before", 400, -2), canary("during", 200, 4), plan=FAR)
    assert (found.state, found.what) == (CellState.SEEN, "all-reduce bus bandwidth 400 → 200 GB/s")


def test_a_canary_that_did_not_fall_has_missed_a_fault_that_should_slow_it() -> None:
    assert cell(Signal.CANARY, canary("before", 400, -2), canary("during", 390, 4), plan=FAR).state is CellState.MISSED


def test_a_canary_that_must_not_feel_the_fault_is_not_expected_to_and_shows_when_it_did() -> None:
    spared = plan("spared", fault={"type": "numa"}, stays_schedulable_for="15s", canary={"stays_above": "90%"})
    before = canary("before", 400, -2)
    assert cell(Signal.CANARY, before, canary("during", 390, 4), plan=spared).state is CellState.NOT_EXPECTED
    assert cell(Signal.CANARY, before, canary("during", 200, 4), plan=spared).state is CellState.UNEXPECTED


def test_a_canary_that_was_not_run_or_not_measured_is_unknown() -> None:
    assert cell(Signal.CANARY, plan=FAR).why == "no canary was run"
    found = cell(Signal.CANARY, canary("before", None, -2), canary("during", 200, 4), plan=FAR)
    assert (found.state, found.why) == (CellState.UNKNOWN, "all-reduce bus bandwidth has no value before the fault")


def test_a_run_whose_fault_never_went_in_knows_nothing() -> None:
    stopped = [*without(passing(), no_fault), Timed(9.0, Aborted(by="operator", why="SIGINT received"))]
    cells = row(stored(plan(), stopped)).cells
    assert {one.state for one in cells} == {CellState.UNKNOWN, CellState.NOT_EXPECTED}
    assert {one.why for one in cells if one.state is CellState.UNKNOWN} == {
        "not reached: aborted by operator: SIGINT received"
    }


def test_a_signal_from_before_the_fault_shows_that_clocks_disagree() -> None:
    event = HopSeen.model_validate({"hop": "in log store", "node": NODE, "at": at(FAULT_AT - 5), "source": "x"})
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    found = cell(Signal.LOG, seen(0, event), timed=timed)
    assert found.state is CellState.UNKNOWN
    assert found.why.startswith("clocks disagree")


def test_of_two_targets_the_one_that_fared_worst_fills_the_cell() -> None:
    other = next(t.event for t in passing() if isinstance(t.event, FaultInjected))
    assert isinstance(other, FaultInjected)
    second = other.model_copy(update={"intent": "i9", "target": other.target.model_copy(update={"node": "other"})})
    found = cell(Signal.TAINT, seen(1, second))
    assert (found.state, found.node) == (CellState.MISSED, "other")


def test_a_fault_this_version_does_not_know_is_unknown_and_not_missed() -> None:
    known = plan()
    strange = known.model_copy(update={"fault": known.fault.model_copy(update={"type": "from-the-future"})})
    assert {one.state for one in row(stored(strange)).cells} == {CellState.UNKNOWN}


def test_a_run_counts_as_noticed_when_every_signal_that_reaches_people_came() -> None:
    assert row(stored(plan())).noticed is FaultNoticed.YES
    no_taint = without(passing(), lambda e: isinstance(e, TaintSeen))
    assert row(stored(plan(), no_taint)).noticed is FaultNoticed.PARTLY
    silent = without(no_taint, lambda e: isinstance(e, AlertSeen))
    assert row(stored(plan(), silent)).noticed is FaultNoticed.NO
    assert row(stored(plan(), silent)).outcome is not RunOutcome.PASSED


OTHER = "gpu-node-04"


def test_what_moved_on_another_node_is_not_this_ones_signal() -> None:
    timed = without(passing(), lambda e: isinstance(e, HopSeen))
    both = Frames(metrics=pd.concat([still().metrics, frames().metrics.assign(node=OTHER)]))
    assert row(stored(plan(), timed, both)).cell(Signal.METRIC).state is CellState.MISSED


def test_a_cordon_counts_whatever_another_node_was_before_and_another_nodes_does_not() -> None:
    timed = without(passing(), lambda e: isinstance(e, (TaintSeen, NodeSeen)))

    def cell_of(node: str) -> CoverageCell:
        before = snapshot(cordoned=True).model_copy(update={"node": OTHER})
        now = snapshot(cordoned=True).model_copy(update={"node": node})
        looks = [NodeSeen(phase="before", snapshot=before), NodeSeen(phase="during", snapshot=now)]
        return cell(Signal.TAINT, seen(-1, looks[0]), seen(2, looks[1]), timed=timed)

    assert (cell_of(NODE).what, cell_of(NODE).state) == ("cordoned, at the latest", CellState.SEEN)
    assert cell_of(OTHER).state is CellState.MISSED


def guest_of(says: str) -> Timed:
    return Timed(0.5, GuestNamed(name="npd", version="v1", says=says))


def test_only_a_guest_that_speaks_has_a_column_for_what_it_said() -> None:
    timed = [*passing(), guest_of("Xid"), seen(1.5, GuestSpoke(node=NODE, line="Xid 79", at=at(FAULT_AT + 1.5)))]
    spoken = matrix_of(stored(plan(), timed))
    assert spoken.signals == tuple(Signal)
    said = spoken.rows[0].cell(Signal.SAID)
    assert (said.state, said.seconds, said.what) == (CellState.SEEN, 1.5, "Xid 79")
    silent = matrix_of(stored(plan(), [*passing(), guest_of("")]))
    assert Signal.SAID not in silent.signals
    assert joined([spoken, silent]).signals == tuple(Signal)
    assert silent.rows[0].cell(Signal.SAID).state is CellState.NOT_EXPECTED


def test_silence_of_a_guest_that_died_is_unknown() -> None:
    died = GuestState(node=NODE, change="ended by itself", at=at(FAULT_AT + 1), detail="exit status 2")
    running = Timed(0.6, GuestState(node=NODE, change="running", at=at(0.6)))
    timed = [*detector_off(), guest_of("Xid"), running]
    assert matrix_of(stored(plan(), timed)).rows[0].cell(Signal.TAINT).state is CellState.MISSED
    row = matrix_of(stored(plan(), [*timed, seen(1, died)])).rows[0]
    for signal in (Signal.TAINT, Signal.SAID):
        assert row.cell(signal).state is CellState.UNKNOWN
        assert "exit status 2" in row.cell(signal).why


def test_a_guest_without_a_profile_is_expected_to_do_what_the_plan_says() -> None:
    mine = plan().model_copy(update={"detector": "npd"})
    row = matrix_of(stored(mine, [*passing(), guest_of("")])).rows[0]
    assert row.cell(Signal.TAINT).state is CellState.SEEN
    assert row.cell(Signal.CONDITION).state is CellState.NOT_EXPECTED
