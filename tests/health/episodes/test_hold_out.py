"""Spare nodes take the place of quarantined ones, never more than there are, and go back when those return."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.health.episodes.hold_out import Change, changes
from gameday.health.episodes.node import HOLD_OUT, RELEASED_FOR, NodeSeen
from tests.health.conftest import eventually
from tests.health.episodes.conftest import Agents, Ward
from tests.health.episodes.test_repairer import repairing
from tests.health.episodes.worlds import NODE


def node(name: str, **change: Any) -> NodeSeen:
    return replace(NODE, **{"name": name, "ours": False, "taints": (), "faults": (), **change})


def spare(name: str, **change: Any) -> NodeSeen:
    return node(name, **{"hold_out": True, "held_back": True, **change})


def applied(nodes: list[NodeSeen], made: list[Change]) -> list[NodeSeen]:
    by_name = {change.spare.name: change for change in made}
    assert len(by_name) == len(made)
    return [
        replace(one, released_for=by_name[one.name].released_for, held_back=by_name[one.name].released_for is None)
        if one.name in by_name
        else one
        for one in nodes
    ]


def test_a_spare_takes_the_place_of_a_quarantined_node_and_goes_back() -> None:
    nodes = [node("a", ours=True), spare("s1"), spare("s2")]
    (change,) = changes(nodes)
    assert (change.spare.name, change.released_for) == ("s1", "a")
    nodes = applied(nodes, [change])
    assert changes(nodes) == []
    nodes[0] = node("a")
    (change,) = changes(nodes)
    assert (change.spare.name, change.released_for) == ("s1", None)


def test_a_spare_whose_node_is_back_takes_another_place_first() -> None:
    nodes = [node("a"), node("b", ours=True), spare("s1", released_for="a", held_back=False), spare("s2")]
    (change,) = changes(nodes)
    assert (change.spare.name, change.released_for) == ("s1", "b")


def test_there_are_never_more_released_than_there_are() -> None:
    nodes = [node("a", ours=True), node("b", ours=True), spare("s1")]
    assert [change.released_for for change in changes(nodes)] == ["a"]


def test_a_faulty_or_cordoned_spare_replaces_nobody() -> None:
    for broken in ({"ours": True}, {"cordoned": True}, {"ready": False}):
        nodes = [node("a", ours=True), spare("s1", **broken), spare("s2")]
        assert [change.spare.name for change in changes(nodes)] == ["s2"]


def test_a_spare_without_its_taint_gets_it() -> None:
    (change,) = changes([spare("s1", held_back=False)])
    assert change.released_for is None


STATES = st.fixed_dictionaries(
    {"ours": st.booleans(), "ready": st.booleans(), "cordoned": st.booleans(), "held_back": st.booleans()}
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=5),
    st.lists(st.tuples(STATES, st.sampled_from([None, "n0", "n1", "n9"])), max_size=5),
)
def test_changes_settle_and_no_node_is_replaced_twice(
    quarantined: list[bool], pool: list[tuple[dict[str, bool], str | None]]
) -> None:
    nodes = [node(f"n{index}", ours=ours) for index, ours in enumerate(quarantined)]
    nodes += [spare(f"s{index}", released_for=name, **state) for index, (state, name) in enumerate(pool)]
    for _ in range(4):
        nodes = applied(nodes, changes(nodes))
    assert changes(nodes) == []
    working = [one for one in nodes if one.hold_out and one.ready and not one.ours and not one.cordoned]
    places = [one.released_for for one in working if one.released_for]
    assert len(places) == len(set(places)) == min(sum(quarantined), len(working))


def test_the_repairer_releases_a_spare_and_takes_it_back(ward: Ward, agents: Agents) -> None:
    held = {"key": HOLD_OUT, "value": "spare", "effect": "NoSchedule"}
    other = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    name = ward.world.add_node(labels={HOLD_OUT: "true"}, taints=[held, other])
    with repairing(ward, lambda *_: None) as registry:
        node = ward.quarantine()
        eventually(lambda: HOLD_OUT not in [key for key, _, _ in ward.world.taints(name)])
        assert ward.world.core.read_node(name).metadata.annotations[RELEASED_FOR] == node
        eventually(lambda: registry.get_sample_value("gameday_repair_hold_out_nodes", {"state": "released"}) == 1)
    with repairing(ward, lambda *_: None):
        ward.world.taint(node)
        eventually(lambda: HOLD_OUT in [key for key, _, _ in ward.world.taints(name)])
    assert ("nvidia.com/gpu", "", "NoSchedule") in ward.world.taints(name)
    assert RELEASED_FOR not in (ward.world.core.read_node(name).metadata.annotations or {})
