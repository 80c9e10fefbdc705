"""The answer of a probe's job: how its pod ended, and not that its container has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.cluster.pods import PodSeen
from gameday.expect.probes import ExpectedProbe
from gameday.history.journal import History
from gameday.tasks.moments import probes

PROBE = ExpectedProbe.model_validate({"name": "work", "job": {"command": ["true"]}, "stays_for": "20s"})


def pod(phase: str, termination: str | None) -> PodSeen:
    return PodSeen(
        name="work-0-x",
        uid="u",
        role="probe",
        node="n1",
        phase=phase,
        reason="",
        ready=False,
        gone=False,
        unschedulable=None,
        termination=termination,
        owner_job="work",
    )


@pytest.mark.parametrize(("phase", "holds"), [("Succeeded", True), ("Failed", False)])
def test_a_container_that_ended_before_its_pod_did_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, phase: str, holds: bool
) -> None:
    looks = [pod("Running", None), pod("Running", ""), pod(phase, "")]
    monkeypatch.setattr(probes, "probe_order", lambda *_: None)
    monkeypatch.setattr(probes, "probe_job", lambda *_, **__: None)
    run: Any = SimpleNamespace(
        clock=Clock(),
        id="r",
        gpu_pod_template=None,
        record=SimpleNamespace(object_name=lambda _: "work"),
        history=lambda: History(()),
        intend=lambda *_: None,
        undo=lambda _: None,
        kubernetes=SimpleNamespace(create_job=lambda _: None),
        pods=SimpleNamespace(present=lambda: [looks.pop(0)] if len(looks) > 1 else looks),
        wait=lambda _what, _timeout, condition, every_s: next(found for _ in range(9) if (found := condition())),
    )
    assert PROBE.job is not None
    assert probes._run_job(run, PROBE, PROBE.job, ["n1"]).holds is holds
