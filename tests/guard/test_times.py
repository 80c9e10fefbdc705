from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.cluster.profile import Freeze, load_profile
from gameday.errors import ProfileError
from gameday.guard.check import check
from gameday.guard.guardrails.freezes import Freezes
from gameday.guard.guardrails.windows import Windows, open_until
from gameday.plan.limits import TimeWindow
from tests.guard.observations import FakeRun, node, plan, profile

OFFICE = {"days": ["mon", "tue", "wed", "thu", "fri"], "start": "09:00", "end": "17:00", "zone": "Europe/Berlin"}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        ("2026-11-20T08:00", True),  # Friday 09:00 in Berlin
        ("2026-11-20T07:59", False),
        ("2026-11-20T15:59", True),
        ("2026-11-20T16:00", False),
        ("2026-11-21T10:00", False),  # Saturday
        ("2026-07-03T07:00", True),  # the same hours in summer, an hour earlier by UTC
    ],
)
def test_a_window_is_meant_in_its_own_zone(now: str, is_open: bool) -> None:
    assert (open_until(TimeWindow.model_validate(OFFICE), at(now)) is not None) is is_open


@pytest.mark.parametrize(
    ("now", "closes"),
    [("2026-11-20T23:00", "2026-11-21T04:00"), ("2026-11-21T03:59", "2026-11-21T04:00"), ("2026-11-21T04:00", None)],
)
def test_a_window_may_reach_over_midnight(now: str, closes: str | None) -> None:
    window = TimeWindow.model_validate({"days": ["fri"], "start": "22:00", "end": "04:00"})
    assert open_until(window, at(now)) == (at(closes) if closes else None)


@pytest.mark.parametrize(("now", "is_open"), [("2026-03-29T00:59", True), ("2026-03-29T01:30", False)])
def test_an_hour_that_the_clocks_skip_shortens_a_window(now: str, is_open: bool) -> None:
    """On 29 March 2026 Berlin's 02:30 does not exist; 03:30, an hour later by the wall, is 01:30 UTC."""
    window = TimeWindow.model_validate({"start": "01:00", "end": "02:30", "zone": "Europe/Berlin"})
    assert (open_until(window, at(now)) is not None) is is_open


def test_a_window_cannot_start_at_the_end_of_its_day() -> None:
    """It would have been open for 26 hours."""
    with pytest.raises(ValueError, match="start"):
        TimeWindow.model_validate({"start": "24:00", "end": "02:00"})


@pytest.mark.parametrize(("now", "is_open"), [("2026-10-25T00:15", True), ("2026-10-25T01:15", False)])
def test_an_hour_that_comes_twice_counts_once(now: str, is_open: bool) -> None:
    """On 25 October 2026 Berlin has 02:15 twice: 00:15 and 01:15 UTC."""
    window = TimeWindow.model_validate({"start": "01:00", "end": "02:30", "zone": "Europe/Berlin"})
    assert (open_until(window, at(now)) is not None) is is_open


def test_a_whole_day_closes_at_midnight() -> None:
    assert open_until(TimeWindow(), at("2026-11-20T10:00")) == at("2026-11-21T00:00")


def run_at(now: str, of_plan: list[Any], of_profile: list[Any]) -> bool | None:
    observation = FakeRun(plan(guardrails={"windows": of_plan}), profile(windows=of_profile), node("a")).observe()
    observation.now = at(now)
    checked = check(Windows(), observation)
    return checked.measurement.ok if checked else None


def test_both_the_plans_and_the_clusters_window_must_be_open() -> None:
    night = {"start": "00:00", "end": "10:00"}
    assert run_at("2026-11-20T09:00", [night], [OFFICE]) is True
    assert run_at("2026-11-20T11:00", [night], [OFFICE]) is False
    assert run_at("2026-11-20T06:00", [night], [OFFICE]) is False


def test_without_windows_every_time_is_right() -> None:
    assert run_at("2026-11-20T03:00", [], []) is None


@pytest.mark.parametrize(
    ("now", "ok"),
    [
        ("2026-12-19T22:59", True),
        ("2026-12-19T23:00", False),  # midnight in Berlin
        ("2027-01-06T22:59", False),  # the last day counts whole
        ("2027-01-06T23:00", True),
    ],
)
def test_a_freeze_holds_from_its_first_to_the_end_of_its_last_day(now: str, ok: bool) -> None:
    freeze = {"start": "2026-12-20", "end": "2027-01-06", "zone": "Europe/Berlin", "why": "year end"}
    observation = FakeRun(plan(), profile(freezes=[freeze]), node("a")).observe()
    observation.now = at(now)
    checked = check(Freezes(), observation)
    assert checked is not None
    assert checked.measurement.ok is ok


def test_a_freeze_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValidationError, match="must end after its start"):
        Freeze.model_validate({"start": "2026-12-20", "end": "2026-12-18", "why": "x"})


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("windows: [{zone: Mars/Olympus}]", "no such time zone"),
        ("windows: [{start: '9:00'}]", "start"),
        ("max_node: 1", "did you mean max_nodes?"),
    ],
)
def test_a_wrong_guardrail_in_the_profile_is_named(tmp_path: Path, written: str, said: str) -> None:
    servers = "".join(f"{name}: {{url: 'http://127.0.0.1:9'}}\n" for name in ("prometheus", "alertmanager", "loki"))
    path = tmp_path / "profile.yaml"
    path.write_text(f"{servers}guardrails:\n  {written}\n")
    with pytest.raises(ProfileError, match="guardrails") as refused:
        load_profile(path)
    assert said in str(refused.value)
