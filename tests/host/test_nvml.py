"""The mapping of NVML's functions to a sample's fields, with a fake that raises the real library's own errors."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.host.nvml import read_gpus

pynvml: Any = import_module("pynvml")  # its error classes are made at run time, out of a type checker's sight

HEALTHY: dict[str, Any] = {
    "nvmlDeviceGetUUID": "GPU-1234",
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetPciInfo": SimpleNamespace(domain=0, bus=0x4E, device=0),
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=55))],
    "nvmlDeviceGetTemperatureThreshold": 87,
    "nvmlDeviceGetPowerUsage": 350_500,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 650_000,
    "nvmlDeviceGetClockInfo": 1755,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=30),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5, total=80, free=75),
    "nvmlDeviceGetCurrentClocksEventReasons": 4,
    "nvmlDeviceGetEccMode": [1, 0],
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": (2, 1, 0, 1),
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPcieReplayCounter": 3,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetCpuAffinity": [0x00FF00000000000F, 0x1],
    "nvmlDeviceGetComputeRunningProcesses_v3": [SimpleNamespace(pid=4711)],
}


class FakeNvml(ModuleType):
    """Module pynvml with its C calls replaced; constants and error classes are the library's own."""

    def __init__(self, devices: list[dict[str, Any]]) -> None:
        super().__init__("fake_pynvml")
        self.devices = devices
        self.init_error: Exception | None = None
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvmlDeviceGet"):
            return lambda device, *_: _value(device.get(name, pynvml.NVMLError_NotSupported()))
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        if self.init_error:
            raise self.init_error
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        device = self.devices[index]
        _value(device.get("handle"))
        return device

    def nvmlDeviceGetNvLinkState(self, device: dict[str, Any], link: int) -> int:
        links = device.get("links", [1] * 18)
        if link >= len(links):
            raise pynvml.NVMLError_InvalidArgument()
        return int(_value(links[link]))


def _value(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


def nvml_of(*changes: dict[str, Any]) -> FakeNvml:
    return FakeNvml([HEALTHY | change for change in changes])


def test_every_field_is_read_in_the_units_of_the_sample() -> None:
    nvml = nvml_of({})
    (gpu,) = read_gpus(nvml)
    assert gpu.model_dump() == {
        "index": 0, "uuid": "GPU-1234", "name": "NVIDIA H100 80GB HBM3", "pci_bus_id": "0000:4e:00", "lost": False,
        "temperature_c": 41, "memory_temperature_c": 55, "max_operating_c": 87, "slowdown_c": 87, "power_w": 350.5,
        "power_limit_w": 700,
        "power_limit_default_w": 650,
        "sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "memory_clock_mhz": 1755, "utilization_pct": 97,
        "memory_used_bytes": 5, "memory_total_bytes": 80, "clocks_event_reasons": 4, "ecc_mode": True,
        "ecc_mode_pending": False,
        "ecc_dbe_volatile": 0, "ecc_sbe_volatile": 0, "remapped_rows_correctable": 2,
        "remapped_rows_uncorrectable": 1, "row_remap_pending": False, "row_remap_failure": True,
        "nvlinks_active": 18, "nvlinks_supported": 18, "nvlink_mbps": 55,
        "pcie_generation": 5, "pcie_generation_max": 5,
        "pcie_width": 16, "pcie_width_max": 16, "pcie_replay_counter": 3, "persistence_mode": True,
        "cpu_affinity": "0-3,48-55,64", "compute_pids": (4711,),
    }  # fmt: skip
    assert nvml.open == 0, "an open NVML client would make a GPU reset refuse"


@pytest.mark.parametrize("getter", [name for name in HEALTHY if name not in ("nvmlDeviceGetUUID", "nvmlDeviceGetName")])
@pytest.mark.parametrize("error", ["NotSupported", "FunctionNotFound", "Unknown", "NoPermission"])
def test_a_field_that_cannot_be_read_is_none_and_costs_no_other(getter: str, error: str) -> None:
    healthy = read_gpus(nvml_of({}))[0].model_dump()
    broken = nvml_of({getter: getattr(pynvml, f"NVMLError_{error}")()})
    if getter == "nvmlDeviceGetCurrentClocksEventReasons":
        broken.devices[0]["nvmlDeviceGetCurrentClocksThrottleReasons"] = pynvml.NVMLError_NotSupported()
    (gpu,) = read_gpus(broken)
    changed = {name for name, value in gpu.model_dump().items() if value != healthy[name]}
    assert changed
    assert all(getattr(gpu, name) in (None, "") for name in changed)
    assert len(changed) <= 4
    assert not gpu.lost


def test_a_lost_gpu_keeps_its_identity_and_nothing_else() -> None:
    gone = nvml_of({}, {"nvmlDeviceGetPowerUsage": pynvml.NVMLError_GpuIsLost()}, {})
    gpus = read_gpus(gone)
    assert [gpu.lost for gpu in gpus] == [False, True, False]
    assert gpus[1].pci_bus_id == "0000:4e:00"
    assert gpus[1].temperature_c is None


def test_a_gpu_without_a_handle_is_lost_but_counted() -> None:
    gpus = read_gpus(nvml_of({}, {"handle": pynvml.NVMLError_GpuIsLost()}))
    assert [(gpu.index, gpu.lost) for gpu in gpus] == [(0, False), (1, True)]


def test_clock_event_reasons_are_read_from_old_drivers_by_their_old_name() -> None:
    old = {
        "nvmlDeviceGetCurrentClocksEventReasons": pynvml.NVMLError_FunctionNotFound(),
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x48,
    }
    assert read_gpus(nvml_of(old))[0].clocks_event_reasons == 0x48


def test_nvlinks_that_are_down_count_as_supported_and_a_gpu_without_nvlinks_has_none() -> None:
    down = nvml_of({"links": [1, 0, 1]})
    assert (read_gpus(down)[0].nvlinks_active, read_gpus(down)[0].nvlinks_supported) == (2, 3)
    none = nvml_of({"links": [pynvml.NVMLError_NotSupported()] * 2})
    assert (read_gpus(none)[0].nvlinks_active, read_gpus(none)[0].nvlinks_supported) == (None, 0)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("LibraryNotFound", r"NVML not found \(.+\): the driver's libraries are neither in this container nor"),
        ("DriverNotLoaded", "kernel module is not loaded"),
        ("LibRmVersionMismatch", "reboot or reload the driver"),
        ("Unknown", "NVML: "),
    ],
)
def test_an_error_of_nvml_as_a_whole_says_what_to_do(error: str, message: str) -> None:
    nvml = nvml_of({})
    nvml.init_error = getattr(pynvml, f"NVMLError_{error}")()
    with pytest.raises(HostError, match=message):
        read_gpus(nvml)


def test_without_a_driver_the_real_library_is_reported_as_missing() -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        with pytest.raises(HostError, match="NVML not found"):
            read_gpus()
    else:
        pynvml.nvmlShutdown()
        assert read_gpus()
