"""The YAML of docs/fleet.md for schedulers says what the run writes, and ranks nodes as the page says."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.cluster.manifests import GpuPodTemplate, gang_pod
from gameday.values.gpu_class import GPU_CLASS_LABEL, GpuClass
from kubesim.controllers.placement import Demand, NodeUsage, score
from tests.fleet.builders import documented


@pytest.mark.parametrize(("value", "points"), [("fast", 100), ("typical", 50), (None, 50), ("slow", 0)])
def test_node_affinity_prefers_a_class_by_these_points(value: str | None, points: int) -> None:
    (spec,) = documented("### Node affinity")
    labels = {} if value is None else {GPU_CLASS_LABEL: value}
    node = NodeUsage({"metadata": {"name": "n", "labels": labels}}, {})
    assert score(Demand(spec), node) == 2 * points, "NodeAffinity has the weight 2 in kube-scheduler's default profile"


def test_the_gang_of_a_game_day_has_the_affinity_of_the_page_and_without_it_none() -> None:
    (spec,) = documented("### Node affinity")
    template = GpuPodTemplate("image", "class", ())

    def affinity(*, prefers_fast: bool) -> Any:
        pod = gang_pod("p", run_id="r", selector={}, template=template, prefers_fast=prefers_fast)
        return pod["spec"].get("affinity")

    assert affinity(prefers_fast=True) == spec["affinity"]
    assert affinity(prefers_fast=False) is None


def test_kueue_has_a_flavor_of_each_class_and_tries_the_fast_one_first() -> None:
    *flavors, queue = documented("### Kueue")
    by_name = {one["metadata"]["name"]: one["spec"]["nodeLabels"][GPU_CLASS_LABEL] for one in flavors}
    (group,) = queue["spec"]["resourceGroups"]
    assert [by_name[one["name"]] for one in group["flavors"]] == [str(value) for value in GpuClass]
