"""Servers that were held back start when the fault is in, in a lab only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.cluster.lab_control import Verb
from gameday.errors import ControlError, StepFailedError
from gameday.history.events import HeldServersStarted
from gameday.plan.rehearsal import RehearsalSettings
from gameday.plan.settings import Settings
from gameday.tasks import control_plane_settings
from gameday.tasks.control_plane_settings import hold_servers, start_held_servers

HELD = RehearsalSettings(cluster="lab", api_servers=3, held_api_servers=2)


class FakeRun:
    """The parts of a run that the two steps use."""

    def __init__(self, lab: Path | None, settings: Settings) -> None:
        self.plan = SimpleNamespace(name="skew", rehearsal=HELD, settings=settings)
        self.profile = SimpleNamespace(lab_control=lab)
        self.noted: list[object] = []

    def note(self, event: object) -> None:
        self.noted.append(event)


def fake(lab: Path | None = Path("/lab/control.sock"), settings: Settings | None = None) -> Any:
    return FakeRun(lab, settings or Settings(start_held_servers="after-fault"))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Verb, str]]:
    calls: list[tuple[Verb, str]] = []
    monkeypatch.setattr(control_plane_settings, "ask_lab", lambda _, verb, name: calls.append((verb, name)))
    return calls


def test_they_are_held_before_the_fault_and_start_after_it(asked: list[tuple[Verb, str]]) -> None:
    run = fake()
    hold_servers(run)
    assert run.noted == []
    start_held_servers(run)
    names = ("kube-apiserver-2", "kube-apiserver-3")
    assert asked == [(verb, name) for verb in (Verb.HOLD, Verb.START) for name in names]
    assert run.noted == [HeldServersStarted(servers=names)]


def test_a_plan_without_the_setting_asks_nothing(asked: list[tuple[Verb, str]]) -> None:
    run = fake(None, Settings())
    hold_servers(run)
    start_held_servers(run)
    assert (asked, run.noted) == ([], [])


def test_a_cluster_that_is_no_lab_is_refused_before_the_fault(asked: list[tuple[Verb, str]]) -> None:
    with pytest.raises(StepFailedError, match="this cluster is no lab"):
        hold_servers(fake(None))
    assert asked == []


def test_a_lab_that_refuses_breaks_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ControlError("kube-apiserver-2 runs already")

    monkeypatch.setattr(control_plane_settings, "ask_lab", refuse)
    with pytest.raises(StepFailedError, match=r"does not start .* runs already"):
        start_held_servers(fake())
