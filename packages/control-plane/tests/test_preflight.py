"""Doctor, dry run and live view of a plan whose fault runs on an API-client node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.detectors.resolve import load_complete_plan
from gameday.guard import preview
from gameday.guard.preview import approval_question, planned_changes
from gameday.guard.rights import Right, rights_for, rights_for_every_plan
from gameday.history.events import FaultInjected, TargetsChosen
from gameday.plan.catalogue import package_plans
from gameday.report.live_lines import words_of
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import ChosenTarget
from gameday.values.nodes import NodeSnapshot, Target
from gameday.values.results import Step
from gameday_control_plane.preflight import rights_of_the_control_plane

ROOT = Path(__file__).parents[2]
LIMITED = load_complete_plan(package_plans()["apiserver-list-storm-limited-to-two"], ()).played[0]


def _granted() -> set[Right]:
    path = ROOT / "deploy/control-plane/runner.yaml"
    return {
        Right(verb, resource, role["metadata"].get("namespace", ""), group)
        for role in YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8"))
        for rule in role.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_doctor_asks_for_exactly_what_the_manifest_of_the_control_plane_grants() -> None:
    assert set(rights_of_the_control_plane()) == _granted()


@pytest.mark.parametrize("name", sorted(package_plans()))
def test_every_shipped_plan_of_the_control_plane_needs_only_what_is_granted(name: str) -> None:
    loaded = load_complete_plan(package_plans()[name], ())
    wanted = {right for one in loaded.played for right in rights_for(one.plan, "gameday")}
    assert wanted <= {*rights_for_every_plan("gameday"), *_granted()}


def test_without_a_limiter_no_right_over_flow_control_is_asked_for() -> None:
    without = load_complete_plan(package_plans()["apiserver-list-storm-limited-to-two"], ()).of_arm("none").plan
    assert "flowcontrol.apiserver.k8s.io" not in {right.group for right in rights_for(without, "gameday")}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run whose pods are not made: their manifests are tested where they are."""
    monkeypatch.setattr(preview, "agent_manifest", lambda run, name, task, deadline: {"task": task.role})

    class Named:
        loaded = LIMITED

        def object_name(self, purpose: str, index: int = 0) -> str:
            return f"gd-{purpose}"

    class Fake:
        id = "run-1"
        plan = LIMITED.plan
        member = None
        record = Named()
        gpu_pod_template = None

        class profile:
            name = "lab"
            namespace = "gameday"

        class nodes:
            @staticmethod
            def gpu_pods_on(node: str) -> tuple[()]:
                return ()

    return Fake()


TARGETS = (ChosenTarget(0, Target(node="client-1"), NodeSnapshot.model_construct(node="client-1")),)


def test_the_preview_has_the_limiter_and_the_api_canary_and_nothing_of_a_gpu(run: ReadOnlyRun) -> None:
    changes = planned_changes(run, TARGETS)
    objects = [(one.step, one.object) for one in changes if not one.object.startswith(("lease/", "configmap/"))]
    assert objects == [
        (Step.BASELINE, "pod/gd-api-canary"),
        (Step.INJECT, "prioritylevelconfiguration/gameday-heavy-list"),
        (Step.INJECT, "flowschema/gameday-heavy-list"),
        (Step.INJECT, "pod/gd-inject"),
    ]
    assert "gameday-heavy-list-spare" in next(one.why for one in changes if one.object.startswith("priority"))


def test_a_target_without_a_gpu_is_named_without_one(run: ReadOnlyRun) -> None:
    assert "* targets: client-1\n" in approval_question(run, TARGETS).replace("\\", "")
    chosen = TargetsChosen.model_construct(targets=(Target(node="client-1"), Target(node="n1", gpu=3)))
    assert _text(chosen) == "target client-1, n1 GPU 3"
    injected = FaultInjected.model_construct(fault="list_storm", target=Target(node="client-1"), layer="control plane")
    assert _text(injected) == "fault list_storm went in on client-1, layer control plane"


def _text(event: Any) -> str:
    words = words_of(event)
    assert words is not None
    return words.text
