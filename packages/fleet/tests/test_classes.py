"""The class of each node by its slowest GPU."""

from __future__ import annotations

import pytest

from gameday_fleet.classes import FASTER_BY, classes_of
from gameday_fleet.judge import judge_fleet
from gameday_fleet.record import NodeLeftOut, ProbedGpu
from tests.fleet.builders import gpu, healthy, record


def even(nodes: int, **changes: float) -> list[ProbedGpu]:
    """Nodes of eight GPUs that are all alike, but for the slowest GPU of the named ones."""
    rates = {int(name.removeprefix("n")): value for name, value in changes.items()}
    return [gpu(n, gemm_tflops=rates.get(n // 8, 740.0) if n % 8 == 3 else 745.0) for n in range(8 * nodes)]


def classes(gpus: list[ProbedGpu], *left_out: NodeLeftOut) -> dict[str, str]:
    return {one.node: str(one.gpu_class) for one in judge_fleet(record(), gpus, left_out, None).classes}


def test_the_slowest_gpu_decides() -> None:
    found = classes(even(6, n1=500.0, n2=760.0, n4=735.0))
    # Of n2 the slowest GPU is one of the other seven, whose rate is within 1 % of the middle.
    assert found == {"n0": "typical", "n1": "slow", "n2": "typical", "n3": "typical", "n4": "typical", "n5": "typical"}


@pytest.mark.parametrize(("by", "expected"), [(FASTER_BY + 0.0001, "fast"), (FASTER_BY - 0.0001, "typical")])
def test_a_node_is_fast_from_a_departure_on_that_chance_does_not_make(by: float, expected: str) -> None:
    faster = [gpu(n, gemm_tflops=740 * (1 + by)) for n in range(8)]
    assert classes([*faster, *(gpu(n) for n in range(8, 32))])["n0"] == expected


def test_the_page_of_a_fleet_says_where_a_class_comes_from() -> None:
    (slow,) = [one for one in judge_fleet(record(), even(4, n1=500.0), [], None).classes if one.gpu_class == "slow"]
    assert (slow.node, slow.slowest, slow.gemm_tflops) == ("n1", 3, 500.0)
    assert slow.percent == pytest.approx(100 * (500 / 740 - 1))


def test_a_node_that_was_not_measured_whole_has_no_class() -> None:
    assert "n1" not in classes(even(4), NodeLeftOut(node="n1", gpus=2, why="busy: held by a pod"))
    assert "n2" not in classes([*even(2), *(gpu(n, gemm_tflops=None) for n in range(16, 24)), *even(5)[24:]])


def test_too_few_of_a_model_and_two_models_of_a_node_have_no_class() -> None:
    assert classes(healthy(8)) == {}
    mixed = [*(gpu(n) for n in range(31)), gpu(31, model="another")]
    assert set(classes(mixed)) == {"n0", "n1", "n2"}


def test_models_are_not_compared_with_each_other() -> None:
    slower = [gpu(n, model="A100", gemm_tflops=270.0) for n in range(32, 64)]
    assert set(classes([*(gpu(n) for n in range(32)), *slower]).values()) == {"typical"}


def test_a_healthy_fleet_has_few_slow_nodes_and_some_fast_ones() -> None:
    found = list(classes(healthy(800)).values())
    assert found.count("slow") <= 1
    assert 10 <= found.count("fast") <= 50


def test_a_slow_all_reduce_of_a_node_makes_it_slow() -> None:
    gpus = [gpu(n, all_reduce_gbs=300.0 if n // 8 == 5 else 468.0, all_reduce_gpus=8) for n in range(160)]
    assert classes(gpus)["n5"] == "slow"
    assert classes_of(gpus, [], set())[5].node == "n13"
