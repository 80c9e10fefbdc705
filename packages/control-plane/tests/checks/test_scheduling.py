"""Pods of a load: all placed, in time, and no GPU given out twice; unknown where the log was not read."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status
from gameday.history.frames import Frames
from gameday.plan.expectations import every_expectation
from gameday_control_plane.events import PodStepsLogged
from gameday_control_plane.values.pod_steps import PodsPlaced, PodStep, ZonesPlaced
from tests.report.run_builder import FAULT_AT, NODE, PLAN, Timed, history_of, passing

CHECKS = ("pods-placed", "gpus-given-once", "scheduling-latency")


def judged(*logged: PodStepsLogged, **bounds: str) -> dict[str, Status]:
    expected = {"scheduling": {"p99_within": "5s", **bounds}}
    plan = PLAN.model_copy(update={"expect": every_expectation().model_validate(expected)})
    timed = [*passing(), *(Timed(FAULT_AT + 9, one) for one in logged)]
    wanted = (*CHECKS, "churn-latency", "zones-not-overcommitted")
    return {one.check: one.status for one in run_checks(plan, history_of(timed), Frames()) if one.check in wanted}


def logged(p99_s: float | None = 1.0, **placed: int | ZonesPlaced) -> PodStepsLogged:
    step = PodStep(step=1, created=16, bound=16, took_s=3.0, p50_s=p99_s, p99_s=p99_s)
    values: dict[str, Any] = {"wanted": 16, "bound": 16, "most_on_a_node": 8, "devices_given_twice": 0} | placed
    return PodStepsLogged(node=NODE, steps=(step,), placed=PodsPlaced(**values))


def test_pods_that_all_have_a_gpu_of_their_own_in_time_hold() -> None:
    assert judged(logged()) == dict.fromkeys(CHECKS, Status.HELD)


@pytest.mark.parametrize(
    ("event", "broken"),
    [
        (logged(bound=15), "pods-placed"),
        (logged(most_on_a_node=9), "gpus-given-once"),
        (logged(devices_given_twice=1), "gpus-given-once"),
        (logged(refused=1), "gpus-given-once"),
        (logged(p99_s=5.1), "scheduling-latency"),
    ],
)
def test_each_expectation_breaks_alone(event: PodStepsLogged, broken: str) -> None:
    assert [check for check, status in judged(event).items() if status is not Status.HELD] == [broken]


@pytest.mark.parametrize(
    ("churned", "status"), [(4.0, Status.HELD), (5.1, Status.BROKEN), (None, Status.UNKNOWN)], ids=str
)
def test_churn_has_a_bound_of_its_own(churned: float | None, status: Status) -> None:
    steps = logged().steps
    if churned:
        late = PodStep(step=2, created=2, deleted=2, bound=2, took_s=9.0, p50_s=churned, p99_s=churned)
        steps = (*steps, late)
    found = judged(logged().model_copy(update={"steps": steps}), churn_within="5s")
    assert found == dict.fromkeys(CHECKS, Status.HELD) | {"churn-latency": status}
    assert "churn-latency" not in judged(logged().model_copy(update={"steps": steps})), "nobody asked"


def test_a_load_that_was_not_heard_of_proves_nothing() -> None:
    assert judged() == dict.fromkeys(CHECKS, Status.UNKNOWN)


def test_steps_without_an_end_prove_no_place() -> None:
    cut = logged().model_copy(update={"placed": None})
    assert judged(cut)["pods-placed"] is Status.UNKNOWN
    assert judged(cut)["scheduling-latency"] is Status.HELD


def test_a_step_in_which_no_pod_was_bound_has_no_latency() -> None:
    assert judged(logged(p99_s=None))["scheduling-latency"] is Status.UNKNOWN


@pytest.mark.parametrize(
    ("overcommitted", "behind", "zones", "status"),
    [
        (0, 0, 4, Status.HELD),
        (1, 0, 4, Status.BROKEN),
        (1, 1, 4, Status.BROKEN),
        (0, 1, 4, Status.UNKNOWN),
        (0, 0, 0, Status.UNKNOWN),
    ],
)
def test_zones_are_judged_by_objects_that_know_of_every_pod(
    overcommitted: int, behind: int, zones: int, status: Status
) -> None:
    found = ZonesPlaced(zones=zones, overcommitted=overcommitted, behind=behind)
    assert judged(logged(zones=found))["zones-not-overcommitted"] is status
