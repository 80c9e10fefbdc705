"""A burn: power, heat, its ceiling, and wrong results."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults import gpu_burn
from gameday.faults.gpu_burn import GpuBurnFault, GpuBurnParameters
from gameday.faults.gpu_memory import GpuMemoryFault
from gameday.faults.numa import NumaFault
from gameday.host.base import Precision
from gameday.host.clock_reasons import THERMAL_SLOWDOWN
from gameday_rehearsal.nodes.gpus import BLOCKED_AIR
from tests.faults.gpu_model import ModelHost
from tests.faults.working_host import Hold

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()
THROTTLED = GpuBurnParameters(until_throttled=True, ceiling_c=91)


def test_a_burn_shows_in_power_and_heat_and_counts_what_it_checked(host: ModelHost) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    (line,) = BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 60))
    sample = host.gpus()[2]
    assert sample.power_w and sample.power_w > 600
    assert line.startswith(f"held: peak {sample.temperature_c:g} °C, best 6")
    (ended,) = BURN.undo(GpuBurnParameters(), 2, host, {}).lines
    assert "checked, no element wrong" in ended


def test_half_the_load_is_half_the_power(host: ModelHost) -> None:
    parameters = GpuBurnParameters(utilization_pct=50)
    BURN.inject(parameters, 2, host)
    BURN.hold(parameters, 2, host, Hold(host, 5))
    assert host.gpus()[2].utilization_pct == 50


@pytest.mark.parametrize("precision", ["half", "bf16"])
def test_the_evidence_names_the_precision_and_both_have_the_tensor_cores_rate(
    host: ModelHost, precision: Precision
) -> None:
    line = BURN.inject(GpuBurnParameters(precision=precision), 2, host).lines[1]
    rate = re.search(rf"begun, precision {precision}: ([\d.]+) TFLOP/s", line)
    assert rate and float(rate[1]) > 500


def test_wrong_elements_are_a_finding(host: ModelHost) -> None:
    host.fleet.wrong_results[0, 2] = 3
    assert "3 ELEMENTS WRONG: silent data corruption" in BURN.inject(GpuBurnParameters(), 2, host).lines[1]


def test_the_ceiling_ends_the_load_and_is_in_the_evidence(host: ModelHost) -> None:
    parameters = GpuBurnParameters(ceiling_c=57)
    BURN.inject(parameters, 2, host)
    seconds: list[int] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 200, seconds.append))
    assert host.machine.works == {}
    assert lines[-1].startswith("the ceiling of 57 °C ended the load")
    assert len(seconds) < 60


def test_heat_is_held_at_its_goal(host: ModelHost) -> None:
    parameters = GpuBurnParameters(heat_to_c=55, ceiling_c=70)
    BURN.inject(parameters, 2, host)
    seen: list[float] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 90, lambda _: seen.append(float(host.fleet.temperature[0, 2]))))
    assert sum(abs(degrees - 55) < 3 for degrees in seen[15:]) > 0.9 * len(seen[15:])
    assert lines[1].startswith("55 °C reached after")


def test_heat_that_is_never_reached_is_in_the_evidence(host: ModelHost) -> None:
    parameters = GpuBurnParameters(heat_to_c=80, utilization_pct=10)
    BURN.inject(parameters, 2, host)
    assert BURN.hold(parameters, 2, host, Hold(host, 30))[1] == "80 °C never reached"


def test_a_gpu_that_is_too_hot_already_is_not_heated(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"GPU 2 is at .* °C, and ceiling_c is 40"):
        host.fleet.temperature[0, 2] = 45
        BURN.prior_state(GpuBurnParameters(ceiling_c=40), 2, host)


def test_without_a_temperature_there_is_no_load(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    blind = [sample.model_copy(update={"temperature_c": None}) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: blind)
    with pytest.raises(HostError, match="no load without it"):
        BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 5))
    with pytest.raises(HostError, match="no load without it"):
        BURN.prior_state(GpuBurnParameters(), 2, host)


def test_a_gpu_lost_under_load_is_an_error(host: ModelHost) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    with pytest.raises(HostError, match="cudaErrorDevicesUnavailable"):
        BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 9, lambda _: host.machine.lose_gpu(2)))
    BURN.undo(GpuBurnParameters(), 2, host, {})
    assert BURN.verify_undone(GpuBurnParameters(), 2, host, {})


def test_a_weakly_cooled_gpu_is_heated_until_it_throttles_and_held_just_there(host: ModelHost) -> None:
    host.fleet.thermal_resistance[0, 2] = BLOCKED_AIR
    BURN.inject(THROTTLED, 2, host)
    seen: list[tuple[float, bool]] = []

    def each(second: int) -> None:
        gpu = host.gpus()[2]
        assert gpu.temperature_c is not None and gpu.clocks_event_reasons is not None
        seen.append((gpu.temperature_c, bool(gpu.clocks_event_reasons & THERMAL_SLOWDOWN)))

    lines = BURN.hold(THROTTLED, 2, host, Hold(host, 180, each))
    first = next(second for second, (_, slowed) in enumerate(seen) if slowed)
    assert re.fullmatch(
        r"throttled after \d+ s at 8[56] °C: SW thermal slowdown; slowed in \d+% of the readings since", lines[1]
    )
    after = seen[first:]
    assert 83 <= min(degrees for degrees, _ in after) <= max(degrees for degrees, _ in after) <= 88
    longest = max(map(len, "".join("x" if slowed else " " for _, slowed in after).split("x")))
    assert longest < 20, "it keeps throttling"
    assert len(lines) == 2


def test_the_undo_waits_until_heat_slows_the_gpu_no_longer(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.fleet.thermal_resistance[0, 2] = BLOCKED_AIR
    BURN.inject(THROTTLED, 2, host)
    BURN.hold(THROTTLED, 2, host, Hold(host, 120))
    looked: list[float | None] = []

    def cool(_: float) -> None:
        looked.append(host.gpus()[2].temperature_c)
        host.fleet.temperature[0, 2] -= 3
        host.fleet.sink[0, 2] -= 3

    monkeypatch.setattr(gpu_burn.time, "sleep", cool)
    host.fleet.temperature[0, 2] = host.fleet.sink[0, 2] = 90
    ended, cooled = BURN.undo(THROTTLED, 2, host, {}).lines
    assert ended.startswith("ended the work")
    assert looked and (looked[0] or 0) > 85
    assert cooled.startswith("no longer slowed by heat after 0 s, at 8"), cooled


def test_a_gpu_that_is_cooled_well_never_throttles_and_the_evidence_says_so(host: ModelHost) -> None:
    BURN.inject(THROTTLED, 2, host)
    lines = BURN.hold(THROTTLED, 2, host, Hold(host, 120))
    assert lines[1].startswith("never throttled in 1")
    assert host.has_work(2), "the load goes on to the hold's end"


def test_a_ceiling_that_comes_first_is_in_the_evidence(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU whose own limit NVML does not show."""
    unknown = {"max_operating_c": None, "slowdown_c": None}
    gpus = host.gpus
    monkeypatch.setattr(host, "gpus", lambda: [sample.model_copy(update=unknown) for sample in gpus()])
    host.fleet.thermal_resistance[0, 2] = BLOCKED_AIR
    parameters = GpuBurnParameters(until_throttled=True, ceiling_c=80)
    BURN.inject(parameters, 2, host)
    lines = BURN.hold(parameters, 2, host, Hold(host, 120))
    assert re.fullmatch(r"the ceiling of 80 °C ended the load after \d+ s, before it throttled", lines[1])
    assert len(lines) == 2
    assert not host.has_work(2)


def test_a_ceiling_above_which_it_may_throttle_still_ends_the_load(host: ModelHost) -> None:
    host.fleet.thermal_resistance[0, 2] = BLOCKED_AIR
    parameters = GpuBurnParameters(until_throttled=True, ceiling_c=86)
    BURN.inject(parameters, 2, host)

    def heat(second: int) -> None:
        if second == 60:
            host.fleet.temperature[0, 2] = 91

    lines = BURN.hold(parameters, 2, host, Hold(host, 120, heat))
    assert lines[1].startswith("throttled after")
    assert re.fullmatch(r"the ceiling of 86 °C ended the load after \d+ s", lines[2])


@pytest.mark.parametrize(
    ("ceiling", "change", "why"),
    [
        (85, {}, r"throttles above 85 °C: the load would end before. Write a higher ceiling_c"),
        (85, {"max_operating_c": None}, r"throttles above 92 °C"),
        (90, {"clocks_event_reasons": None}, "no throttling could be seen"),
        (90, {"clocks_event_reasons": 0x20}, r"throttled by heat already \(SW thermal slowdown\)"),
    ],
)
def test_what_would_prove_nothing_is_refused_before_the_load(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch, ceiling: int, change: dict[str, Any], why: str
) -> None:
    changed = [sample.model_copy(update=change) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: changed)
    parameters = GpuBurnParameters(until_throttled=True, ceiling_c=ceiling)
    for act in (BURN.prior_state, BURN.inject):
        with pytest.raises(HostError, match=why):
            act(parameters, 2, host)
    assert not host.machine.works


def test_the_power_brake_is_no_heat(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    braked = [sample.model_copy(update={"clocks_event_reasons": 0x88}) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: braked)
    BURN.inject(THROTTLED, 2, host)
    assert BURN.hold(THROTTLED, 2, host, Hold(host, 5))[1].startswith("never throttled")


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"until_throttled": True}, "write ceiling_c beside until_throttled"),
        ({"until_throttled": True, "ceiling_c": 92, "heat_to_c": 80}, "two goals"),
    ],
)
def test_throttling_is_asked_for_with_a_ceiling_and_alone(parameters: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        GpuBurnParameters.model_validate(parameters)


@pytest.mark.parametrize(("heat", "ceiling"), [(85, 85), (90, 80)])
def test_a_goal_at_the_ceiling_is_refused(heat: int, ceiling: int) -> None:
    with pytest.raises(ValidationError, match="must lie below ceiling_c"):
        GpuBurnParameters(heat_to_c=heat, ceiling_c=ceiling)


@pytest.mark.parametrize("parameters", [{"ceiling_c": 93}, {"heat_to_c": 95}, {"utilization_pct": 0}])
def test_heat_has_bounds(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GpuBurnParameters.model_validate(parameters)
