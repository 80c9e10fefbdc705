from __future__ import annotations

import time

import pytest

from gameday.host import clock_reasons
from gameday_rehearsal.nodes import gpus
from gameday_rehearsal.nodes.gpus import GpuFleet
from tests.rehearsal.nodes.conftest import Clock, Rack


def settle(rack: Rack, seconds: int = 200) -> None:
    """Long enough for the temperature, ending outside a checkpoint's pause."""
    while seconds > 0 or (rack.clock.now + rack.fleet._phase[0, 0]) % 97 < 20:
        seconds -= 1
        rack.clock.pass_by(1)
        rack.fleet.advance()


def test_an_idle_gpu_draws_idle_power_and_stays_cool(rack: Rack) -> None:
    settle(rack)
    assert rack.fleet.power[0, 0] == pytest.approx(81)
    assert 36 <= rack.fleet.temperature[0, 0] <= 39
    assert rack.fleet.sm_clock[0, 0] == 345
    assert rack.fleet.reasons[0, 0] == clock_reasons.IDLE


def test_training_draws_less_than_its_limit_at_the_highest_clock_and_cools_down_after(rack: Rack) -> None:
    rack.fleet.set_pod_load((0, 0), 0.8)
    settle(rack)
    assert 390 <= rack.fleet.power[0, 0] <= 440
    assert 46 <= rack.fleet.temperature[0, 0] <= 52
    assert (rack.fleet.sm_clock[0, 0], rack.fleet.reasons[0, 0]) == (1980, 0)
    assert rack.fleet.power[0, 1] == pytest.approx(81)
    rack.fleet.set_pod_load((0, 0), 0.0)
    settle(rack)
    assert rack.fleet.temperature[0, 0] < 39


def test_a_measurement_is_a_burst_and_a_burn_meets_the_power_limit(rack: Rack) -> None:
    rack.fleet.set_burst_load((0, 0), 1.0)
    settle(rack, 5)
    burst = rack.fleet.gemm_tflops((0, 0))
    rack.fleet.set_burst_load((0, 0), 0.0)
    rack.fleet.set_work_load((0, 0), 1.0)
    settle(rack, 5)
    assert burst / rack.fleet.gemm_tflops((0, 0), others=0.0) == pytest.approx(760 / 639, rel=0.03)
    assert rack.fleet.reasons[0, 0] == clock_reasons.POWER_CAP


def test_a_gpu_with_a_context_and_no_work_waits_at_its_highest_clock(rack: Rack) -> None:
    rack.fleet.held_mib[0, 0] = 600
    settle(rack, 5)
    assert (rack.fleet.power[0, 0], rack.fleet.sm_clock[0, 0]) == (pytest.approx(126), 1980)
    assert rack.fleet.reasons[0, 0] == 0


def test_training_pauses_for_checkpoints_on_all_of_a_nodes_gpus_at_once(rack: Rack) -> None:
    for gpu in range(4):
        rack.fleet.set_pod_load((0, gpu), 0.85)
    seen = []
    for _ in range(120):
        rack.clock.pass_by(1)
        rack.fleet.advance()
        seen.append(rack.fleet.utilization[0].copy())
    low = [row for row in seen if row.min() < 20]
    assert 3 <= len(low) <= 10
    assert all(row.max() < 20 for row in low)
    assert len({row[0] for row in seen}) > 3, "it wobbles between the pauses"


def test_work_is_done_at_the_pace_of_the_clock_and_of_the_silicon(rack: Rack) -> None:
    for gpu in range(3):
        rack.fleet.set_pod_load((0, gpu), 0.9)
    rack.fleet.clock_ceiling[0, 1] = 990
    rack.fleet.compute_share[0, 2] = 0.8
    at, before = rack.fleet.worked(0, (0, 1, 2))
    rack.clock.pass_by(10)
    later, after = rack.fleet.worked(0, (0, 1, 2))
    done = [now - then for now, then in zip(after, before, strict=True)]
    assert (later - at, done) == (pytest.approx(10), pytest.approx([10, 5, 8]))


def test_a_power_cap_lowers_the_clock_and_the_gemm_rate_and_says_why(rack: Rack) -> None:
    rack.fleet.set_burst_load((0, 0), 1.0)
    settle(rack, 5)
    free = rack.fleet.gemm_tflops((0, 0))
    rack.fleet.power_limit[0, 0] = 350
    settle(rack, 5)
    assert rack.fleet.power[0, 0] <= 350
    assert rack.fleet.sm_clock[0, 0] < 1700
    assert rack.fleet.reasons[0, 0] & clock_reasons.POWER_CAP
    assert rack.fleet.gemm_tflops((0, 0)) < 0.9 * free
    assert rack.fleet.power_violation_ns[0, 0] > 0


def test_blocked_air_ends_in_thermal_slowdown(rack: Rack) -> None:
    rack.fleet.thermal_resistance[0, 0] = gpus.BLOCKED_AIR
    rack.fleet.set_work_load((0, 0), 1.0)
    settle(rack)
    assert rack.fleet.reasons[0, 0] & clock_reasons.SW_THERMAL
    assert rack.fleet.sm_clock[0, 0] < 1400
    assert 85 < rack.fleet.temperature[0, 0] < 90
    assert rack.fleet.thermal_violation_ns[0, 0] > 0


def test_energy_is_the_integral_of_power(rack: Rack) -> None:
    before = rack.fleet.energy_mj[0, 0]
    rack.clock.pass_by(100)
    rack.fleet.advance()
    assert rack.fleet.energy_mj[0, 0] - before == pytest.approx(81 * 100 * 1000)


def test_stepping_often_or_once_comes_to_the_same_temperature(rack: Rack) -> None:
    other = gpus.GpuFleet(["a", "b"], 4, rack.clock)
    for fleet in (rack.fleet, other):
        fleet.set_work_load((0, 0), 1.0)
    for _ in range(60):
        rack.clock.pass_by(0.5)
        rack.fleet.advance()
    other.advance()
    assert rack.fleet.temperature[0, 0] == pytest.approx(other.temperature[0, 0], abs=0.5)


def test_a_double_bit_error_is_healed_by_reset_and_remembered(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.double_bit_error(1)
    sample = machine.samples()[1]
    assert (sample.ecc_dbe_volatile, sample.row_remap_pending) == (1, True)
    rack.fleet.reset((0, 1))
    sample = machine.samples()[1]
    assert (sample.ecc_dbe_volatile, sample.row_remap_pending, sample.remapped_rows_uncorrectable) == (0, False, 1)
    assert rack.fleet.dbe_aggregate[0, 1] == 1
    assert rack.fleet.xid[0, 1] == 63


def test_a_lost_gpu_answers_nothing_until_the_machine_boots(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.lose_gpu(2)
    lost = machine.samples()[2]
    assert lost.lost
    assert lost.temperature_c is None
    assert any(": 79, " in line and "fallen off the bus" in line for line in machine.log.lines())
    rack.fleet.boot(0)
    assert not machine.samples()[2].lost
    assert rack.fleet.xid[0, 2] == 0


async def test_measured_load_shows_a_healthy_h100_and_a_pods_share(rack: Rack) -> None:
    machine = rack.machines[0]
    machine.fleet.clock = time.monotonic
    machine.fleet._at = machine.fleet.clock()
    alone = await machine.measure_load(0, 0.1)
    assert 700 <= alone.gemm_tflops <= 780
    assert 2800 <= alone.memory_bandwidth_gbs <= 3000
    machine.fleet.set_pod_load((0, 0), 0.9)
    shared = await machine.measure_load(0, 0.1)
    assert shared.gemm_tflops < 0.7 * alone.gemm_tflops
    machine.lose_gpu(0)
    assert (await machine.measure_load(0, 0.1)).gemm_tflops is None


@pytest.mark.slow
def test_a_large_fleet_takes_no_step_for_every_pod_that_starts() -> None:
    clock = Clock()
    fleet = GpuFleet([f"n-{number}" for number in range(5000)], 8, clock)
    fleet.set_work_load((0, 0), 1.0)
    clock.pass_by(0.04)
    fleet.set_work_load((1, 0), 1.0)
    assert not fleet.worked_s.any()
    clock.pass_by(0.02)
    fleet.advance()
    assert fleet.worked_s[0, 0] == pytest.approx(0.06, rel=0.2), "the time that was waited for is not lost"
