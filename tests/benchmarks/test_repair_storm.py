"""The dates of a storm's nodes, and what they are compared with."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from benchmarks.repair_storm import Courses, allowed_s, occupied
from benchmarks.storm_policy import storm_policy
from gameday.health.episodes.node import NodeSeen
from gameday.health.policy import Policy
from gameday.health.policy_files import DEFAULT, find_policy

WELL: dict[str, Any] = {
    "uid": "u",
    "version": "1",
    "boot": "b",
    "ready": True,
    "cordoned": False,
    "taints": (),
    "ours": False,
    "foreign": (),
    "faults": (),
    "gpus": 8,
    "gpu_capacity": 8,
    "offered_gpus": 8,
    "state": None,
    "repair": None,
}


def seen(name: str, **changes: Any) -> NodeSeen:
    return NodeSeen(name=name, **{**WELL, **changes})


def test_a_node_is_back_only_when_nothing_of_the_repair_is_left() -> None:
    courses = Courses.of_nodes(["a"])
    states: list[dict[str, Any]] = [
        {},
        {"ours": True},
        {"ours": True, "state": "withheld"},
        {"ours": True, "state": "repairing"},
        {"ours": True, "state": "repairing", "ready": False, "offered_gpus": 0},
        {"ours": True, "state": "validating"},
        {"state": "validating"},
        {"offered_gpus": 7},
        {"ready": False},
    ]
    for at, changes in enumerate(states):
        courses.take(seen("a", **changes), float(at))
        assert courses.away() == ["a"]
    courses.take(seen("a"), 9.0)
    courses.take(seen("a"), 10.0)
    assert courses.away() == []
    course = courses.of["a"]
    assert (course.tainted, course.withheld, course.begun, course.back, course.repair_s) == (1.0, 2.0, 3.0, 9.0, 6.0)


def test_nodes_under_repair_are_counted_by_their_labels_and_by_their_reboots() -> None:
    courses = Courses.of_nodes(["a", "b", "c"])
    courses.take(seen("a", ours=True, state="draining"), 1.0)
    courses.take(seen("b", ours=True, state="withheld"), 1.0)
    assert courses.most_at_once == 1
    courses.take(seen("b", ours=True, state="withheld", ready=False), 2.0)
    courses.take(seen("elsewhere", ours=True, state="repairing"), 2.0)
    assert courses.most_at_once == 2
    courses.take(seen("a"), 3.0)
    courses.take(seen("c", ours=True, state="repairing"), 3.0)
    assert courses.most_at_once == 2


def test_nobody_waits_for_a_node_that_is_left_to_a_person() -> None:
    courses = Courses.of_nodes(["a", "b"])
    courses.take(seen("a", ours=True, state="handed-over"), 1.0)
    assert courses.away() == ["b"] and courses.handed_over == {"a"}


@pytest.mark.parametrize(("nodes", "rounds"), [(1, 1), (5, 1), (6, 2), (750, 150)])
def test_the_ladder_allows_one_repairs_time_for_every_full_set_of_places(nodes: int, rounds: int) -> None:
    assert allowed_s(nodes, 5, 16.0) == rounds * 16.0


def test_places_are_taken_from_the_first_repair_on() -> None:
    courses = Courses.of_nodes(["a", "b", "never begun"])
    for name, begun, back in (("a", 10.0, 20.0), ("b", 15.0, 20.0)):
        courses.of[name].begun, courses.of[name].back = begun, back
    assert occupied(courses, at_once=2, until=20.0) == 0.75
    assert occupied(Courses.of_nodes(["a"]), at_once=2, until=20.0) == 0.0


def test_the_storms_policy_differs_from_the_default_in_its_two_limits_alone() -> None:
    text = YAML(typ="safe", pure=True).load(find_policy(DEFAULT).read_text(encoding="utf-8"))
    default, storm = Policy.model_validate(text), Policy.model_validate(storm_policy(text, 40))
    assert storm.brake.share == 1
    assert storm.repair.breaker.allowed(1000) == 40
    same = {"name": default.name, "brake": default.brake, "repair": default.repair}
    assert storm.model_copy(update=same) == default
