"""The real host's reading of a real library: our mock NVML, in a process of its own, through pynvml and the loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host.base import GpuSample
from tests.support.mock_nvml import GPU_IS_LOST, MockNvml, NvmlReader, compile_nvml, healthy, nvml_reader

NO_FUNCTION_BUT = ("nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2")


@pytest.fixture
def nvml(mock_nvml: MockNvml) -> MockNvml:
    """Three healthy GPUs."""
    mock_nvml.show({"nvmlDeviceGetCount_v2": "3", **healthy(0), **healthy(1), **healthy(2)})
    return mock_nvml


@pytest.fixture
def reader(nvml: MockNvml) -> Iterator[NvmlReader]:
    with nvml_reader(nvml.environment) as started:
        yield started


def expected(gpu: int) -> GpuSample:
    """Return what `healthy` is in a sample's units."""
    return GpuSample(
        index=gpu,
        uuid=f"GPU-0000000{gpu}-1111-2222-3333-444444444444",
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id=f"0000:{0x4E + gpu:02x}:00",
        temperature_c=41 + gpu,
        memory_temperature_c=55 + gpu,
        max_operating_c=87,
        slowdown_c=89,
        power_w=350.5 + gpu / 1000,
        power_limit_w=690,
        power_limit_default_w=700,
        sm_clock_mhz=1755 + gpu,
        sm_clock_max_mhz=1980,
        memory_clock_mhz=2619,
        utilization_pct=97,
        memory_used_bytes=5_520_809_984,
        memory_total_bytes=85_520_809_984,
        clocks_event_reasons=0x48,
        ecc_mode=True,
        ecc_mode_pending=False,
        ecc_sbe_volatile=7,
        ecc_dbe_volatile=2,
        remapped_rows_correctable=5,
        remapped_rows_uncorrectable=3,
        row_remap_pending=True,
        row_remap_failure=False,
        nvlinks_active=5,
        nvlinks_supported=6,
        nvlink_mbps=26562,
        pcie_generation=4,
        pcie_generation_max=5,
        pcie_width=8,
        pcie_width_max=16,
        pcie_replay_counter=13,
        persistence_mode=True,
        cpu_affinity="0-3,48-55,64",
        compute_pids=(4711 + gpu, 4811),
    )


def test_every_field_of_every_gpu_is_the_librarys_in_the_samples_unit(reader: NvmlReader) -> None:
    samples = reader.read()
    assert samples == [expected(0), expected(1), expected(2)]
    assert None not in samples[0].model_dump().values(), "a field that this test does not hold to the library"


def test_what_changes_in_the_library_changes_in_the_next_reading(nvml: MockNvml, reader: NvmlReader) -> None:
    assert reader.read()[1] == expected(1)
    nvml.show(
        {
            "1.nvmlDeviceGetTemperature.0": "91",
            "1.nvmlDeviceGetMarginTemperature": "-4",
            "1.nvmlDeviceGetCurrentClocksEventReasons": "0x20",
            "1.nvmlDeviceGetTotalEccErrors.1": "3",
            "1.nvmlDeviceGetNvLinkState": "0 0 0 0 0 0",
        }
    )
    changed = {"temperature_c": 91, "clocks_event_reasons": 0x20, "ecc_dbe_volatile": 3, "nvlinks_active": 0}
    assert reader.read() == [expected(0), expected(1).model_copy(update=changed), expected(2)]


def test_a_gpu_that_falls_off_in_between_is_lost_and_the_others_stay(nvml: MockNvml, reader: NvmlReader) -> None:
    reader.read()
    nvml.lose(1)
    assert reader.read() == [expected(0), GpuSample(index=1, uuid="", name="", pci_bus_id="", lost=True), expected(2)]


@pytest.mark.slow
def test_a_gpu_that_is_lost_in_the_middle_of_a_reading_keeps_its_name(nvml: MockNvml, reader: NvmlReader) -> None:
    nvml.show({"1.nvmlDeviceGetPowerUsage": GPU_IS_LOST})
    known = expected(1).model_dump(include={"index", "uuid", "name", "pci_bus_id"})
    assert reader.read()[1] == GpuSample(**known, lost=True)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param("!3", id="not supported"),
        pytest.param("!4", id="no permission"),
        pytest.param("!16", id="reset required"),
        pytest.param("!999", id="unknown"),
    ],
)
@pytest.mark.slow
def test_a_field_that_answers_with_an_error_is_unknown_and_costs_no_other(
    nvml: MockNvml, reader: NvmlReader, error: str
) -> None:
    nvml.show({"0.nvmlDeviceGetPowerUsage": error, "0.nvmlDeviceGetFieldValues.82": error})
    assert reader.read()[0] == expected(0).model_copy(update={"power_w": None, "memory_temperature_c": None})


@pytest.mark.slow
def test_a_gpu_without_a_t_limit_has_its_limits_in_degrees(nvml: MockNvml, reader: NvmlReader) -> None:
    nvml.show({"0.nvmlDeviceGetMarginTemperature": "!3", "1.nvmlDeviceGetFieldValues.196": "!3"})
    old, mixed = {"max_operating_c": 86, "slowdown_c": 90}, {"max_operating_c": 86}
    assert reader.read()[:2] == [expected(0).model_copy(update=old), expected(1).model_copy(update=mixed)]


@pytest.mark.slow
def test_a_gpu_above_its_limit_has_a_negative_margin(nvml: MockNvml, reader: NvmlReader) -> None:
    nvml.show({"0.nvmlDeviceGetTemperature.0": "90", "0.nvmlDeviceGetMarginTemperature": "-3"})
    assert reader.read()[0] == expected(0).model_copy(update={"temperature_c": 90})


def test_a_name_that_is_no_text_is_unknown(nvml: MockNvml, reader: NvmlReader) -> None:
    nvml.show({"0.nvmlDeviceGetName": "NVIDIA \udcff"})
    assert reader.read()[0] == expected(0).model_copy(update={"name": ""})


@pytest.mark.slow
def test_a_driver_that_counts_no_gpu_shows_none(nvml: MockNvml, reader: NvmlReader) -> None:
    nvml.show({"nvmlDeviceGetCount_v2": "0"})
    assert reader.read() == []


def test_a_driver_without_the_newer_functions_leaves_their_fields_unknown(nvml: MockNvml, tmp_path: Path) -> None:
    """Functions that R530 lacks (clocks event reasons under that name), or a GPU before Ampere (remapped rows)."""
    newer = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetRemappedRows")
    nvml.library = compile_nvml(tmp_path / "old", without=newer)
    nvml.show({"0.nvmlDeviceGetCurrentClocksThrottleReasons": "0x4"})
    rows = ("remapped_rows_correctable", "remapped_rows_uncorrectable", "row_remap_pending", "row_remap_failure")
    with nvml_reader(nvml.environment) as reader:
        old = expected(0).model_copy(update={"clocks_event_reasons": 0x4, **dict.fromkeys(rows)})
        assert reader.read()[0] == old


@pytest.mark.slow
def test_a_library_that_only_counts_shows_gpus_of_which_nothing_is_known(nvml: MockNvml, tmp_path: Path) -> None:
    exported = {key.split(".")[1] for key in healthy(0)}
    nvml.library = compile_nvml(tmp_path / "bare", without=sorted(exported))
    with nvml_reader(nvml.environment) as reader:
        assert reader.read() == [GpuSample(index=index, uuid="", name="", pci_bus_id="") for index in range(3)]


@pytest.mark.parametrize("missing", NO_FUNCTION_BUT[:1] + NO_FUNCTION_BUT[2:3])
@pytest.mark.slow
def test_a_library_without_the_first_functions_is_no_nvml(nvml: MockNvml, tmp_path: Path, missing: str) -> None:
    nvml.library = compile_nvml(tmp_path / "none", without=[missing])
    with nvml_reader(nvml.environment) as reader, pytest.raises(HostError, match="too old, or not NVIDIA's"):
        reader.read()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        pytest.param("!18", "driver and user-space library differ; reboot or reload", id="library of another version"),
        pytest.param("!9", "the nvidia kernel module is not loaded", id="no kernel module"),
        pytest.param("!4", "run the agent privileged", id="no permission"),
        pytest.param("!999", "^NVML: Unknown Error$", id="unknown"),
    ],
)
@pytest.mark.slow
def test_a_library_that_does_not_open_says_why_and_opens_once_it_can(
    nvml: MockNvml, reader: NvmlReader, error: str, message: str
) -> None:
    nvml.show({"nvmlInitWithFlags": error})
    with pytest.raises(HostError, match=message):
        reader.read()
    nvml.show({"nvmlInitWithFlags": "0"})
    assert reader.read()[0] == expected(0)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="the loader finds this machine's own driver")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "NVML not found .*No such file.*libraries are neither in this container nor", id="absent"),
        pytest.param(b"", "NVML not found .*file too short", id="empty"),
        pytest.param(b"\x7fELF" + bytes(4096), "NVML not found .*(ELF|header)", id="of another machine"),
    ],
)
@pytest.mark.slow
def test_a_library_that_does_not_load_says_what_the_loader_says(
    nvml: MockNvml, tmp_path: Path, content: bytes | None, message: str
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    if content is not None:
        (folder / "libnvidia-ml.so.1").write_bytes(content)
    nvml.library = folder / "libnvidia-ml.so.1"
    with nvml_reader(nvml.environment) as reader, pytest.raises(HostError, match=message):
        reader.read()
