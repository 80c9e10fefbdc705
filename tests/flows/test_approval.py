from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prefect.context import FlowRunContext

from gameday.errors import RefusedError
from gameday.flows.approval import approve
from gameday.flows.question import Answer
from gameday.guard.preview import approval_question
from gameday.history.events import ApprovalAnswered
from gameday.plan.load import DetectorWarning
from tests.guard.observations import FakeRun, node, plan, profile

REQUIRED = {"approval": {"required": True}}


def answers(run: FakeRun) -> list[tuple[bool, str, str]]:
    found = [event for event in run.events if isinstance(event, ApprovalAnswered)]
    return [(one.approved, one.by, one.via) for one in found]


def test_the_form_has_two_answers_and_neither_is_chosen_for_the_person() -> None:
    form = Answer.model_json_schema()
    assert form["properties"]["decision"]["enum"] == ["approve", "refuse"]
    assert "default" not in form["properties"]["decision"]
    assert set(form["required"]) == {"decision", "name"}
    said = {decision: Answer(decision=decision, name="ada").approved for decision in ("approve", "refuse")}
    assert said == {"approve": True, "refuse": False}


def test_the_person_who_approves_on_the_command_line_is_named() -> None:
    run = FakeRun(plan(**REQUIRED), profile(), node("a"))
    approve(run, run.targets, "ada")  # type: ignore[arg-type]
    assert answers(run) == [(True, "ada", "command line")]


def test_a_plan_that_needs_no_approval_asks_nobody() -> None:
    run = FakeRun(plan(), profile(), node("a"))
    approve(run, run.targets, None)  # type: ignore[arg-type]
    assert run.events == []


def test_a_cluster_can_ask_for_approval_of_every_plan() -> None:
    cluster = profile().model_copy(update={"approval": plan(**REQUIRED).approval})
    run = FakeRun(plan(), cluster, node("a"))
    with pytest.raises(RefusedError, match="outside a flow run"):
        approve(run, run.targets, None)  # type: ignore[arg-type]


def test_a_plans_text_cannot_become_markup_in_the_question() -> None:
    hostile = "<script>alert(1)</script> [click](javascript:1) `x`"
    run = FakeRun(plan(title=hostile, **REQUIRED), profile(), node("a"))
    question = approval_question(run, run.targets)  # type: ignore[arg-type]
    assert "<script>" not in question
    assert "](javascript" not in question
    assert "`x`" not in question


def test_the_question_shows_what_the_fault_does_to_a_detector() -> None:
    run = FakeRun(plan(**REQUIRED), profile(), node("a"))
    warning = DetectorWarning("nvsentinel", "It loops *for ever*.", "Name a switch.")
    run.record.loaded = replace(run.record.loaded, detector_warnings=(warning,))
    question = approval_question(run, run.targets)  # type: ignore[arg-type]
    assert r"* warning: detector nvsentinel: It loops \*for ever\*. Name a switch." in question


def started(monkeypatch: pytest.MonkeyPatch, **flow_run: Any) -> None:
    """Let this be the run of a flow."""
    of_deployment = {"deployment_id": 1, "auto_scheduled": False, "parameters": {}, "id": 1}
    context = SimpleNamespace(flow_run=SimpleNamespace(**(of_deployment | flow_run)))
    monkeypatch.setattr(FlowRunContext, "get", lambda: context)


@pytest.mark.parametrize(
    ("flow_run", "asked"),
    [
        ({}, True),  # Quick run, or the form
        ({"parameters": {"trigger": "manual"}}, True),
        ({"parameters": {"trigger": "scheduled"}}, False),  # a program that says that nobody is there
        ({"auto_scheduled": True}, False),  # a schedule, whoever added it
        ({"deployment_id": None}, False),  # `gameday run`, `rehearse`, a season's own runs
    ],
)
def test_a_run_that_somebody_starts_at_a_deployment_asks_first(
    flow_run: dict[str, Any], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun(plan(guardrails={"max_duration": "10m"}), profile(), node("a"))
    started(monkeypatch, **flow_run)
    said: list[timedelta] = []

    def asking(asker: str, question: str, within: timedelta, *_: object) -> Answer:
        said.append(within)
        return Answer(decision="approve", name="ada")

    monkeypatch.setattr("gameday.flows.approval.ask", asking)
    approve(run, run.targets, None)  # type: ignore[arg-type]
    assert answers(run) == ([(True, "ada", "Prefect")] if asked else [])
    assert said == ([timedelta(minutes=5)] if asked else []), "half of the time that the run has"


def test_a_name_in_the_form_approves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun(plan(), profile(), node("a"))
    started(monkeypatch)
    approve(run, run.targets, "ada")  # type: ignore[arg-type]
    assert answers(run) == [(True, "ada", "Prefect")]
