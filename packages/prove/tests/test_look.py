"""The look on the real API server in Python: what it finds, what it costs, and what it may not see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import RefusedError
from gameday_prove.look import MOST_REQUESTS, Look
from gameday_prove.rights import all_rights, missing_rights
from gameday_prove.values import Surroundings
from tests.prove.proxying import ProxyingServer, deployment
from tests.support.world import World, unique

GPU = {"nvidia.com/gpu.present": "true"}


@pytest.fixture
def front(world: World, tmp_path: Path) -> Iterator[ProxyingServer]:
    made = ProxyingServer(tmp_path, world.admin_kubeconfig)
    yield made
    made.end()


@contextmanager
def adapter(world: World, kubeconfig: Path) -> Iterator[Kubernetes]:
    found = Kubernetes(world.profile(kubeconfig))
    try:
        yield found
    finally:
        found.close()


def look(world: World, kubeconfig: Path, node: str | None = None, *named: str) -> Surroundings:
    with adapter(world, kubeconfig) as kubernetes:
        return Look(kubernetes).around(node, "", named)


def test_it_costs_few_requests_and_writes_nothing(world: World, front: ProxyingServer) -> None:
    node = world.add_node(labels=GPU)
    front.deployments.append(deployment("konduktor", "konduktor-controller-deployment", "python:3.10"))
    around = look(world, front.kubeconfig, node)
    assert [one.detector for one in around.detectors] == ["konduktor"]
    assert {method for method, _ in front.asked} == {"GET"}
    assert len(front.asked) == around.requests <= MOST_REQUESTS
    assert around.unseen == ()


def test_a_config_map_is_asked_for_only_where_a_mark_needs_it(world: World, front: ProxyingServer) -> None:
    node = world.add_node(labels=GPU)
    world.core.create_namespaced_config_map("default", {"metadata": {"name": unique("npd")}, "data": {"x": "{}"}})
    (found,) = [one for one in world.core.list_namespaced_config_map("default").items if "npd" in one.metadata.name]
    mounting = deployment("default", "npd", "x/node-problem-detector:1")
    mounting["spec"]["template"]["spec"]["volumes"] = [{"name": "c", "configMap": {"name": found.metadata.name}}]
    front.deployments += [mounting, deployment("default", "other", "x/other:1")]
    (detector,) = look(world, front.kubeconfig, node).detectors
    assert any("it has no rule for these lines" in why for why in detector.blind)
    assert sum("configmaps" in path for _, path in front.asked) == 1
    world.core.delete_namespaced_config_map(found.metadata.name, "default")


def test_an_account_without_rights_is_told_which_it_lacks(world: World) -> None:
    node = world.add_node(labels=GPU)
    around = look(world, world.kubeconfig("gameday-runner"), node)
    missing = yaml.safe_load(missing_rights(around.unseen))
    assert ["apps"] in [rule["apiGroups"] for rule in missing["rules"]]
    assert all(set(rule["verbs"]) <= {"list", "get"} for rule in missing["rules"])


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ({"ready": "False"}, "its condition Ready is False"),
        ({"unschedulable": True}, "it is cordoned"),
        ({"taints": [{"key": "x/y", "effect": "NoSchedule"}]}, "it has the taint x/y"),
    ],
)
def test_a_node_that_is_not_fit_is_refused(world: World, front: ProxyingServer, node: dict[str, Any], why: str) -> None:
    name = world.add_node(labels=GPU, **node)
    with pytest.raises(RefusedError, match=why):
        look(world, front.kubeconfig, name)


def test_a_taint_that_keeps_other_work_off_is_no_reason(world: World, front: ProxyingServer) -> None:
    name = world.add_node(labels=GPU, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    assert look(world, front.kubeconfig, name).node == name


def test_mig_slices_and_shares_of_time_are_gpus(world: World, front: ProxyingServer) -> None:
    offers = {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu.shared": "4"}
    name = world.add_node(labels=GPU, offers=offers)
    around = look(world, front.kubeconfig, name)
    assert next(one.gpus for one in around.nodes if one.name == name) == "4 gpu.shared, 7 mig-1g.10gb"


def test_a_game_day_that_runs_is_not_disturbed(world: World, front: ProxyingServer) -> None:
    name = world.add_node(labels=GPU)
    lease = {"metadata": {"name": "gameday-cluster"}, "spec": {"holderIdentity": "20260303-090000-7f3a1c"}}
    world.coordination.create_namespaced_lease("gameday", lease)
    with pytest.raises(RefusedError, match="20260303-090000-7f3a1c holds the lease gameday/gameday-cluster"):
        look(world, front.kubeconfig, name)


def test_a_cluster_without_gpus_is_refused(world: World, front: ProxyingServer) -> None:
    with pytest.raises(RefusedError, match="no GPU node"):
        look(world, front.kubeconfig)


def test_the_whole_rights_are_one_manifest() -> None:
    role = yaml.safe_load(all_rights())
    granted = {(rule["resources"][0], verb) for rule in role["rules"] for verb in rule["verbs"]}
    assert {("namespaces", "create"), ("pods", "create"), ("pods/log", "get"), ("nodes", "watch")} <= granted
    assert not [one for one in granted if one[0] == "nodes" and one[1] in ("patch", "update", "delete")]
    assert json.dumps(role)
