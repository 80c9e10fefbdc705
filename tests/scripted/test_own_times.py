"""A signal is timed and judged by its own time, to the millisecond, and the sight stands beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gameday.checks.verdict import Status, Verdict
from gameday.detectors.signals import Signal
from gameday.history.events import AlertSeen, FaultInjected, KernelLineSeen
from gameday.post_mortem.alerts import node_alerts
from gameday.post_mortem.findings import findings
from gameday.report.durations import durations
from gameday.report.junit import junit
from gameday.report.lanes import signal_lanes
from gameday.report.run_folder import judge_run_folder
from gameday.report.sections import alerts, chain
from gameday.report.summary import DurationKind
from gameday.runs.detections import first_detection, window_of
from gameday.values.results import Hop
from tests.post_mortem.conftest import incident
from tests.scripted.test_game_days import PLAN, bounded, fires_after
from tests.support.runs import history_of
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.script import Script

Change = Callable[[Script], Script]
FIRED_S = 0.2604


def with_clock(ahead_s: float, fires_s: float) -> Change:
    return lambda script: replace(fires_after(fires_s)(script), prometheus_ahead_s=ahead_s)


def of(played: Played, check: str = "alert-fires") -> Verdict:
    (found,) = [one for one in played.verdicts if one.check == check]
    return found


def test_the_time_to_alert_is_when_the_rule_fired_and_not_when_the_run_first_asked(reports: Path) -> None:
    """The activeAt of Prometheus has more digits than its samples, which begin at the same evaluation."""
    verdict = of(play(PLAN, fires_after(FIRED_S), reports=reports))
    assert (verdict.status, verdict.seconds) == (Status.HELD, pytest.approx(FIRED_S, abs=0.001))
    assert verdict.dated == "rule fired, ± 1.0 s evaluation; seen at 0.30 s"


def test_it_is_one_figure_on_every_page(reports: Path) -> None:
    played = play(PLAN, fires_after(FIRED_S), reports=reports)
    run, (fault,) = judge_run_folder(played.folder), played.history.of(FaultInjected)
    (fired,) = [one for one in played.history.of(AlertSeen) if one.state == "firing" and not one.receivers]
    (row,) = alerts.build(run).expected
    (hops,) = chain.build(run).chains
    (case,) = [one for one in ElementTree.fromstring(junit(run)).iter("testcase") if "alert-fires" in str(one.attrib)]
    (lane,) = [one for one in signal_lanes(run).lanes if one.label == f"Alert {row.alert}"]
    seen = first_detection(Signal.ALERT, window_of(run, fault)).at
    since_line = KernelLineSeen(
        node=fault.target.node, family="xid", code=79, pci=None, decision="quarantine", reason="", line="",
        at=fault.written_at,
    )  # fmt: skip
    profile, cluster = played.cluster.profile(), played.cluster
    prometheus = cluster.connect(profile, cluster.clock).prometheus
    begin = fault.written_at - timedelta(minutes=1)
    after = node_alerts(prometheus, profile, fault.target.node, begin, cluster.now())
    found = {one.id: one.seconds for one in findings(incident(), history_of(since_line, *after))}
    figures = {
        "verdict": of(played).seconds,
        "headline": next(one.seconds for one in durations(run) if one.measure is DurationKind.ALERT),
        "alerts": row.to_fire_s,
        "chain": next(one.end_s for one in hops.rows if one.hop == Hop.RULE_FIRING),
        "JUnit": float(case.attrib["time"]),
        "lane": lane.bars[0].start_s,
        "coverage": (seen - fault.written_at).total_seconds() if seen else None,
        "history": (fired.at - fault.written_at).total_seconds(),
        "post-mortem": found["alert"],
    }
    assert figures == dict.fromkeys(figures, pytest.approx(FIRED_S, abs=0.001))


@pytest.mark.parametrize(("late_ms", "status"), [(-1, Status.HELD), (1, Status.BROKEN)])
def test_what_fired_in_time_and_was_seen_late_is_in_time(late_ms: int, status: Status, reports: Path) -> None:
    """The step is busy when the alert fires, and looks a while after the bound."""
    plan = bounded(timedelta(seconds=1))
    verdict = of(play(plan, fires_after(1.0 + late_ms / 1000), reports=reports))
    assert verdict.status is status


@pytest.mark.parametrize(
    ("ahead_s", "fires_s", "status", "said"),
    [
        (-20.0, 10.0, Status.HELD, "before a look that did not show it"),
        (-20.0, 30.0, Status.UNKNOWN, "before a look that did not show it"),
        (-20.0, 16.5, Status.UNKNOWN, "before a look that did not show it"),
        (20.0, 10.0, Status.HELD, "after it was seen"),
        (20.0, 15.8, Status.UNKNOWN, "after it was seen"),
        (0.4, 10.0, Status.HELD, ""),
        (-0.4, 10.0, Status.HELD, ""),
    ],
)
def test_the_clock_of_prometheus_gives_no_verdict_that_the_runs_looks_refute(
    ahead_s: float, fires_s: float, status: Status, said: str, reports: Path
) -> None:
    verdict = of(play(PLAN, with_clock(ahead_s, fires_s), reports=reports))
    assert verdict.status is status
    assert said in verdict.dated
    assert verdict.seconds is not None and verdict.seconds > fires_s - 0.5
