"""The signs that Prometheus did not keep up, and what is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from gameday.cluster.prometheus import RuleGroup, Sample, Series
from gameday.errors import AdapterError
from gameday.history.events import PrometheusFellBehind
from gameday.observe.prometheus_pace import note_if_behind
from tests.report.run_builder import at

SINCE, UNTIL = at(0), at(300)
RULE = {"type": "alerting", "name": "A", "query": "x", "duration": 0, "health": "ok"}


def group(last: datetime | str, interval_s: float = 15, **keys: Any) -> RuleGroup:
    last = last if isinstance(last, str) else last.isoformat()
    content = {"name": "gpus", "file": "f", "interval": interval_s, "rules": [RULE], "lastEvaluation": last}
    return RuleGroup.model_validate(content | keys)


@dataclass
class Scraping:
    """A Prometheus that has scraped its quickest target at these seconds of the run."""

    scrapes: tuple[float, ...] = tuple(range(0, 301, 15))
    group: RuleGroup | None = None
    missed_s: float | None = None

    def rule_groups(self) -> tuple[RuleGroup, ...]:
        return (self.group or group(UNTIL - timedelta(seconds=10)),)

    def query(self, promql: str, at: datetime) -> list[Sample]:
        if "iterations_missed" in promql:
            return [] if self.missed_s is None else [Sample("", {}, at, self.missed_s)]
        return [Sample("", {"job": "j", "instance": 'a"b'}, at, len(self.scrapes))] if self.scrapes else []

    def stored_samples(self, selector: str, window: timedelta, end: datetime) -> list[Series]:
        assert selector == r'up{job="j",instance="a\"b"}'
        return [Series("up", {}, tuple((at(second), 1.0) for second in self.scrapes))]


class Down:
    def rule_groups(self) -> tuple[RuleGroup, ...]:
        raise AdapterError("http://p", "no answer within 3 s", "is it overloaded?")


@dataclass
class Run:
    servers: Any
    noted: list[PrometheusFellBehind]

    def note(self, event: PrometheusFellBehind) -> None:
        self.noted.append(event)


def why(prometheus: Any) -> str:
    run: Any = Run(type("Servers", (), {"prometheus": prometheus}), [])
    assert note_if_behind(run, SINCE, UNTIL) is bool(run.noted)
    return run.noted[0].why if run.noted else ""


WITHOUT_A_MINUTE = tuple(second for second in range(0, 301, 15) if not 100 < second < 160)


@pytest.mark.parametrize(
    ("prometheus", "said"),
    [
        (Scraping(scrapes=WITHOUT_A_MINUTE), "it scraped nothing for 75 s from"),
        (Scraping(scrapes=tuple(range(0, 201, 15))), "it scraped nothing for 105 s from"),
        (Scraping(group=group(at(240))), "rules are late: gpus: evaluated 60 s ago, and due every 15 s"),
        (Scraping(missed_s=30.0), "it left out evaluations of a group of rules for 30 s"),
        (Down(), "it could not be asked: http://p: no answer within 3 s"),
    ],
    ids=["a-pause", "stopped-since", "late-rules", "missed-evaluations", "down"],
)  # fmt: skip
def test_a_server_that_did_not_keep_up(prometheus: Any, said: str) -> None:
    assert said in why(prometheus)


@pytest.mark.parametrize(
    "prometheus",
    [
        Scraping(),
        Scraping(scrapes=tuple(range(0, 301, 60))),
        Scraping(scrapes=(*range(0, 200), *range(208, 301))),
        Scraping(scrapes=()),
        Scraping(missed_s=1.0),
        Scraping(group=group(at(0), 300)),
        Scraping(group=group("0001-01-01T00:00:00Z")),
        Scraping(group=group(at(0), rules=[])),
    ],
    ids=["kept-up", "slow-targets", "a-hiccup", "no-targets", "one-missed", "slow-rules", "new-rules", "no-alerts"],
)
def test_a_server_that_kept_up_or_of_which_nobody_can_tell(prometheus: Any) -> None:
    assert why(prometheus) == ""
