"""A Prometheus that is away or does not keep up: what it may have missed is unknown, with the reason and a remedy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import FaultInjected, PrometheusFellBehind
from gameday.values.results import Cleanliness
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import QUICK, changed, loaded
from tests.support.scripted.script import Away, Script, Times

ALERT = {"name": "GPUXidCritical", "within": "100s", "resolves_within": "100s"}
PLAN = changed(changed(QUICK, "expect.alerts", [ALERT]), "fault.hold", "110s")


def away(reports: Path, since_s: float, for_s: float, fires: Times = (90.0,)) -> Played:
    """Play a game-day whose Prometheus is away for a while, by seconds after the fault."""
    calm = play(loaded(PLAN), reports=reports)
    (fault,) = calm.history.of(FaultInjected)
    began = (fault.written_at - calm.cluster._began).total_seconds()

    def gone(script: Script) -> Script:
        gap = Away("prometheus", began + since_s, began + since_s + for_s)
        return replace(script, away=(gap,), fires=fires, notified=tuple(at + 0.1 for at in fires))

    return play(loaded(PLAN), gone, reports=reports)


def behind(played: Played) -> str:
    found = played.history.of(PrometheusFellBehind)
    assert "give Prometheus the processor and memory" in found[-1].hint
    return found[-1].why


def test_away_in_the_middle_leaves_it_unknown_whether_other_alerts_fired(reports: Path) -> None:
    played = away(reports, 10.0, 60.0)
    assert "it scraped nothing for " in behind(played)
    assert (played.status("alert-fires"), played.status("no-other-alerts")) == (Status.HELD, Status.UNKNOWN)
    assert (played.outcome, played.result.cleanliness) == (RunOutcome.UNKNOWN, Cleanliness.CLEAN)
    assert played.cluster.left() == []


def test_away_while_the_alert_is_awaited_leaves_its_absence_unknown(reports: Path) -> None:
    played = away(reports, 10.0, 60.0, fires=())
    assert "it scraped nothing for " in behind(played)
    assert played.status("alert-fires") is Status.UNKNOWN
    assert (played.result.cleanliness, played.cluster.left()) == (Cleanliness.CLEAN, [])


@pytest.mark.parametrize("since_s", [0.0, 90.1], ids=["from the fault on", "from the alert on"])
def test_away_to_the_end_leaves_it_unknown_and_the_undo_is_done(since_s: float, reports: Path) -> None:
    played = away(reports, since_s, 3600.0)
    assert "it could not be asked" in behind(played)
    assert played.status("alert-fires") is (Status.HELD if since_s else Status.UNKNOWN)
    assert played.status("no-other-alerts") is Status.UNKNOWN
    assert (played.result.exit_code, played.result.cleanliness) == (2, Cleanliness.CLEAN)
    assert played.cluster.left() == []
