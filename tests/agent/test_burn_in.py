"""The burn-in on the model's physics: heat needs time and neighbours, and nothing of it is left behind."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from pydantic import ValidationError

from gameday.agent.qa.burn_in import burn_in
from gameday.agent.qa.checks import judge
from gameday.agent.qa.readings import Pace, read_node
from gameday.agent.task import Proof, proof_of
from gameday.errors import HostError
from gameday.host.base import WorkReport
from gameday.host.clock_reasons import SW_THERMAL
from gameday.plan.qa import Qa, QaFloors
from gameday_rehearsal.nodes.in_process import ModelHost

WEAK = 1


@pytest.fixture(autouse=True)
def _short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.agent.qa.readings.LOAD_S", 0.01)


def failed(host: ModelHost, seconds: float) -> set[tuple[str, int | None]]:
    proof = Proof(floors=QaFloors(), burn_in_s=300, virtual_burn_in_s=seconds)
    pace = Pace(host.clock, host.clock.pass_by)
    readings = read_node(host, "20261121-204941-0", None, threading.Event(), proof, pace)
    return {(found.check, found.gpu) for found in judge(readings, proof.floors) if not found.ok}


@pytest.mark.slow
def test_a_weak_fan_is_found_by_a_long_burn_in_and_not_by_a_short_one() -> None:
    for seconds, found in (
        (10, set()),
        (180, {(check, WEAK) for check in ("hw-slowdown", "temperature", "temperature-spread")}),
    ):
        host = ModelHost(4)
        host.fleet.thermal_resistance[0, WEAK] = 6.2
        assert failed(host, seconds) == found


@pytest.mark.slow
def test_alone_the_same_gpu_never_slows_down_because_its_neighbours_are_cold() -> None:
    host = ModelHost(4)
    host.fleet.thermal_resistance[0, WEAK] = 6.2
    alone = [host.gpus()[WEAK]]
    burns = burn_in(host, alone, 180, None, threading.Event(), host.clock, host.clock.pass_by)
    reasons = [moment.gpu.clocks_event_reasons or 0 for moment in burns[WEAK].moments]
    assert len(reasons) > 100
    assert not any(reason & SW_THERMAL for reason in reasons)


def test_the_burn_in_leaves_no_work_behind_whatever_happens_to_it() -> None:
    host = ModelHost(4)
    host.fleet.lost[0, 2] = True
    assert ("gpu-answers", 2) in failed(host, 1)
    assert not any(host.has_work(gpu) for gpu in range(4))
    assert failed(ModelHost(4), 1) == set()


def test_a_gpu_that_is_hot_before_is_not_loaded_and_nothing_is_claimed() -> None:
    host = ModelHost(4)
    host.fleet.temperature[0, WEAK] = host.fleet.sink[0, WEAK] = 84.0
    checks = {check for check, _ in failed(host, 10)}
    assert {"burn-in", "gemm-rate", "gemm-results", "sm-clock"} <= checks
    assert not any("start work" in act for act in host.did)


@pytest.mark.slow
def test_one_wrong_bit_of_a_hot_gpu_is_found_only_once_it_is_hot() -> None:
    for seconds, found in ((10, set()), (90, {("gemm-results", WEAK)})):
        host = ModelHost(4)
        host.fleet.thermal_resistance[0, WEAK] = 2.5  # so that heat takes its time
        host.fleet.wrong_above_c[0, WEAK] = 67.0
        assert failed(host, seconds) == found


def test_a_gpu_that_computes_wrong_from_the_start_disagrees_with_the_others() -> None:
    host = ModelHost(4)
    host.fleet.wrong_results[0, WEAK] = 1
    assert failed(host, 1) == {("gemm-results", WEAK), ("gemm-agreement", WEAK), ("all-reduce-sums", None)}


def test_a_gpu_with_too_few_links_slows_the_all_reduce_of_all() -> None:
    host = ModelHost(4)
    host.fleet.nvlinks[0, WEAK] = 12
    assert failed(host, 1) == {("nvlinks-active", WEAK), ("all-reduce-rate", None)}
    assert not host.machine.works


def test_a_word_that_does_not_hold_its_bits_is_found_with_its_place() -> None:
    host = ModelHost(4)
    host.fleet.bad_word_at[0, WEAK] = 0x40001238
    assert failed(host, 1) == {("memory-pattern", WEAK)}


def test_a_stop_ends_the_burn_in_at_once() -> None:
    host, ended = ModelHost(2), threading.Event()

    def wait(seconds: float) -> None:
        host.clock.pass_by(seconds)
        ended.set()

    burns = burn_in(host, host.gpus(), 300, None, ended, host.clock, wait)
    assert all(burn.seconds < 1 for burn in burns.values())
    assert not any(host.has_work(gpu) for gpu in (0, 1))


def test_a_load_without_a_temperature_ends() -> None:
    class Blind(ModelHost):
        """A host whose NVML stops answering once work has begun."""

        def gpus(self) -> list:  # type: ignore[type-arg]
            if self.machine.works:
                raise HostError("NVML: unknown error")
            return super().gpus()

        def steer_work(self, gpu: int, utilization: float) -> None:
            assert isinstance(self.work_report(gpu), WorkReport)

    host = Blind(2)
    burns = burn_in(host, host.gpus(), 300, 93, threading.Event(), host.clock, host.clock.pass_by)
    assert all("NVML did not answer" in burn.why_not for burn in burns.values())
    assert not host.machine.works


@pytest.mark.parametrize("length", ["0s", "1s", "1999ms"])
def test_a_plan_cannot_ask_a_real_gpu_for_less_than_two_seconds(length: str) -> None:
    with pytest.raises(ValidationError, match="less than 2s proves nothing"):
        Qa.model_validate({"burn_in": length})
    with pytest.raises(ValidationError):
        Proof(floors=QaFloors(), burn_in_s=1.9, virtual_burn_in_s=1)


def test_a_floor_that_nothing_would_measure_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"nothing would measure floors\.gemm_tflops"):
        Qa.model_validate({"burn_in": None, "floors": {"gemm_tflops": 650}})


def test_the_step_has_time_for_the_burn_in() -> None:
    assert Qa.model_validate({"within": "60s"}).longest == timedelta(minutes=6)
    assert Qa.model_validate({"within": "60s", "burn_in": None}).longest == timedelta(minutes=1)
    assert proof_of(Qa()).burn_in_s == 300
