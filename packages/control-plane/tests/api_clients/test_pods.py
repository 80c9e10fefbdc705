"""Pods in steps: what a watch's events say of a step, and what the pods ask for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gameday_control_plane.api_clients.pods import Batch, Sightings, _devices, _pod, _template, batches, zones_placed
from gameday_control_plane.values.pod_steps import Allocation

AT = datetime(2026, 11, 23, 12, tzinfo=UTC)


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
    step = sightings.step(1, Batch(("a", "b", "c")), began=9.5, began_at=AT)
    assert (step.created, step.bound, step.took_s) == (3, 2, 5.5)
    assert (step.p50_s, step.p99_s) == (2.0, 4.0)
    assert step.until is not None
    assert step.until > AT


def test_churn_replaces_the_oldest_pods_once_the_steps_are_over() -> None:
    first, second, churn = batches([3, 7], 0.2)
    assert (len(first.created), len(second.created), first.deleted) == (3, 7, ())
    assert churn.deleted == first.created[:2]
    assert len({*first.created, *second.created, *churn.created}) == 12
    assert len(batches([3, 7], 0.0)) == 2


def test_a_step_of_churn_is_over_when_the_new_are_bound_and_the_old_are_gone() -> None:
    sightings, batch = Sightings(), Batch(("new",), ("old",))
    sightings.take(event("MODIFIED", "new", "n1"), 1.0)
    assert not sightings.is_over(batch)
    sightings.take(event("DELETED", "old", "n1"), 2.0)
    assert sightings.is_over(batch)
    assert sightings.step(4, batch, began=0.5, began_at=AT).deleted == 1


def test_a_watch_goes_on_from_the_newest_event() -> None:
    sightings = Sightings(version="5")
    sightings.take(event("ADDED", "a"), 1.0)
    assert sightings.version == "5"
    newer = event("MODIFIED", "a", "n1")
    newer["object"]["metadata"]["resourceVersion"] = "7"
    sightings.take(newer, 2.0)
    assert sightings.version == "7"


def test_a_step_of_which_nothing_was_bound_has_no_latency() -> None:
    step = Sightings().step(1, Batch(("a",)), began=9.5, began_at=AT)
    assert (step.bound, step.took_s, step.p99_s) == (0, 0.0, None)


@pytest.mark.parametrize("kind", ["DELETED", "BOOKMARK", "ERROR"])
def test_what_is_no_sight_of_a_pod_is_passed_over(kind: str) -> None:
    sightings = Sightings()
    sightings.take(event(kind, "a", "n1"), 1.0)
    assert not sightings.seen


def test_a_pod_asks_for_its_gpu_in_one_way_only() -> None:
    counted, claimed = _pod("p", Allocation.DEVICE_PLUGIN, "s")["spec"], _pod("p", Allocation.DRA, "s")["spec"]
    assert counted["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
    assert not {"resourceClaims", "schedulerName"} & set(counted)
    assert claimed["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}
    assert claimed["resourceClaims"][0]["resourceClaimTemplateName"] == _template("c")["metadata"]["name"]


def test_claims_bear_the_label_by_which_they_are_found() -> None:
    template = _template("c")
    assert template["spec"]["metadata"]["labels"] == template["metadata"]["labels"]


def test_devices_of_a_claim_that_is_not_allocated_are_none() -> None:
    assert _devices({"status": {}}) == _devices({}) == []


def test_a_topology_aware_pod_is_a_counted_one_of_another_scheduler() -> None:
    by_zone = _pod("p", Allocation.TOPOLOGY, "s")["spec"]
    assert by_zone.pop("schedulerName") == "s"
    assert by_zone == _pod("p", Allocation.DEVICE_PLUGIN, "s")["spec"]


def topology(node: str, *zones: tuple[int, int]) -> dict[str, Any]:
    """Return a node's object with the free GPUs and the GPUs of each zone."""
    found = [
        {
            "name": f"node-{number}",
            "resources": [
                {"name": "cpu", "capacity": "9", "allocatable": "9", "available": "9"},
                {"name": "nvidia.com/gpu", "capacity": str(has), "allocatable": str(has), "available": str(free)},
            ],
        }
        for number, (free, has) in enumerate(zones)
    ]
    return {"metadata": {"name": node}, "zones": found}


@pytest.mark.parametrize(
    ("pods", "objects", "expected"),
    [
        ({"n": 5}, [topology("n", (0, 4), (3, 4)), topology("idle", (4, 4))], (2, 0, 0)),
        ({"n": 9}, [topology("n", (0, 4), (-1, 4))], (2, 2, 0)),  # the zone, and the node
        ({"n": 9}, [topology("n", (0, 4), (0, 4))], (2, 1, 1)),
        ({"n": 3}, [topology("n", (2, 4), (4, 4))], (2, 0, 1)),
        ({"n": 1, "m": 1}, [topology("n", (3, 4))], (1, 0, 1)),
        ({}, [], (0, 0, 0)),
    ],
)
def test_zones_are_counted_from_the_objects_of_the_nodes_that_have_pods(
    pods: dict[str, int], objects: list[dict[str, Any]], expected: tuple[int, int, int]
) -> None:
    found = zones_placed(pods, objects)
    assert (found.zones, found.overcommitted, found.behind) == expected
