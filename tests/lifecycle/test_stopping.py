"""Waits end when somebody asks, and what was begun is undone whatever ended it."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import gameday.lifecycle.opening
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import AbortedError, RefusedError, StepFailedError
from gameday.history.events import (
    Aborted,
    FaultUndone,
    IntentRecorded,
    Problem,
    Refused,
    RunEnded,
    RunStarted,
    StepEnded,
    WaitStarted,
)
from gameday.history.journal import read_history
from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.ledger.ledger import Ledger
from gameday.plan.load import LoadedPlan
from gameday.run.abort import Abort
from gameday.run.run import Run
from gameday.values.results import Cleanliness, Step, StepOutcome
from gameday_rehearsal.folder import HeldFolder
from tests.support.opened import LONG, OpenedRun
from tests.support.runs import close_run, quick_plan, unopened_run, with_plan
from tests.support.scripted.administrator import ScriptedWorld
from tests.support.world import PATIENCE_S, World, unique

LATER = datetime(2030, 1, 2, tzinfo=UTC)
pytestmark = pytest.mark.timeout(60)


# --- waits ---


@pytest.fixture
def in_real_time(world: ScriptedWorld, tmp_path: Path) -> Iterator[Run]:
    """A run by the machine's clock, which asks no server anything."""
    run = unopened_run(tmp_path, "r", quick_plan(), world.profile_of("gameday-runner"))
    yield run
    close_run(run)


def test_a_wait_asks_at_once(new_run: Callable[..., Run]) -> None:
    assert new_run().wait("it", timedelta(0), lambda: "there") == "there"


def test_a_wait_asks_until_it_is_so(new_run: Callable[..., Run]) -> None:
    run, answers = new_run(), iter([None, None, "there"])
    assert run.wait("it", LONG, lambda: next(answers), every_s=0.001) == "there"
    started = run.history().of(WaitStarted)
    assert [(one.what, one.deadline_s) for one in started] == [("it", 100.0)]


@pytest.mark.parametrize("limit", [timedelta(0), timedelta(seconds=-5), timedelta(milliseconds=5)])
def test_a_wait_that_is_over_is_none_and_asked_once_more(new_run: Callable[..., Run], limit: timedelta) -> None:
    asked: list[int] = []
    assert new_run().wait("it", limit, lambda: asked.append(1), every_s=60) is None
    assert len(asked) == (2 if limit > timedelta(0) else 1)


def test_falsy_answers_are_answers(new_run: Callable[..., Run]) -> None:
    assert new_run().wait("it", LONG, lambda: 0) == 0


def test_a_failing_condition_is_not_hidden(new_run: Callable[..., Run]) -> None:
    def fails() -> None:
        raise StepFailedError("gone")

    with pytest.raises(StepFailedError):
        new_run().wait("it", LONG, fails)


def test_an_abort_ends_a_wait_at_once(in_real_time: Run) -> None:
    run = in_real_time

    def asked() -> None:
        threading.Thread(target=run.record.abort.request, args=("guard", "enough")).start()

    with pytest.raises(AbortedError) as caught:
        run.wait("it", LONG, asked, every_s=100)
    assert (caught.value.by, caught.value.why) == ("guard", "enough")


def test_an_aborted_run_asks_nothing_more(new_run: Callable[..., Run]) -> None:
    run, asked = new_run(), list[int]()
    run.record.abort.request("operator", "first")
    run.record.abort.request("guard", "second")
    with pytest.raises(AbortedError, match="first"):
        run.wait("it", LONG, lambda: asked.append(1))
    assert asked == []


# --- signals ---


@pytest.mark.parametrize(
    ("sent", "said"), [(signal.SIGINT, "you pressed Ctrl-C"), (signal.SIGTERM, "its process was told to end (SIGTERM)")]
)
def test_a_signal_ends_a_wait_at_once_and_is_told_in_plain_words(
    in_real_time: Run, sent: signal.Signals, said: str
) -> None:
    run = in_real_time
    with run.record.abort.on_signals(), pytest.raises(AbortedError) as caught:
        run.wait("it", LONG, lambda: signal.raise_signal(sent), every_s=100)
    assert (caught.value.by, caught.value.why.startswith(said)) == ("operator", True)
    assert not run.record.abort.second_signal


def test_a_second_signal_hurries() -> None:
    abort = Abort()
    with abort.on_signals():
        signal.raise_signal(signal.SIGTERM)
        assert not abort.second_signal
        signal.raise_signal(signal.SIGINT)
        assert abort.second_signal
        signal.raise_signal(signal.SIGINT)
        assert abort.second_signal
    with pytest.raises(AbortedError, match="SIGTERM"):
        abort.check()


def test_a_signal_after_a_guard_hurries() -> None:
    abort = Abort()
    abort.request("guard", "too long")
    with abort.on_signals():
        signal.raise_signal(signal.SIGINT)
    assert abort.second_signal
    with pytest.raises(AbortedError, match="too long"):
        abort.sleep(100)


def test_a_signal_that_comes_inside_the_waits_own_lock_does_not_hang() -> None:
    """The handler runs between any two bytecodes of the main thread, those of Event.wait included."""
    abort = Abort()
    with abort.on_signals():
        with abort._requested._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(AbortedError):
            abort.sleep(100)


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Abort().on_signals():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_install_no_handlers() -> None:
    before, seen = signal.getsignal(signal.SIGINT), list[Any]()

    def elsewhere() -> None:
        with Abort().on_signals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join(PATIENCE_S)
    assert seen == [before]


# --- whole runs ---


@pytest.fixture
def opened(world: ScriptedWorld, tmp_path: Path) -> OpenedRun:
    return OpenedRun(world, tmp_path / "reports")


def shorter(limit: timedelta) -> LoadedPlan:
    loaded = quick_plan()
    return with_plan(loaded, guardrails=loaded.plan.guardrails.model_copy(update={"max_duration": limit}))


def test_a_run_leaves_nothing(opened: OpenedRun) -> None:
    opened.play(lambda run: run.note(Problem(step=None, what="a note")))
    history = opened.history
    assert opened.is_as_if_it_never_was()
    assert [type(event) for event in history.of(RunStarted) + history.of(RunEnded)] == [RunStarted, RunEnded]
    assert [one.intent for one in history.of(IntentRecorded)] == ["mark"]
    assert [(one.by, one.cleanliness) for one in history.of(FaultUndone)] == [("flow", Cleanliness.CLEAN)]
    assert {one.outcome for one in history.of(StepEnded)} == {StepOutcome.NOT_ASKED}


def test_a_run_that_takes_too_long_is_aborted_and_undone(opened: OpenedRun) -> None:
    def wait(run: Run) -> None:
        run.record.begin_step(Step.INJECT)  # before that it is a refusal
        run.wait("for ever", LONG, lambda: None, every_s=100)

    opened.play(wait, shorter(timedelta(seconds=2)))
    aborted = opened.history.of(Aborted)
    assert [(one.by, "longer than guardrails.max_duration" in one.why) for one in aborted] == [("guard", True)]
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert opened.is_as_if_it_never_was()


def test_a_run_whose_lease_is_gone_is_aborted_from_its_own_thread_and_undone(
    server: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads and sockets of a whole run are real here."""
    opened = OpenedRun(server, tmp_path)

    def quick(*arguments: Any) -> Leases:
        kubernetes, holder, lost, _, pause = arguments
        return Leases(kubernetes, holder, lost, timedelta(seconds=2), pause)

    monkeypatch.setattr(gameday.lifecycle.opening, "Leases", quick)

    def robbed(run: Run) -> None:
        opened.world.coordination.delete_namespaced_lease(CLUSTER_LEASE, "gameday")
        run.wait("for ever", LONG, lambda: None, every_s=100)

    opened.play(robbed)
    (aborted,) = opened.history.of(Aborted)
    assert aborted.why.endswith("no longer holds lease gameday-cluster: nobody does")
    assert opened.is_as_if_it_never_was()


def test_a_full_disk_aborts_and_the_undo_still_happens(opened: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fills_up(run: Run) -> None:
        monkeypatch.setattr(os, "fsync", full)
        run.wait("for ever", LONG, lambda: None, every_s=100)

    opened.play(fills_up)
    assert opened.is_as_if_it_never_was()
    events = opened.run.history()
    assert [one.by for one in events.of(Aborted)] == ["guard"]
    assert "no space left on device" in events.of(Aborted)[0].why
    assert [one.cleanliness for one in events.of(RunEnded)] == [Cleanliness.CLEAN]


def test_a_bug_in_a_step_is_raised_and_undone(opened: OpenedRun) -> None:
    with pytest.raises(ZeroDivisionError):
        opened.play(lambda _: 1 / 0)
    assert opened.is_as_if_it_never_was()
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]


@pytest.mark.parametrize("part", ["gameday.lifecycle.closing.collect", "gameday.run.servers.Servers.costs"])
def test_a_bug_in_closing_costs_only_its_own_part(
    opened: OpenedRun, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def bug(_: Run) -> None:
        raise KeyError("a bug of ours")

    monkeypatch.setattr(part, bug)
    opened.play(lambda run: None)
    assert opened.is_as_if_it_never_was()
    assert any("a bug of ours" in one.what for one in opened.history.of(Problem))
    assert opened.history.of(RunEnded)


def test_a_bug_in_one_undo_costs_only_its_own(opened: OpenedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(run: Run) -> None:
        run.intend("second", "second", DeletePod(pod="never-made"), None, LONG)
        undo = run.ledger.undo

        def buggy(entry: Any, nodes: Any) -> Cleanliness:
            if entry.id == "second":
                raise KeyError("a bug of ours")
            return undo(entry, nodes)

        monkeypatch.setattr(run.ledger, "undo", buggy)

    opened.play(second)
    assert opened.world.pods(opened.id) == []
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.UNKNOWN)]
    assert opened.world.ledgers() == [f"gameday-run-{opened.id}"], "for the reaper"
    assert opened.world.holders() == {}


def test_a_second_run_is_refused_with_the_firsts_name_and_undoes_nothing_of_it(
    world: ScriptedWorld, opened: OpenedRun, tmp_path: Path
) -> None:
    second = OpenedRun(world, tmp_path / "second")

    def meanwhile(_: Run) -> None:
        second.refused()
        assert world.holders() == {CLUSTER_LEASE: opened.id}
        assert world.pods(opened.id) == [opened.pod]

    opened.play(meanwhile)
    refused = second.history.of(Refused)[0]
    assert f"held by run {opened.id}" in refused.why
    assert refused.hint == f"wait for run {opened.id}, or run `gameday reap` if it is dead"
    assert second.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]
    assert {one.outcome for one in second.history.of(StepEnded)} == {StepOutcome.NOT_REACHED}
    assert opened.is_as_if_it_never_was()


def test_a_run_reaps_first_and_notes_what_it_found(world: ScriptedWorld, runner: Kubernetes, opened: OpenedRun) -> None:
    dead = unique("run")
    ledger = Ledger(runner, Header(run_id=dead, plan="p", started=LATER, operator="ada", host="here"))
    ledger.intend(id="mark", act="mark", node=None, undo=DeletePod(pod=f"gd-{dead}-mark"), expires=LATER)
    world.add_pod(f"gd-{dead}-mark", dead)
    history = opened.reports / dead / "history.jsonl"
    history.parent.mkdir(parents=True)
    history.touch()
    opened.play(lambda run: None)
    assert opened.is_as_if_it_never_was()
    assert world.pods(dead) == []
    problems = [one.what for one in opened.history.of(Problem)]
    assert problems == [f"run {dead} left open: mark (pod/gd-{dead}-mark); after the reap it is clean"]
    undone = [(one.intent, one.by, one.cleanliness) for one in read_history(history).of(FaultUndone)]
    assert undone == [("mark", "reaper", Cleanliness.CLEAN)]


def test_a_ledger_nobody_can_read_is_a_refusal(world: ScriptedWorld, opened: OpenedRun) -> None:
    odd = {"metadata": {"name": "odd", "labels": {"gameday.dev/ledger": "true"}}, "data": {"run.json": "no json"}}
    world.core.create_namespaced_config_map("gameday", odd)
    opened.refused()
    why = opened.history.of(Refused)[0].why
    assert why.startswith(
        "these cannot be read, and may leave changes open: ConfigMap odd, entry run.json: Invalid JSON"
    )
    assert world.holders() == {}


def test_a_run_that_slept_through_its_lease_acts_no_more(opened: OpenedRun) -> None:
    """Its intent is written, and the present holder of the lease may have reaped it: nothing may follow it."""
    acted: list[str] = []

    def sleeps(run: Run) -> None:
        run.clock.freeze(31)  # type: ignore[attr-defined]
        run.intend("late", "late", DeletePod(pod="late"), None, LONG)
        acted.append("late")

    opened.play(sleeps)
    assert acted == []
    assert [one.by for one in opened.history.of(Aborted)] == ["guard"]
    assert opened.is_as_if_it_never_was()


def test_a_cluster_that_does_not_answer_is_a_refusal(
    world: ScriptedWorld, opened: OpenedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.cluster, "is_away", lambda *_: True)
    opened.refused()
    refused = opened.history.of(Refused)[0]
    assert refused.why.startswith("http://scripted.invalid: read the server's version: ")
    assert "is the API server up" in refused.hint
    assert opened.history.of(RunEnded) == [RunEnded(cleanliness=Cleanliness.CLEAN)]


def test_rights_that_are_missing_are_a_refusal(
    world: ScriptedWorld, opened: OpenedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    reapers = world.profile_of("gameday-reaper")
    monkeypatch.setattr(world, "profile_of", lambda _: reapers)
    opened.refused()
    assert "403" in opened.history.of(Refused)[0].why
    assert world.holders() == {}


def test_a_refusal_and_a_failed_step_end_in_the_history(world: ScriptedWorld, tmp_path: Path) -> None:
    for error, kind in ((RefusedError("no", "do this"), Refused), (StepFailedError("no", "do this"), Problem)):
        opened = OpenedRun(world, tmp_path / kind.__name__)

        def stops(_: Run, error: Exception = error) -> None:
            raise error

        opened.play(stops)
        assert [one.hint for one in opened.history.of(kind)] == ["do this"]
        assert opened.is_as_if_it_never_was()


def test_a_torn_last_line_costs_only_itself(opened: OpenedRun) -> None:
    opened.play(lambda _: None)
    path = opened.reports / opened.id / "history.jsonl"
    whole = read_history(path)
    path.write_bytes(path.read_bytes()[:-20])
    torn = read_history(path)
    assert torn.damaged == 1
    assert torn.records == whole.records[:-1]


def test_a_run_on_a_virtual_cluster_that_has_ended_is_refused_at_once(
    opened: OpenedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = opened.world.profile_of("gameday-runner").model_copy(update={"rehearsal": tmp_path})
    monkeypatch.setattr(opened.world, "profile_of", lambda _: profile)
    HeldFolder(tmp_path).release()
    opened.refused()
    assert "no longer runs" in opened.history.of(Refused)[-1].why
