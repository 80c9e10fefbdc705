"""A comparison's settings of the lab: in its ledger before they are changed, and taken back by it or by the reaper."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import ControlError
from gameday.ledger import undo
from gameday.ledger.entries import DeletePod, Header
from gameday.ledger.ledger import Ledger, ledger_name
from gameday.reaper.reap import reap
from gameday.runs import lab_settings
from gameday.runs.lab_settings import ChangedLab
from gameday.values.results import Cleanliness
from tests.support.world import World, unique

LAB = Path("/lab/control.sock")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The settings that the lab was asked for."""
    asked: list[dict[str, Any]] = []

    def configure(lab: Path, rehearsal: dict[str, Any]) -> None:
        assert lab == LAB
        asked.append(rehearsal)

    for module in (undo, lab_settings):
        monkeypatch.setattr(module, "configure_lab", configure)
    return asked


@pytest.fixture
def header() -> Header:
    return Header(run_id=unique("arms"), plan="p", started=datetime.now(UTC), operator="ada", host="here")


@pytest.fixture
def lab_reaper(reaper: Kubernetes, monkeypatch: pytest.MonkeyPatch) -> Kubernetes:
    """The reaper with a profile of the lab."""
    monkeypatch.setattr(reaper, "profile", reaper.profile.model_copy(update={"lab_control": LAB}))
    return reaper


def test_the_ledger_lasts_from_before_the_first_change_until_the_lab_has_its_own_settings(
    world: World, runner: Kubernetes, header: Header, asked: list[dict[str, Any]]
) -> None:
    lab = ChangedLab(LAB, runner, header, timedelta(minutes=5))
    assert (asked, ledger_name(header.run_id) in world.ledgers()) == ([], True)
    lab.configure({"api_servers": 3})
    lab.restore()
    assert asked == [{"api_servers": 3}, {}]
    assert ledger_name(header.run_id) not in world.ledgers()


def test_the_reaper_restores_a_dead_comparisons_lab_after_all_that_its_game_days_left(
    world: World, runner: Kubernetes, lab_reaper: Kubernetes, header: Header, asked: list[dict[str, Any]]
) -> None:
    ChangedLab(LAB, runner, header, timedelta(minutes=5))
    member = Ledger(runner, header.model_copy(update={"run_id": f"{header.run_id}-01"}))
    mark = DeletePod(pod=f"gd-{header.run_id}-01-mark")
    member.intend(id="pod", act="a pod", node=None, undo=mark, expires=header.started)
    result = reap(lab_reaper)
    assert [one.entry.id for one in result.reaped] == ["pod", "lab-settings"]
    assert (result.is_clean, asked) == (True, [{}])
    assert world.ledgers() == []


@pytest.mark.parametrize(("lab", "why"), [(None, "the profile of the lab"), (LAB, "it does not start")])
def test_a_lab_that_cannot_be_restored_stays_in_the_ledger(
    world: World,
    runner: Kubernetes,
    lab_reaper: Kubernetes,
    header: Header,
    monkeypatch: pytest.MonkeyPatch,
    lab: Path | None,
    why: str,
) -> None:
    def refuse(*_: object) -> None:
        raise ControlError("it does not start")

    monkeypatch.setattr(undo, "configure_lab", refuse)
    monkeypatch.setattr(lab_reaper, "profile", lab_reaper.profile.model_copy(update={"lab_control": lab}))
    ChangedLab(LAB, runner, header, timedelta(minutes=5))
    (one,) = reap(lab_reaper).reaped
    assert one.cleanliness is Cleanliness.UNKNOWN
    assert why in one.evidence[0]
    assert ledger_name(header.run_id) in world.ledgers()
    monkeypatch.setattr(undo, "configure_lab", lambda *_: None)
    monkeypatch.setattr(lab_reaper, "profile", lab_reaper.profile.model_copy(update={"lab_control": LAB}))
    assert reap(lab_reaper).is_clean
