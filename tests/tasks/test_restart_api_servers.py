"""The restart with the load gone: in a lab only, refused before the fault, and noted with its moments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.errors import ControlError, StepFailedError
from gameday.faults.registry import parameter_models
from gameday.guard.preview import fault_warnings
from gameday.history.events import ApiServersRestarted, WaitStarted
from gameday.plan.load import parse_plan
from gameday.plan.models import Recovery, ServerRestart
from gameday.report.narration import narrate
from gameday.run.run import Run
from gameday.tasks.moments import restart_api_servers
from gameday.tasks.moments.restart_api_servers import fault_goes_in, fault_is_out
from tests.support.runs import with_plan
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Script

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


@contextmanager
def opened(folder: Path, lab: Path | None = LAB, *, restarts: bool = True) -> Iterator[Run]:
    """Yield a run of the plan, on a lab or on another cluster."""
    loaded = parse_plan(PLAN, "p.yaml", parameter_models())
    cluster = ScriptedCluster(Script(), nodes=0)
    with cluster.run(loaded if restarts else with_plan(loaded, recover=Recovery()), folder, lab_control=lab) as run:
        yield run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    calls: list[Path] = []
    monkeypatch.setattr(restart_api_servers, "restart_api_servers", calls.append)
    return calls


def test_the_memory_settles_before_and_after_it(asked: list[Path], tmp_path: Path) -> None:
    with opened(tmp_path) as run:
        began = run.clock.monotonic()
        fault_is_out(run)
        before, after = run.history().of(WaitStarted)
        (noted,) = run.history().of(ApiServersRestarted)
        settle = ServerRestart().settle.total_seconds()
        assert run.clock.monotonic() - began >= 2 * settle
    assert (asked, before.what, after.what) == (
        [LAB],
        "the API servers' memory to settle before the restart",
        "the API servers' memory to settle after the restart",
    )
    assert noted.asked_at <= noted.ready_at
    said = narrate(noted)
    assert said
    assert "API servers restarted" in said.text


def test_a_plan_without_it_restarts_nothing(asked: list[Path], tmp_path: Path) -> None:
    with opened(tmp_path, None, restarts=False) as run:
        fault_goes_in(run, ())
        fault_is_out(run)
        assert (asked, run.history().records) == ([], ())


def test_a_cluster_that_is_no_lab_is_refused_before_the_fault(asked: list[Path], tmp_path: Path) -> None:
    with opened(tmp_path, None) as run, pytest.raises(StepFailedError, match="this cluster is no lab"):
        fault_goes_in(run, ())
    assert asked == []


def test_a_lab_that_does_not_restart_breaks_the_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(_: Path) -> None:
        raise ControlError("kube-apiserver ended with 1")

    monkeypatch.setattr(restart_api_servers, "restart_api_servers", refuse)
    why = "does not restart its API servers: kube-apiserver ended with 1"
    with opened(tmp_path) as run, pytest.raises(StepFailedError, match=why):
        fault_is_out(run)


def test_a_dry_run_says_what_is_restarted_and_where_it_is_refused() -> None:
    plan = parse_plan(PLAN, "p.yaml", parameter_models()).plan

    def warned(lab: Path | None) -> str:
        run: Any = SimpleNamespace(plan=plan, profile=SimpleNamespace(lab_control=lab))
        return next(said for said in fault_warnings(run) if "restarted" in said)

    assert "refused" not in warned(LAB)
    assert "this cluster is no lab" in warned(None)
