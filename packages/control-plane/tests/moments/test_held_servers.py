"""Servers that were held back start when the fault is in, in a lab only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gameday.cluster.lab_control import Verb
from gameday.errors import ControlError, StepFailedError
from gameday.plan.rehearsal import RehearsalSettings
from gameday.run.run import Run
from gameday_control_plane.events import HeldServersStarted
from gameday_control_plane.moments import settings as control_plane_settings
from gameday_control_plane.moments.settings import fault_is_in, hold_servers
from gameday_control_plane.settings import ControlPlaneSettings
from tests.support.runs import quick_plan, with_plan
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script

HELD = RehearsalSettings(cluster="lab", api_servers=3, held_api_servers=2)


@contextmanager
def opened(folder: Path, lab: Path | None = Path("/lab/control.sock"), *, held: bool = True) -> Iterator[Run]:
    """Yield a run of a plan that holds servers back, on a lab or on another cluster."""
    settings = ControlPlaneSettings(start_held_servers="after-fault") if held else ControlPlaneSettings()
    loaded = with_plan(quick_plan(), rehearsal=HELD, settings=settings)
    with ScriptedCluster(Script(), nodes=0).run(loaded, folder, lab_control=lab) as run:
        yield run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Verb, str]]:
    calls: list[tuple[Verb, str]] = []
    monkeypatch.setattr(control_plane_settings, "ask_lab", lambda _, verb, name: calls.append((verb, name)))
    return calls


def test_they_are_held_before_the_fault_and_start_after_it(asked: list[tuple[Verb, str]], tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        hold_servers(run)
        assert run.history().records == ()
        fault_is_in(run)
        noted = run.history().of(HeldServersStarted)
    names = ("kube-apiserver-2", "kube-apiserver-3")
    assert asked == [(verb, name) for verb in (Verb.HOLD, Verb.START) for name in names]
    assert noted == [HeldServersStarted(servers=names)]


def test_a_plan_without_the_setting_asks_nothing(asked: list[tuple[Verb, str]], tmp_path: Path) -> None:
    with opened(tmp_path, None, held=False) as run:
        hold_servers(run)
        fault_is_in(run)
        assert (asked, run.history().records) == ([], ())


def test_a_cluster_that_is_no_lab_is_refused_before_the_fault(asked: list[tuple[Verb, str]], tmp_path: Path) -> None:
    with opened(tmp_path, None) as run, pytest.raises(StepFailedError, match="this cluster is no lab"):
        hold_servers(run)
    assert asked == []


def test_a_lab_that_refuses_breaks_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise ControlError("kube-apiserver-2 runs already")

    monkeypatch.setattr(control_plane_settings, "ask_lab", refuse)
    with opened(tmp_path) as run, pytest.raises(StepFailedError, match=r"does not start .* runs already"):
        fault_is_in(run)
