"""A Prometheus that does not keep up for a while: what it may have missed is unknown, with the reason and a remedy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gameday.history.events import PrometheusFellBehind
from gameday.values.results import Step
from tests.game_days.conftest import QUICK, Arena, Played, changed, step_started

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(300)]
STALL_S = 13.0
"""Longer than the pause that is an overload, and shorter than the time that the plans give the alert."""


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAMEDAY_PROMETHEUS__TIMEOUT_S", "3")


class Stalled:
    """The arena's Prometheus: it keeps its connections and does nothing, for a time or until it is let go."""

    def __init__(self, arena: Arena) -> None:
        process = arena.cluster.child("prometheus").process
        assert process is not None
        self._pid = process.pid
        self._timer = threading.Timer(STALL_S, self.go_on)

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def stop_for_a_while(self) -> None:
        self.stop()
        self._timer.start()

    def go_on(self) -> None:
        self._timer.cancel()
        os.kill(self._pid, signal.SIGCONT)


@contextmanager
def stalled(arena: Arena) -> Iterator[Stalled]:
    prometheus = Stalled(arena)
    try:
        yield prometheus
    finally:
        prometheus.go_on()


def behind(played: Played) -> str:
    found = played.history.of(PrometheusFellBehind)
    assert found, played.output
    assert "give Prometheus the processor and memory" in found[-1].hint
    return found[-1].why


def test_a_stall_in_the_middle_leaves_it_unknown_whether_other_alerts_fired(clean_arena: Arena) -> None:
    plan = changed(QUICK, "expect.alerts", [{"name": "GPUXidCritical", "within": "40s", "resolves_within": "30s"}])
    with stalled(clean_arena) as prometheus:
        played = clean_arena.play_and_when(plan, step_started(Step.INJECT), lambda _: prometheus.stop_for_a_while())
    assert "it scraped nothing for 1" in behind(played)
    verdicts = played.verdicts()
    assert (verdicts["alert-fires"], verdicts["no-other-alerts"]) == ("held", "unknown")
    assert played.exit_code == 2, played.output
    assert played.result.cleanliness == "clean"
