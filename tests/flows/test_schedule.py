"""A worker that comes back does not break on a Friday evening what was due on Tuesday morning."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.context import FlowRunContext

import gameday.flows.judged_state
from gameday.errors import RefusedError
from gameday.flows.invocation import occasion
from gameday.flows.schedule import refuse_overdue
from gameday.flows.season import season
from gameday.values.results import Trigger


def due(monkeypatch: pytest.MonkeyPatch, ago: timedelta | None, *, by_schedule: bool = False) -> datetime | None:
    at = None if ago is None else datetime.now(UTC) - ago
    run = SimpleNamespace(expected_start_time=at, auto_scheduled=by_schedule, id=1, tags=(), parent_task_run_id=None)
    context = SimpleNamespace(flow_run=run)
    monkeypatch.setattr(FlowRunContext, "get", lambda: context)
    return at


def test_what_was_missed_is_refused_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at = due(monkeypatch, timedelta(days=3))
    assert at is not None
    with pytest.raises(RefusedError, match=f"was due at {at:%Y-%m-%d %H:%M} UTC, more than an hour ago"):
        refuse_overdue("scheduled")


@pytest.mark.parametrize(
    ("trigger", "ago"),
    [("scheduled", timedelta(minutes=50)), ("scheduled", None), ("manual", timedelta(days=3))],
)
def test_what_comes_soon_enough_or_was_asked_for_runs(
    monkeypatch: pytest.MonkeyPatch, trigger: Trigger, ago: timedelta | None
) -> None:
    due(monkeypatch, ago)
    refuse_overdue(trigger)


def test_what_a_schedule_started_is_scheduled_whatever_its_parameters_say(monkeypatch: pytest.MonkeyPatch) -> None:
    due(monkeypatch, timedelta(days=3), by_schedule=True)
    assert occasion("manual") == "scheduled"
    with pytest.raises(RefusedError, match="more than an hour ago"):
        refuse_overdue("manual")


def test_outside_a_flow_run_nothing_was_due() -> None:
    refuse_overdue("scheduled")


def test_a_season_that_was_missed_asks_the_cluster_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    due(monkeypatch, timedelta(days=3))
    monkeypatch.setattr(gameday.flows.judged_state, "show_outcome", lambda *_: False)
    nowhere = {"url": "http://127.0.0.1:9"}
    content = {"kubeconfig": "none", "prometheus": nowhere, "alertmanager": nowhere, "loki": nowhere}
    (tmp_path / "profile.yaml").write_text(json.dumps(content))
    state = season.fn(profile=str(tmp_path / "profile.yaml"), trigger="scheduled", reports=str(tmp_path / "reports"))
    assert state.name == "Failed"
    assert "UTC, more than an hour ago" in (state.message or "")
    assert not (tmp_path / "reports").exists()
