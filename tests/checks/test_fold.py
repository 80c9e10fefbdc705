"""The fold's precedence, on real histories and as properties over every combination."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.checks.outcome import RunOutcome, RunResult, exit_code, fold_outcome, nodes_left_quarantined
from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import Aborted, FaultInjected, FaultUndone, IntentRecorded, NodeSeen, Refused, RunEnded
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.values.results import Cleanliness
from tests.report import run_builder as build
from tests.report.run_builder import PLAN, Timed, cut_off, history_of, passing, replacing, snapshot, without

CLEAN, DIRTY, UNSURE = Cleanliness.CLEAN, Cleanliness.DIRTY, Cleanliness.UNKNOWN


def result(timed, damaged: int = 0) -> RunResult:
    history = History(history_of(timed).records, damaged)
    return fold_outcome(history, run_checks(PLAN, history, Frames()))


def summary(timed, damaged: int = 0) -> tuple[str, str, int]:
    r = result(timed, damaged)
    assert r.why.endswith(".") and len(r.why) > 10
    return r.outcome.value, r.cleanliness.value, r.exit_code


def test_held_and_clean():
    assert summary(passing()) == ("passed", "clean", 0)


def test_broken_and_clean():
    r = result(build.detector_off())
    assert (r.outcome, r.exit_code) == (RunOutcome.FAILED, 1)
    assert "3 of 14" in r.why and build.ALERT in r.why


def test_unknown():
    blind = build.ended(build.detector_off(), build.Step.AWAIT_ALERT, build.StepOutcome.UNKNOWN, "Prometheus down")
    blind = build.ended(blind, build.Step.VERIFY_TAINT, build.StepOutcome.NOT_REACHED, "Prometheus down")
    blind = without(blind, lambda e: e.kind == "workload_seen" and e.purpose != "return")
    assert summary(blind) == ("unknown", "clean", 2)


def test_a_run_whose_step_ended_broken_has_not_passed_though_every_verdict_held():
    r = result(build.ended(passing(), build.Step.RECOVER, build.StepOutcome.BROKEN, "the alert is still active"))
    why = "Step 'recover' ended broken: the alert is still active."
    assert (r.outcome, r.exit_code, r.why) == (RunOutcome.FAILED, 1, why)


def test_aborted_comes_before_broken():
    timed = [*build.detector_off(), Timed(17, Aborted(by="operator", why="Ctrl-C"))]
    assert summary(timed) == ("aborted", "clean", 3)


def test_refused_before_anything_changed():
    timed = [*cut_off(passing(), 7.95), Timed(7.96, Refused(why="the lease is held"))]
    assert summary([*timed, Timed(8, RunEnded(cleanliness=CLEAN))]) == ("refused", "clean", 5)
    assert summary([*timed, Timed(8, RunEnded(cleanliness=UNSURE))]) == ("refused", "clean", 5)


def test_dirty_beats_all():
    undone = lambda e: isinstance(e, FaultUndone) and e.intent == "i1"  # noqa: E731
    dirty = replacing(passing(), undone, cleanliness=DIRTY)
    assert summary(dirty) == ("failed", "dirty", 4)
    assert summary([*dirty, Timed(17, Aborted(by="guard", why="too long"))]) == ("aborted", "dirty", 4)
    assert summary(replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=DIRTY)) == ("failed", "dirty", 4)


@pytest.mark.parametrize("left", [{"tainted": True}, {"cordoned": True}, {"gameday.dev/run": "7f3a"}])
def test_what_the_run_left_on_the_node_is_dirt_though_it_says_clean(left):
    after = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    assert summary(replacing(passing(), after, snapshot=snapshot(**left))) == ("failed", "dirty", 4)


@pytest.mark.parametrize(
    ("left", "nodes"),
    [({"tainted": True}, {build.NODE}), ({"cordoned": True}, {build.NODE}), ({"gameday.dev/run": "7f3a"}, set())],
)
def test_only_a_quarantine_that_is_left_is_a_detectors(left, nodes):
    after = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    timed = replacing(passing(), after, snapshot=snapshot(**left))
    assert nodes_left_quarantined(history_of(timed)) == nodes
    assert nodes_left_quarantined(history_of(passing())) == set()
    undone = lambda e: isinstance(e, FaultUndone) and e.intent == "i1"  # noqa: E731
    assert nodes_left_quarantined(history_of(replacing(timed, undone, cleanliness=DIRTY))) == set()
    assert nodes_left_quarantined(history_of(replacing(timed, undone, cleanliness=UNSURE))) == set()


def test_a_run_that_was_reaped_while_it_slept_says_who_undid_it():
    reaped = replacing(passing(), lambda e: isinstance(e, FaultUndone), by="reaper")
    aborted = Timed(17, Aborted(by="guard", why="the cluster lease was not renewed for 40 s"))
    assert summary([*reaped, aborted]) == ("aborted", "clean", 3)
    assert result([*reaped, aborted]).why.endswith(
        "40 s, after the fault went in; it is out again; "
        "what the run had changed was undone by the reaper at 09:00:46 UTC."
    )
    assert "reaper" not in result([*passing(), aborted]).why


@pytest.mark.parametrize("value", [None, "false"])
def test_an_opt_in_that_is_taken_back_in_mid_run_is_an_abort_and_not_our_dirt(value):
    without_it = {key: text for key, text in snapshot().labels.items() if key != "gameday.dev/opt-in"}
    labels = without_it | ({"gameday.dev/opt-in": value} if value else {})
    after = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    timed = replacing(passing(), after, snapshot=snapshot().model_copy(update={"labels": labels}))
    assert labels != snapshot().labels
    assert summary([*timed, Timed(47, Aborted(by="guard", why="opt-in taken back"))]) == ("aborted", "clean", 3)


def test_a_label_of_somebody_else_breaks_the_check_but_is_not_our_dirt():
    after = lambda e: isinstance(e, NodeSeen) and e.phase == "after"  # noqa: E731
    timed = replacing(passing(), after, snapshot=snapshot(**{"feature.node/cpu": "new"}))
    assert summary(timed) == ("failed", "clean", 1)


@pytest.mark.parametrize(
    ("seconds", "state"),
    [(0.1, "clean"), (7.5, "clean"), (8.15, "unknown"), (12.5, "unknown"), (30.0, "unknown"), (46.35, "clean")],
)
def test_a_killed_run_is_unknown_and_clean_only_if_every_intent_was_undone(seconds, state):
    assert summary(cut_off(passing(), seconds)) == ("unknown", state, 2)


def test_a_damaged_line_of_a_killed_run_may_hide_an_intent():
    assert summary(cut_off(passing(), 7.5), damaged=1) == ("unknown", "unknown", 2)


def test_a_missing_undo_is_never_exit_0():
    timed = without(passing(), lambda e: isinstance(e, FaultUndone) and e.intent == "i4")
    assert summary(timed) == ("unknown", "unknown", 2)


def test_aborted_without_proof_of_a_clean_cluster_does_not_promise_one():
    timed = without(passing(), lambda e: isinstance(e, FaultUndone))
    assert summary([*timed, Timed(17, Aborted(by="operator", why="Ctrl-C"))]) == ("aborted", "unknown", 2)


statuses = st.lists(st.sampled_from(Status), max_size=6)
states = st.sampled_from(Cleanliness)


@given(
    statuses=statuses,
    undo=st.one_of(st.none(), states),
    said=st.one_of(st.none(), states),
    aborted=st.booleans(),
    refused=st.booleans(),
    injected=st.booleans(),
    damaged=st.integers(0, 2),
)
def test_precedence(statuses, undo, said, aborted, refused, injected, damaged):
    """Whatever happened: dirty is 4, no proof is 2, nothing unproved is 0, and broken beats unknown."""
    keep = {IntentRecorded: True, FaultInjected: injected, FaultUndone: undo is not None, RunEnded: said is not None}
    timed = [t for t in passing() if keep.get(type(t.event), False) and getattr(t.event, "intent", "i2") == "i2"]
    if undo:
        timed = replacing(timed, lambda e: isinstance(e, FaultUndone), cleanliness=undo)
    if said:
        timed = replacing(timed, lambda e: isinstance(e, RunEnded), cleanliness=said)
    timed += [Timed(5, Aborted(by="guard", why="w"))] if aborted else []
    timed += [Timed(5, Refused(why="w"))] if refused else []
    verdicts = [Verdict(check=str(i), expectation=f"e{i}", status=s) for i, s in enumerate(statuses)]
    got = fold_outcome(History(history_of(timed).records, damaged), verdicts)

    if DIRTY in (undo, said):
        assert (got.cleanliness, got.exit_code) == (DIRTY, 4)
    elif undo is not CLEAN or said is UNSURE:
        assert (got.cleanliness, got.exit_code) == (UNSURE, 2)
    if refused and not injected:
        assert got.outcome is RunOutcome.REFUSED
    elif aborted:
        assert got.outcome is RunOutcome.ABORTED
    elif Status.BROKEN in statuses or got.cleanliness is DIRTY:
        assert got.outcome is RunOutcome.FAILED
    elif got.outcome is RunOutcome.PASSED:
        assert set(statuses) - {Status.NOT_ASKED} == {Status.HELD}
        assert said is CLEAN and got.cleanliness is CLEAN
    else:
        assert got.outcome is RunOutcome.UNKNOWN
    assert (got.exit_code == 0) == (got.outcome is RunOutcome.PASSED)
    assert got.why.strip(". ")


@given(outcome=st.sampled_from(RunOutcome), state=states)
def test_codes_that_promise_a_clean_cluster_are_given_only_with_proof(outcome, state):
    code = exit_code(outcome, state)
    assert code in range(6)
    assert (code == 4) == (state is DIRTY)
    if code in (0, 1, 3, 5):
        assert state is CLEAN
