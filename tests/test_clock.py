"""A run's time passes by its clock: the machine's, or one that a test turns."""

from __future__ import annotations

import ast
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import pytest

from gameday.clock import Clock
from gameday.run.abort import Abort
from gameday.run.record import RunRecord
from tests.support.runs import quick_plan
from tests.support.virtual_clock import COARSE_S, VirtualClock

ROOT = Path(__file__).parents[1]
PATIENCE_S = 60.0

ROOMS = ("gameday/run", "gameday/observe", "gameday/lifecycle", "gameday/ledger", "gameday/guard", "gameday/reaper")
MACHINES = {
    ("time", "monotonic"),
    ("time", "sleep"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "perf_counter"),
    ("time", "clock_gettime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("threading", "Thread"),
    ("threading", "Timer"),
}
NOT_OF_A_RUN = {
    "gameday/run/record.py new_run_id": "an id is unique among all machines' runs",
    "gameday/run/abort.py Abort": "a thread that sets an event, as a signal's handler may not",
    "gameday/observe/probes.py _ask_http": "a socket's own deadline",
    "gameday/observe/probes.py _first_bytes": "a socket's own deadline",
    "tasks/cluster_seasons.py": "waits for Prefect's flow runs in other processes",
    **{
        f"tasks/{name}": "a page says when it was rendered"
        for name in (
            "compare.py compare",
            "compare.py publish_comparison",
            "coverage.py",
            "post_mortem.py render_incident",
            "reaped_runs.py _render_again",
        )
    },
}


def uses(path: Path) -> list[str]:
    """Return where a module reads the machine's clock or begins a thread, as 'file function'."""
    tree, found = ast.parse(path.read_bytes()), []
    for outer in tree.body:
        for node in ast.walk(outer):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                is_machines = (node.value.id, node.attr) in MACHINES
            elif isinstance(node, ast.ImportFrom):
                is_machines = any((node.module, one.name) in MACHINES for one in node.names)
            else:
                is_machines = False
            if is_machines:
                found.append(f"{path.relative_to(ROOT)} {getattr(outer, 'name', '')}".strip())
    return found


def test_a_run_reads_no_clock_but_its_own_and_begins_no_thread() -> None:
    paths = [path for room in (*ROOMS, "tasks") for path in sorted((ROOT / room).rglob("*.py"))]
    found = {place for path in paths for place in uses(path)}
    allowed = {place for place in found if place in NOT_OF_A_RUN or place.split()[0] in NOT_OF_A_RUN}
    assert found - allowed == set()
    assert {why for why in NOT_OF_A_RUN if not any(place.startswith(why) for place in allowed)} == set()


# The machine's.


def test_a_repetition_is_played_until_its_act_ends_it() -> None:
    pauses: list[float | None] = [0.0, 0.0, None]
    ended = threading.Event()

    def act() -> float | None:
        pause_s = pauses.pop(0)
        if pause_s is None:
            ended.set()
        return pause_s

    repetition = Clock().repeat("test", act)
    assert ended.wait(PATIENCE_S)
    repetition.stop(PATIENCE_S)
    assert pauses == []


def test_a_repetition_that_is_stopped_ends_its_turn_and_begins_no_other() -> None:
    began, go_on, ended = threading.Event(), threading.Event(), SimpleQueue[str]()

    def act() -> float:
        began.set()
        go_on.wait(PATIENCE_S)
        ended.put("turn")
        return 0.0

    repetition = Clock().repeat("test", act)
    assert began.wait(PATIENCE_S)
    repetition.stop()
    assert ended.empty()
    go_on.set()
    repetition.stop(PATIENCE_S)
    assert [ended.get(), ended.empty()] == ["turn", True]


def test_a_turn_may_stop_its_own_repetition() -> None:
    made, stopped = SimpleQueue[object](), threading.Event()

    def act() -> float:
        repetition.stop(PATIENCE_S)
        stopped.set()
        return 0.0

    repetition = Clock().repeat("test", lambda: (made.get(), act())[1])
    made.put(None)
    assert stopped.wait(PATIENCE_S)


def test_a_wait_wakes_when_it_is_told_of_a_change() -> None:
    changed, state = threading.Condition(), list[str]()

    def change() -> None:
        with changed:
            state.append("changed")
            changed.notify_all()

    thread = threading.Thread(target=change)
    with changed:
        thread.start()
    assert Clock().wait_changed(changed, lambda: bool(state), PATIENCE_S)
    thread.join()


def test_a_wait_asks_now_and_then_also_where_nobody_tells_it() -> None:
    looks = iter([False, False, True])
    assert Clock().wait_changed(threading.Condition(), lambda: next(looks), PATIENCE_S, check_every_s=0.001)
    assert not Clock().wait_changed(threading.Condition(), lambda: False, 0.001)


# A test's own.


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def test_what_is_due_happens_in_its_order_and_time_passes_to_the_end(clock: VirtualClock) -> None:
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.monotonic()))

    clock.at(7, partial(note, "late"))
    clock.at(3, partial(note, "first"))
    clock.at(3, partial(note, "second"))
    clock.after(4, partial(note, "third"))
    clock.at(5, partial(note, "called off"))()
    began = clock.now()
    clock.sleep(4)
    assert seen == [("first", 3), ("second", 3), ("third", 4)]
    clock.sleep(600)
    assert seen[3:] == [("late", 7)]
    assert (clock.monotonic(), clock.now() - began) == (604, timedelta(seconds=604))


def test_a_wait_ends_at_the_moment_it_waits_for(clock: VirtualClock) -> None:
    event, changed = threading.Event(), threading.Condition()
    clock.at(2.5, event.set)
    assert clock.wait_set(event, 10)
    assert clock.monotonic() == 2.5
    clock.at(4.5, event.clear)
    assert clock.wait_changed(changed, lambda: not event.is_set(), 10)
    assert clock.monotonic() == 4.5
    assert not clock.wait_changed(changed, event.is_set, 10)
    assert not clock.wait_set(event, 1)
    assert clock.monotonic() == 15.5


def test_a_wait_that_may_ask_again_sees_what_only_time_changes(clock: VirtualClock) -> None:
    late = partial(clock.wait_changed, threading.Condition(), lambda: clock.monotonic() >= 7, 60)
    assert late(check_every_s=0.5)
    assert clock.monotonic() == 2 * COARSE_S


def test_a_look_without_patience_lets_nothing_happen(clock: VirtualClock) -> None:
    event = threading.Event()
    clock.at(0, event.set)
    assert not clock.wait_set(event, 0)
    assert not clock.wait_changed(threading.Condition(), event.is_set, 0)
    assert clock.wait_set(event, 0.1)
    assert clock.monotonic() == 0


def test_every_turn_of_a_slow_repetition_is_played_and_its_last_ends_it(clock: VirtualClock) -> None:
    turns: list[float] = []

    def act() -> float | None:
        turns.append(clock.monotonic())
        return 2.0 if len(turns) < 4 else None

    clock.repeat("test", act, 1.0)
    clock.sleep(60)
    assert turns == [1, 3, 5, 7]


def test_quick_looks_are_played_right_after_what_happens_and_now_and_then(clock: VirtualClock) -> None:
    turns: list[float] = []

    def act() -> float:
        turns.append(clock.monotonic())
        return 0.1

    repetition = clock.repeat("test", act, 0.1)
    clock.at(2, lambda: None)
    clock.sleep(8)
    assert turns == [pytest.approx(0.1), 2, 2 + COARSE_S]
    repetition.stop()
    clock.sleep(60)
    assert len(turns) == 3


def test_a_turn_that_waits_is_not_played_within_itself(clock: VirtualClock) -> None:
    turns: list[tuple[float, float]] = []

    def act() -> float:
        began = clock.monotonic()
        clock.sleep(3)
        turns.append((began, clock.monotonic()))
        return 1.0

    clock.repeat("test", act, 1.0)
    clock.sleep(8)
    assert turns == [(1, 4), (5, 8)]


def test_a_pause_ends_after_the_next_news_on_the_waits_own_grid(clock: VirtualClock) -> None:
    assert clock.pause(0.25, 60) == COARSE_S
    assert clock.pause(0.25, 2) == 2
    clock.at(1.1, lambda: None)
    assert clock.pause(0.25, 60) == 1.25
    clock.repeat("test", lambda: 1.0, 0.6)
    assert clock.pause(0.25, 60) == 0.75
    assert clock.pause(10, 60) == 10


def test_the_wall_clock_may_jump_and_durations_do_not_notice(clock: VirtualClock) -> None:
    before = clock.now()
    clock.jump(timedelta(hours=-1))
    clock.sleep(5)
    assert clock.now() - before == timedelta(seconds=5) - timedelta(hours=1)
    assert (clock.monotonic(), clock.boottime()) == (5, 5)


def test_a_run_waits_by_its_own_clock_and_stamps_its_history_by_it(tmp_path: Path, clock: VirtualClock) -> None:
    fired: list[str] = []
    record = RunRecord("r", tmp_path, quick_plan(), clock=clock)
    clock.at(599.9, partial(fired.append, "alert"))
    assert record.wait("the alert", timedelta(minutes=11), lambda: fired or None, every_s=0.25) == ["alert"]
    assert clock.monotonic() == pytest.approx(600, abs=0.25)
    assert record.wait("another", timedelta(minutes=5), lambda: None) is None
    assert clock.monotonic() == pytest.approx(900, abs=0.25)
    times = [one.at - record.started for one in record.journal.history().records]
    assert times == [timedelta(), pytest.approx(timedelta(seconds=600), abs=timedelta(seconds=0.25))]
    record.journal.close()


def test_an_abort_ends_a_sleep_at_once(clock: VirtualClock) -> None:
    abort = Abort(clock)
    clock.at(3, partial(abort.request, "guard", "too hot"))
    with pytest.raises(Exception, match="too hot"):
        abort.sleep(60)
    assert clock.monotonic() == 3
