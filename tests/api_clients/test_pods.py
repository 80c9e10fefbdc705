"""Pods in steps: what a watch's events say of a step, and what the pods ask for."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.api_clients.pods import Sightings, _devices, _pod, _template
from gameday.values.pod_steps import Allocation


def event(kind: str, name: str, node: str = "") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}}}


def test_a_step_counts_from_the_first_sight_of_a_pod_to_the_first_of_its_node() -> None:
    sightings = Sightings()
    for kind, name, node, now in (
        ("ADDED", "a", "", 10.0),
        ("ADDED", "b", "", 11.0),
        ("MODIFIED", "a", "n1", 12.0),
        ("MODIFIED", "a", "n1", 19.0),
        ("MODIFIED", "b", "n2", 15.0),
    ):
        sightings.take(event(kind, name, node), now)
    step = sightings.step(1, ["a", "b", "c"], began=9.5)
    assert (step.created, step.bound, step.took_s) == (3, 2, 5.5)
    assert (step.p50_s, step.p99_s) == (2.0, 4.0)


def test_a_step_of_which_nothing_was_bound_has_no_latency() -> None:
    step = Sightings().step(1, ["a"], began=9.5)
    assert (step.bound, step.took_s, step.p99_s) == (0, 0.0, None)


@pytest.mark.parametrize("kind", ["DELETED", "BOOKMARK", "ERROR"])
def test_what_is_no_sight_of_a_pod_is_passed_over(kind: str) -> None:
    sightings = Sightings()
    sightings.take(event(kind, "a", "n1"), 1.0)
    assert not sightings.seen


def test_a_pod_asks_for_its_gpu_in_one_way_only() -> None:
    counted, claimed = _pod("p", Allocation.DEVICE_PLUGIN)["spec"], _pod("p", Allocation.DRA)["spec"]
    assert counted["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert "resourceClaims" not in counted
    assert claimed["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    assert claimed["resourceClaims"][0]["resourceClaimTemplateName"] == _template("c")["metadata"]["name"]


def test_claims_bear_the_label_by_which_they_are_found() -> None:
    template = _template("c")
    assert template["spec"]["metadata"]["labels"] == template["metadata"]["labels"]


def test_devices_of_a_claim_that_is_not_allocated_are_none() -> None:
    assert _devices({"status": {}}) == _devices({}) == []
