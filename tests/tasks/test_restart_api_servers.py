"""The restart with the load gone: in a lab only, refused before the fault, and noted with its moments."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.errors import ControlError, StepFailedError
from gameday.faults.registry import parameter_models
from gameday.guard.preview import fault_warnings
from gameday.history.events import ApiServersRestarted
from gameday.plan.load import parse_plan
from gameday.plan.models import Recovery, ServerRestart
from gameday.report.narration import narrate
from gameday.tasks import restart_api_servers
from gameday.tasks.restart_api_servers import refuse_restart_without_lab, restart_with_load_gone

LAB = Path("/lab/control.sock")
PLAN = b"""\
apiVersion: gameday/v1
name: a
title: t
hypothesis: h
fault: {type: api_churn}
guardrails: {allow_dangerous: [api_churn]}
expect: {api_canary: {}}
recover: {restart_api_servers: {}}
"""
ASKED_FOR = ServerRestart(settle=timedelta(seconds=20))


class FakeRun:
    """The parts of a run that the restart uses."""

    def __init__(self, lab: Path | None, recover: Recovery) -> None:
        self.plan = SimpleNamespace(name="gogc", recover=recover)
        self.profile = SimpleNamespace(lab_control=lab)
        self.did: list[Any] = []

    def note(self, event: object) -> None:
        self.did.append(event)

    def wait(self, what: str, *_: object, **__: object) -> None:
        self.did.append(what)


def fake(lab: Path | None = LAB, restart: ServerRestart | None = ASKED_FOR) -> Any:
    return FakeRun(lab, Recovery(restart_api_servers=restart))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    calls: list[Path] = []
    monkeypatch.setattr(restart_api_servers, "restart_api_servers", calls.append)
    return calls


def test_the_memory_settles_before_and_after_it(asked: list[Path]) -> None:
    run = fake()
    restart_with_load_gone(run)
    before, noted, after = run.did
    assert (asked, before, after) == (
        [LAB],
        "the API servers' memory to settle before the restart",
        "the API servers' memory to settle after the restart",
    )
    assert isinstance(noted, ApiServersRestarted)
    assert noted.asked_at <= noted.ready_at
    said = narrate(noted)
    assert said
    assert "API servers restarted" in said.text


def test_a_plan_without_it_restarts_nothing(asked: list[Path]) -> None:
    run = fake(None, None)
    refuse_restart_without_lab(run)
    restart_with_load_gone(run)
    assert (asked, run.did) == ([], [])


def test_a_cluster_that_is_no_lab_is_refused_before_the_fault(asked: list[Path]) -> None:
    with pytest.raises(StepFailedError, match="this cluster is no lab"):
        refuse_restart_without_lab(fake(None))
    assert asked == []


def test_a_lab_that_does_not_restart_breaks_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise ControlError("kube-apiserver ended with 1")

    monkeypatch.setattr(restart_api_servers, "restart_api_servers", refuse)
    with pytest.raises(StepFailedError, match="does not restart its API servers: kube-apiserver ended with 1"):
        restart_with_load_gone(fake())


def test_a_dry_run_says_what_is_restarted_and_where_it_is_refused() -> None:
    plan = parse_plan(PLAN, "p.yaml", parameter_models()).plan

    def warned(lab: Path | None) -> str:
        run: Any = SimpleNamespace(plan=plan, profile=SimpleNamespace(lab_control=lab))
        return next(said for said in fault_warnings(run) if "restarted" in said)

    assert "refused" not in warned(LAB)
    assert "this cluster is no lab" in warned(None)
