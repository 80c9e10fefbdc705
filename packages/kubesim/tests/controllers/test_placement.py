from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubesim.controllers.placement import ClusterUsage, Demand, refusals

from .builders import node, pod

FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}


def rooms_of(nodes: Iterable[Any]) -> ClusterUsage:
    rooms = ClusterUsage()
    for each in nodes:
        rooms.set_node(each)
    return rooms


def place(rooms: ClusterUsage, each: Any) -> str | None:
    demand = Demand(each["spec"])
    name, _ = rooms.choose(demand)
    if name is not None:
        rooms.hold(each["metadata"]["uid"], name, demand.requests)
    return name


def test_message_reads_like_kube_schedulers() -> None:
    nodes = [node("n0", taints=[FAULTY])]
    nodes += [node(f"n{i}", labels={"pool": "other"}) for i in range(1, 8)]
    name, why_not = rooms_of(nodes).choose(Demand(pod("a", gpus=1, nodeSelector={"pool": "training"})["spec"]))
    assert name is None
    assert why_not == (
        "0/8 nodes are available: 1 node(s) had untolerated taint {trainy.konduktor.ai/faulty: true}, "
        "7 node(s) didn't match Pod's node affinity/selector."
    )


def test_cordon_full_nodes_and_no_nodes_in_the_message() -> None:
    rooms = rooms_of([node("n1", unschedulable=True), node("n2", gpus=1)])
    _, why_not = rooms.choose(Demand(pod("a", gpus=2)["spec"]))
    assert why_not == "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) were unschedulable."
    assert ClusterUsage().choose(Demand(pod("a")["spec"])) == (None, "no nodes available to schedule pods")


def test_daemon_pod_message_counts_the_other_nodes() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    rooms = rooms_of([node("n1", taints=[FAULTY]), node("n2"), node("n3")])
    assert rooms.choose(Demand(pod("a", affinity=affinity)["spec"])) == (
        None,
        "0/3 nodes are available: 1 node(s) had untolerated taint {trainy.konduktor.ai/faulty: true}, "
        "2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    )


def test_spreads_gpus_and_breaks_ties_by_name() -> None:
    rooms = rooms_of(node(name) for name in ("n3", "n1", "n2"))
    assert [place(rooms, pod(f"p{i}", gpus=4)) for i in range(6)] == ["n1", "n2", "n3", "n1", "n2", "n3"]
    assert place(rooms, pod("late", gpus=1)) is None


def test_room_comes_back_and_taints_count_at_once() -> None:
    rooms = rooms_of([node("n1", gpus=1), node("n2", gpus=1)])
    assert place(rooms, pod("a", gpus=1)) == "n1"
    assert rooms.set_node(node("n2", gpus=1, taints=[FAULTY]))
    assert place(rooms, pod("b", gpus=1)) is None
    assert rooms.release("uid-a")
    assert place(rooms, pod("b", gpus=1)) == "n1"
    assert not rooms.set_node(node("n1", gpus=1, ready="Unknown")), "conditions are not the scheduler's business"


def test_prefer_no_schedule_is_a_preference() -> None:
    soft = {**FAULTY, "effect": "PreferNoSchedule"}
    rooms = rooms_of([node("n1", taints=[soft], gpus=8), node("n2", gpus=1)])
    assert place(rooms, pod("a", gpus=1)) == "n2"
    assert place(rooms, pod("b", gpus=1)) == "n1"


def test_preferred_affinity() -> None:
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    preferred = [{"weight": 100, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    rooms = rooms_of([node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"})])
    assert place(rooms, pod("a", affinity=affinity)) == "n2"


def test_reservations_survive_a_node_seen_late() -> None:
    rooms = ClusterUsage()
    rooms.hold("uid-early", "n1", {"nvidia.com/gpu": 8, "pods": 1})
    rooms.set_node(node("n1"))
    assert place(rooms, pod("a", gpus=1)) is None


@given(st.lists(st.tuples(st.sampled_from(["place", "free", "taint", "clean"]), st.integers(0, 5)), max_size=40))
def test_the_lazy_ranking_agrees_with_a_fresh_look(steps: list[tuple[str, int]]) -> None:
    """Whatever happens to the nodes, the cached ranking never offers a node that refuses, nor misses one that fits."""
    rooms = rooms_of(node(f"n{i}", gpus=2) for i in range(3))
    for number, (action, which) in enumerate(steps):
        if action == "place":
            demand = Demand(pod(f"p{number}", gpus=1 + which % 2)["spec"])
            name, _ = rooms.choose(demand)
            fits = {n for n, room in rooms.rooms.items() if not refusals(demand, room)}
            assert (name in fits) if fits else name is None
            if name:
                rooms.hold(f"uid-{which}", name, demand.requests)
        elif action == "free":
            rooms.release(f"uid-{which}")
        else:
            taints = [FAULTY] if action == "taint" else []
            rooms.set_node(node(f"n{which % 3}", gpus=2, taints=taints))
