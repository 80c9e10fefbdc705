"""The hold-out pool: which spare takes whose place, over any sequence of faults, returns, restarts and losses."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gameday_health.episodes.hold_out import Move, Swap, swaps, without_spare
from gameday_health.episodes.node import HOLD_OUT, NodeSeen, node_seen
from gameday_health.model import Taint

OURS = Taint("trainy.konduktor.ai/faulty", "true", "NoSchedule")
HELD = {"key": HOLD_OUT, "value": "true", "effect": "NoSchedule"}
FAULTY = {"key": OURS.key, "value": "true", "effect": "NoSchedule"}


def node(
    name: str,
    *taints: dict[str, str],
    spare: bool = False,
    place: str | None = None,
    product: str = "H100",
    ready: bool = True,
    cordoned: bool = False,
) -> NodeSeen:
    labels = {"nvidia.com/gpu.product": product, **({"gameday.dev/hold-out": "true"} if spare else {})}
    annotations = {"gameday.dev/released-for": place} if place else {}
    return node_seen(
        {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {"taints": list(taints), "unschedulable": cordoned},
            "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
        },
        OURS,
        (OURS.key,),
    )


def moves(*nodes: NodeSeen) -> list[tuple[Move, str, str]]:
    return [(swap.move, swap.spare.name, swap.place) for swap in swaps(nodes)]


def test_a_spare_is_kept_free_of_work_while_nothing_is_out_of_service() -> None:
    assert moves(node("a"), node("s", spare=True)) == [(Move.HOLD, "s", "")]
    assert moves(node("a"), node("s", HELD, spare=True)) == []


def test_a_spare_is_released_for_a_quarantined_node_and_for_no_second_one() -> None:
    spare = node("s", HELD, spare=True)
    assert moves(node("a", FAULTY), node("b", FAULTY), spare) == [(Move.RELEASE, "s", "a")]
    assert without_spare([node("a", FAULTY), node("b", FAULTY), spare]) == ["b"]


def test_a_spare_of_another_kind_of_node_does_not_help() -> None:
    assert moves(node("a", FAULTY), node("s", HELD, spare=True, product="A100")) == []


def test_a_spare_that_cannot_take_work_is_not_released() -> None:
    for unfit in (
        node("s", HELD, spare=True, ready=False),
        node("s", HELD, spare=True, cordoned=True),
        node("s", HELD, FAULTY, spare=True),
    ):
        assert moves(node("a", FAULTY), unfit) == []


def test_a_spare_is_taken_back_when_its_node_has_returned() -> None:
    assert moves(node("a", FAULTY), node("s", spare=True, place="a")) == []
    assert moves(node("a"), node("s", spare=True, place="a")) == [(Move.TAKE_BACK, "s", "a")]


def test_a_spare_stays_in_the_place_of_a_node_that_is_gone() -> None:
    assert moves(node("b"), node("s", spare=True, place="a")) == []


def test_another_spare_takes_over_from_one_that_fails_itself() -> None:
    found = moves(node("a", FAULTY), node("s", FAULTY, spare=True, place="a"), node("t", HELD, spare=True))
    assert found == [(Move.TAKE_BACK, "s", "a"), (Move.RELEASE, "t", "a")]


def test_a_node_outside_the_pool_is_not_missed() -> None:
    assert without_spare([node("a", FAULTY)]) == []


def after(nodes: dict[str, NodeSeen], swap: Swap) -> None:
    released = swap.move is Move.RELEASE
    nodes[swap.spare.name] = replace(
        nodes[swap.spare.name], held_back=not released, released_for=swap.place if released else None
    )


CHANGES = st.lists(
    st.tuples(st.sampled_from("abcdst"), st.sampled_from(["faulty", "returned", "gone", "not ready", "ready"])),
    max_size=30,
)


@given(CHANGES, st.randoms(use_true_random=False))
def test_no_node_has_two_spares_and_no_sequence_of_events_uses_more_than_there_are(
    changes: list[tuple[str, str]], crash: object
) -> None:
    nodes = {name: node(name, spare=name in "st") for name in "abcdst"}
    for name, change in changes:
        if name not in nodes:
            continue
        seen = nodes[name]
        match change:
            case "faulty":
                nodes[name] = replace(seen, ours=True)
            case "returned":
                nodes[name] = replace(seen, ours=False)
            case "gone" if not seen.hold_out:
                del nodes[name]
            case "not ready":
                nodes[name] = replace(seen, ready=False)
            case "ready":
                nodes[name] = replace(seen, ready=True)
        due = swaps(nodes.values())
        # A crash between two writes: the rest is due at the next look.
        for swap in due[: crash.randint(0, len(due))]:  # type: ignore[attr-defined]
            after(nodes, swap)
        places = [one.released_for for one in nodes.values() if one.released_for]
        assert len(places) == len(set(places)) <= 2
        assert all(one.hold_out for one in nodes.values() if one.released_for or one.held_back)
    for swap in swaps(nodes.values()):
        after(nodes, swap)
    settled = swaps(nodes.values())
    assert [swap for swap in settled if swap.move is not Move.RELEASE] == []
