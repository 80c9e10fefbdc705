"""How soon an alert can fire, by a real Prometheus' scrapes and rules; and the doctor's word on a plan's bound."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.guard.alert_pace import AlertPace, pace_of
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.doctor.prometheus import _in_time
from gameday.guard.rule_series import RuleSeries
from gameday_rehearsal.observability import ScrapeJob, prometheus_program
from tests.cluster.servers.conftest import Answer, Stub, _start, eventually
from tests.support.ports import free_ports

SLOW_S, QUICK_S, EVALUATED_S = 1.0, 0.2, 2.0
RULES = f"""\
groups:
  - name: of one exporter
    interval: {EVALUATED_S:g}s
    rules:
      - {{record: 'of:slow', expr: slow > 0}}
      - {{alert: OfSlow, expr: slow > 0}}
      - {{alert: Recorded, expr: 'of:slow == 1', for: 3s}}
      - {{alert: OfBoth, expr: 'slow > 0 and on() quick > 0'}}
      - {{alert: OfQuick, expr: quick > 0}}
      - {{alert: OfNothing, expr: nowhere > 0}}
  - name: of the same name, and quicker
    interval: 1s
    rules:
      - {{alert: OfQuick, expr: quick > 0}}
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder, exporters = tmp_path_factory.mktemp("prometheus"), {"slow": Stub(), "quick": Stub()}
    for name, exporter in exporters.items():
        exporter.answers = [Answer(body=f"{name} 1\n".encode(), headers={"Content-Type": "text/plain; version=0.0.4"})]
    (folder / "rules.yaml").write_text(RULES)
    port, nobody = free_ports(2)
    every = {"slow": SLOW_S, "quick": QUICK_S}
    jobs = [ScrapeJob(name, exporter.address, every[name]) for name, exporter in exporters.items()]
    rules = [folder / "rules.yaml"]
    program = prometheus_program(folder, port=port, nodes=1, jobs=jobs, alertmanager_port=nobody, rule_files=rules)
    running: subprocess.Popen[bytes] = _start(program)
    try:
        with Prometheus(Endpoint(url=f"http://127.0.0.1:{port}")) as client:
            eventually(lambda: client.query("count_over_time(slow[1m]) >= 3"), bool)
            yield client
    finally:
        running.terminate()
        running.wait(20)
        for exporter in exporters.values():
            exporter.close()


@pytest.mark.parametrize(
    ("alert", "scraped", "evaluated", "hold"),
    [
        ("OfSlow", SLOW_S, EVALUATED_S, 0.0),
        ("Recorded", SLOW_S, EVALUATED_S, 3.0),
        ("OfBoth", SLOW_S, EVALUATED_S, 0.0),
        ("OfQuick", QUICK_S, 1.0, 0.0),
    ],
)
@pytest.mark.slow
def test_the_pace_is_that_of_the_slowest_series_and_the_quickest_rule(
    prometheus: Prometheus, alert: str, scraped: float, evaluated: float, hold: float
) -> None:
    pace = pace_of(prometheus, RuleSeries(prometheus), alert, Clock().now())
    assert pace is not None
    assert pace.scrape_s == pytest.approx(scraped, rel=0.2)
    assert (pace.evaluate_s, pace.hold_s) == (evaluated, hold)


def test_what_nobody_scrapes_has_no_known_pace_and_no_rule_has_none(prometheus: Prometheus) -> None:
    series, now = RuleSeries(prometheus), Clock().now()
    assert pace_of(prometheus, series, "OfNothing", now) == AlertPace(None, EVALUATED_S, 0.0)
    assert pace_of(prometheus, series, "Nobodys", now) is None


def test_for_is_over_at_an_evaluation() -> None:
    pace = AlertPace(scrape_s=30.0, evaluate_s=15.0, hold_s=20.0)
    assert (pace.soonest_s, pace.latest_s) == (30.0, 75.0)


def said_of(prometheus: Prometheus, alert: str, within_s: float) -> Prerequisite:
    run: Any = SimpleNamespace(clock=Clock(), servers=SimpleNamespace(prometheus=prometheus))
    expected: Any = SimpleNamespace(name=alert, within=timedelta(seconds=within_s))
    (said,) = _in_time(run, RuleSeries(prometheus), expected)
    return said


@pytest.mark.parametrize(("within_s", "ok"), [(3.9, False), (4.1, None), (6.9, None), (7.5, True)])
def test_a_bound_holds_always_by_luck_or_never(prometheus: Prometheus, within_s: float, ok: bool | None) -> None:
    """`for` 3 s ends with the evaluation after 4 s; a scrape and an evaluation may have just passed."""
    said = said_of(prometheus, "Recorded", within_s)
    assert said.ok is ok, said
    assert f"the plan gives {within_s:g} s" in said.detail
    assert ("luck" in said.detail) is (ok is not True)
    assert ("let the plan expect Recorded within: " in said.fix) is (ok is not True)
