"""Who is named in a fleet, who is not, and what the slowest costs."""

from __future__ import annotations

import itertools
from statistics import fmean

import pytest

from gameday.exit_codes import ExitCode
from gameday.plan.qa import QaFloors
from gameday.values.results import Cleanliness
from gameday_fleet.cost import expected_slowest, job_costs
from gameday_fleet.drift import drift_since
from gameday_fleet.floors import floors_yaml, learned_floors
from gameday_fleet.judge import Fleet, judge_fleet
from gameday_fleet.record import ProbedGpu
from gameday_fleet.spread import FEWEST
from gameday_rehearsal.nodes.gpus import GpuFleet
from tests.fleet.builders import BEGAN, gpu, healthy, record


def judged(gpus: list[ProbedGpu], **changes: object) -> Fleet:
    return judge_fleet(record(**changes), gpus, [], None)


def test_three_slow_gpus_are_named_the_slowest_first_and_no_other() -> None:
    gpus = healthy(64)
    for number, share in ((5, 0.9), (17, 0.67), (40, 0.8)):
        gpus[number] = gpu(number, gemm_tflops=740 * share)
    fleet = judged(gpus)
    assert fleet.slow_gpus == ["n2 GPU 1", "n5 GPU 0", "n0 GPU 5"]
    assert fleet.exit_code == ExitCode.FAILED
    named = fleet.models[0].stragglers
    assert {one.figure for one in named} == {"gemm_tflops"}
    assert all(one.n == 64 and one.z < -3.5 for one in named)


@pytest.mark.parametrize(
    ("figure", "value"), [("memory_gbs", 2500.0), ("link_gbs", 25.0), ("nvlink_gbs", 17 * 26.562), ("gemm_tflops", 1.0)]
)
def test_each_rate_that_a_job_waits_for_makes_a_straggler(figure: str, value: float) -> None:
    gpus = [*healthy(31), gpu(31, **{figure: value})]
    assert judged(gpus).slow_gpus == ["n3 GPU 7"]


@pytest.mark.parametrize(("figure", "value"), [("temperature_c", 85.0), ("sm_clock_mhz", 1500.0), ("power_w", 500.0)])
def test_heat_clock_and_power_are_shown_and_are_no_straggler(figure: str, value: float) -> None:
    fleet = judged([*healthy(31), gpu(31, **{figure: value})])
    assert fleet.slow_gpus == []
    assert [(one.where, one.figure) for one in fleet.models[0].unusual] == [("n3 GPU 7", figure)]


def test_a_fast_and_cool_gpu_is_no_trouble() -> None:
    fleet = judged([*healthy(31), gpu(31, gemm_tflops=900.0, temperature_c=30.0)])
    assert fleet.slow_gpus == []
    assert fleet.models[0].unusual == ()


def test_a_difference_that_does_not_matter_is_not_named_however_alike_the_others_are() -> None:
    alike = [gpu(number) for number in range(31)]
    assert judged([*alike, gpu(31, gemm_tflops=710.0)]).slow_gpus == []
    assert judged([*alike, gpu(31, gemm_tflops=700.0)]).slow_gpus == ["n3 GPU 7"]


def test_of_too_few_none_is_named_and_that_is_said() -> None:
    fleet = judged([*healthy(FEWEST - 2), gpu(FEWEST, gemm_tflops=100.0)])
    assert fleet.slow_gpus == []
    assert "too few to judge" in fleet.headline
    assert fleet.exit_code == ExitCode.UNKNOWN


def test_models_are_compared_with_themselves() -> None:
    slower = [gpu(number, model="NVIDIA A100-SXM4-80GB", gemm_tflops=240.0) for number in range(100, 116)]
    fleet = judged([*healthy(32), *slower])
    assert fleet.slow_gpus == []
    assert [model.gpus for model in fleet.models] == [32, 16]


def test_false_alarms_on_healthy_fleets_are_rare() -> None:
    """Rates of a normal spread, which has no end as the rehearsal model has: fewer than one GPU in a thousand."""
    fleets = [judged(healthy(64, seed)) for seed in range(200)]
    named = sum(len(fleet.slow_gpus) for fleet in fleets)
    assert named / (200 * 64) < 0.001
    assert named > 0, "a rule that names nobody would prove nothing"


@pytest.mark.parametrize("seed", range(20))
def test_in_the_rehearsals_model_nobody_is_named_that_is_not_slow_and_everybody_that_is(seed: int) -> None:
    fleet = GpuFleet([f"s{seed}-{number}" for number in range(8)], 8)
    fleet.advance()
    cells = list(itertools.product(range(8), range(8)))

    def measured() -> list[ProbedGpu]:
        fleet.sm_clock[:] = 1980.0
        return [
            gpu(8 * cell[0] + cell[1], gemm_tflops=fleet.gemm_tflops(cell), memory_gbs=fleet.copy_gbs(cell))
            for cell in cells
        ]

    assert judged(measured()).slow_gpus == []
    fleet.compute_share[2, 3], fleet.compute_share[5, 0], fleet.memory_share[7, 7] = 0.9, 0.67, 0.8
    assert sorted(judged(measured()).slow_gpus) == ["n2 GPU 3", "n5 GPU 0", "n7 GPU 7"]


def test_an_all_reduce_is_a_nodes_figure() -> None:
    gpus = [
        gpu(number, all_reduce_gbs=200.0 if number // 8 == 3 else 468.0, all_reduce_gpus=8) for number in range(160)
    ]
    fleet = judged(gpus)
    assert fleet.slow_gpus == ["n3"]
    assert fleet.models[0].stragglers[0].n == 20


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, ExitCode.PASSED),
        ({"stopped": "operator: SIGINT received"}, ExitCode.ABORTED),
        ({"cleanliness": Cleanliness.UNKNOWN, "stopped": "x"}, ExitCode.UNKNOWN),
        ({"cleanliness": Cleanliness.DIRTY}, ExitCode.DIRTY),
    ],
)
def test_what_is_left_in_the_cluster_comes_before_what_was_found(changes: dict[str, object], code: ExitCode) -> None:
    assert judged([gpu(number) for number in range(16)], **changes).exit_code == code


@pytest.mark.parametrize("ranks", [1, 2, 4, 6])
def test_the_slowest_rank_is_the_mean_over_every_choice(ranks: int) -> None:
    rates = [700.0, 740.0, 500.0, 730.0, 735.0, 610.0]
    every = fmean(min(chosen) for chosen in itertools.combinations(rates, ranks))
    assert expected_slowest(rates, ranks) == pytest.approx(every)


def test_one_straggler_costs_the_whole_fleet_what_it_lacks() -> None:
    rates = [700.0] * 15 + [350.0]
    costs = job_costs(rates, rates[:15])
    assert [cost.ranks for cost in costs] == [8, 16]
    whole = costs[-1]
    assert whole.lost_percent == pytest.approx(100 * (1 - 350 / fmean(rates)))
    assert whole.lost_gpus == pytest.approx(16 * whole.lost_percent / 100)
    assert whole.lost_percent_without == 0
    assert costs[0].lost_percent < whole.lost_percent


def test_what_the_whole_fleet_lost_is_not_one_gpus_drift() -> None:
    before = healthy(32, seed=1)
    now = [one.model_copy(update={"gemm_tflops": (one.gemm_tflops or 0) * 0.97}) for one in before]
    now[4] = now[4].model_copy(update={"gemm_tflops": (before[4].gemm_tflops or 0) * 0.90})
    now[9] = now[9].model_copy(update={"node": "n7", "gpu": 0})
    drift = drift_since("fleet-0", before, [*now[:30], gpu(200)])
    assert [(one.node, one.gpu, round(one.percent)) for one in drift.drifted] == [("n0", 4, -10)]
    assert drift.fleet_percent["gemm_tflops"] == pytest.approx(-3)
    assert drift.moved == ("n1 GPU 1 is n7 GPU 0 now",)
    assert drift.gone == ("n3 GPU 6", "n3 GPU 7")
    assert drift.new == 1
    assert drift.matched == 30


def test_the_floors_let_every_ordinary_gpu_pass_and_none_that_is_named() -> None:
    gpus = [*healthy(63), gpu(63, gemm_tflops=660.0)]
    model = judged(gpus).models[0]
    floors = QaFloors.model_validate(learned_floors(model))
    assert floors.gemm_tflops
    assert 660.0 < floors.gemm_tflops < min(one.gemm_tflops or 0 for one in gpus[:63])
    assert floors.memory_bandwidth_gbs
    assert floors.all_reduce_gbs is None
    assert "qa:\n  floors:\n    gemm_tflops: " in floors_yaml(model, "fleet-1", BEGAN)


def test_few_gpus_teach_no_floors() -> None:
    assert learned_floors(judged(healthy(8)).models[0]) == {}
