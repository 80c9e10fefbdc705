"""Prefect's hook of a flow run that could not begin says what to do, and undoes nothing."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.states import Crashed

import gameday.flows.hooks
from gameday.flows.game_day import game_day
from gameday.flows.hooks import reap_flow_run


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """Flow runs that were refused, with the reasons; a cluster is not asked."""
    found: list[tuple[Any, str]] = []
    monkeypatch.setattr(gameday.flows.hooks, "refuse_flow_run", lambda id, why: found.append((id, why)))
    monkeypatch.setattr(gameday.flows.hooks, "flow_run_logger", lambda *_: logging.getLogger("hook"))
    monkeypatch.setattr(gameday.flows.hooks, "Kubernetes", lambda _: pytest.fail("the cluster was asked"))
    return found


def test_a_deployment_of_another_version_is_refused_with_the_command_that_mends_it(
    refused: list[tuple[Any, str]], caplog: pytest.LogCaptureFixture
) -> None:
    run = FlowRun(id=uuid4(), flow_id=uuid4(), parameters={"plan": "nothing-happens", "gone": 1, "older": 2})
    reap_flow_run(game_day, run, Crashed())
    why = "the deployment is of another version: game-day takes no gone, older; run `gameday deploy` again"
    assert refused == [(run.id, why)]
    assert why in caplog.text


def test_a_profile_that_cannot_be_used_is_no_traceback(
    refused: list[tuple[Any, str]], caplog: pytest.LogCaptureFixture
) -> None:
    run = FlowRun(id=uuid4(), flow_id=uuid4(), parameters={"profile": "no-such-profile.yaml"})
    reap_flow_run(game_day, run, Crashed())
    assert refused == []
    assert "nothing was undone: " in caplog.text
    assert "no-such-profile.yaml" in caplog.text
