"""A burn: power, heat, its ceiling, and wrong results."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.gpu_burn import GpuBurnFault, GpuBurnParameters
from gameday.faults.gpu_memory import GpuMemoryFault
from gameday.faults.numa import NumaFault
from tests.faults.gpu_model import ModelHost
from tests.faults.working_host import Hold

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()


def test_a_burn_shows_in_power_and_heat_and_counts_what_it_checked(host: ModelHost) -> None:
    BURN.inject(GpuBurnParameters(), 2, host)
    (line,) = BURN.hold(GpuBurnParameters(), 2, host, Hold(host, 60))
    sample = host.gpus()[2]
    assert sample.power_w and sample.power_w > 600
    assert line.startswith(f"held: peak {sample.temperature_c:g} °C, best 7")
    (ended,) = BURN.undo(GpuBurnParameters(), 2, host, {}).lines
    assert "checked, no element wrong" in ended


def test_half_the_load_is_half_the_power(host: ModelHost) -> None:
    parameters = GpuBurnParameters(utilization_pct=50)
    BURN.inject(parameters, 2, host)
    BURN.hold(parameters, 2, host, Hold(host, 5))
    assert host.gpus()[2].utilization_pct == 50


def test_wrong_elements_are_a_finding(host: ModelHost) -> None:
    host.fleet.wrong_results[0, 2] = 3
    assert "3 ELEMENTS WRONG: silent data corruption" in BURN.inject(GpuBurnParameters(), 2, host).lines[1]


def test_the_ceiling_ends_the_load_and_is_in_the_evidence(host: ModelHost) -> None:
    parameters = GpuBurnParameters(ceiling_c=60)
    BURN.inject(parameters, 2, host)
    seconds: list[int] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 200, seconds.append))
    assert host.machine.works == {}
    assert lines[-1].startswith("the ceiling of 60 °C ended the load")
    assert len(seconds) < 60
    assert host.gpus()[2].temperature_c == pytest.approx(60, abs=2)


def test_heat_is_held_at_its_goal(host: ModelHost) -> None:
    parameters = GpuBurnParameters(heat_to_c=55, ceiling_c=70)
    BURN.inject(parameters, 2, host)
    seen: list[float] = []
    lines = BURN.hold(parameters, 2, host, Hold(host, 90, lambda _: seen.append(float(host.fleet.temperature[0, 2]))))
    assert all(abs(degrees - 55) < 3 for degrees in seen[60:])
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


@pytest.mark.parametrize(("heat", "ceiling"), [(85, 85), (90, 80)])
def test_a_goal_at_the_ceiling_is_refused(heat: int, ceiling: int) -> None:
    with pytest.raises(ValidationError, match="must lie below ceiling_c"):
        GpuBurnParameters(heat_to_c=heat, ceiling_c=ceiling)


@pytest.mark.parametrize("parameters", [{"ceiling_c": 93}, {"heat_to_c": 95}, {"utilization_pct": 0}])
def test_heat_has_bounds(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        GpuBurnParameters.model_validate(parameters)
