"""The clients' return to an API server that was restarted: all of them, soon, with one LIST each, none in vain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.checks.verdict import Status, Verdict
from gameday.history.events import FaultInjected
from gameday.history.frames import Frames
from gameday_control_plane.checks.reconnect import check
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.expect.control_plane import ExpectedContainment, ExpectedReconnect
from gameday_control_plane.values.api_loads import Happening, Outcome, Reconnected, back_after
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing

CONTAINMENT = ExpectedContainment(reconnect=ExpectedReconnect(), servers_stay_up=False)
PLAN_HERE = PLAN.model_copy(update={"expect": PLAN.expect.model_copy(update={"containment": CONTAINMENT})})
RUN = passing()
WRITTEN = next(event.written_at for event in history_of(RUN).of(FaultInjected))
GOOD: dict[str, Any] = {
    "server": "kube-apiserver",
    "keep_up": "watch",
    "clients": 2,
    "objects": 10,
    "began_at": WRITTEN,
    "restarted_at": WRITTEN + timedelta(seconds=5),
    "ended_at": WRITTEN + timedelta(seconds=65),
    "lists": (1, 0),
    "back_after_s": (12.0, 8.0),
    "outcomes": {Outcome.NO_CONNECTION: 7, Outcome.THROTTLED: 2},
    "cpu_seconds": 0.5,
}


def judged(**changes: Any) -> dict[str, Verdict]:
    event = LoadMeasured(node=NODE, measured=Reconnected.model_validate(GOOD | changes))
    return {one.check: one for one in check(PLAN_HERE, history_of([Timed(0, event), *RUN]), Frames())}


def test_clients_that_come_back_as_they_should_hold_everything() -> None:
    verdicts = judged()
    assert {one.status for one in verdicts.values()} == {Status.HELD}
    assert verdicts["containment-reconnect"].measured == "2 of 2, the last after 12.0 s"
    assert verdicts["containment-timeouts"].measured.startswith("0; 2 429, 0 5xx, 0 other refusal, 7 no connection")


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"back_after_s": (12.0, None)}, "containment-reconnect"),
        ({"back_after_s": (12.0, 61.0)}, "containment-reconnect"),
        ({"lists": (2, 0)}, "containment-relists"),
        ({"outcomes": {Outcome.TIMEOUT: 1}}, "containment-timeouts"),
    ],
)
def test_each_failure_breaks_its_own_verdict(changes: dict[str, Any], broken: str) -> None:
    verdicts = judged(**changes)
    assert [name for name, one in verdicts.items() if one.status is Status.BROKEN] == [broken]


def test_a_restart_that_cut_nobody_off_proves_nothing() -> None:
    verdicts = judged(back_after_s=(0.0, 0.0), lists=(0, 0))
    assert {one.status for one in verdicts.values()} == {Status.UNKNOWN}


def test_no_measurement_is_unknown() -> None:
    verdicts = check(PLAN_HERE, history_of(RUN), Frames())
    assert {one.status for one in verdicts} == {Status.UNKNOWN}
    assert all(one.why for one in verdicts)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("", 0.0),
        ("w", 0.0),  # polled or opened anew without having been cut off
        ("xw", 2.0),
        ("xwxw", 4.0),  # connected, but it did not stay so
        ("xwx", None),
        ("xlw", 2.0),  # its LIST is the moment at which it has everything again
    ],
)
def test_a_client_is_back_when_it_stays_connected(outcomes: str, expected: float | None) -> None:
    words = {"x": Outcome.NO_CONNECTION, "w": Outcome.WATCHING, "l": Outcome.LISTED}
    happenings = [Happening(client=0, at=100.0 + n, outcome=words[one]) for n, one in enumerate(outcomes, 1)]
    assert back_after(happenings, 100.0) == expected
