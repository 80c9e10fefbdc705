"""NVML's figures under dcgm-exporter's names, on the C interface of our mock library."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gameday_rehearsal.nodes.counters import counters_of
from gameday_rehearsal.nodes.devices import GpuHolder
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.identity import GpuIdentity
from gameday_rehearsal.this_machine.figures import FIGURES
from gameday_rehearsal.this_machine.gpus import Gpus, Reading, XidEvents
from gameday_rehearsal.this_machine.metrics import render
from tests.support.mock_nvml import MockNvml, healthy

_READ = """
import json, dataclasses
from gameday.host.nvml import open_nvml
from gameday_rehearsal.this_machine.figures import read_figures
from gameday_rehearsal.this_machine.gpus import XidEvents, find_gpus
with open_nvml() as nvml:
    figures = [read_figures(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(nvml.nvmlDeviceGetCount())]
    xids = XidEvents(nvml).last()
print(json.dumps({"figures": figures, "xids": xids, "gpus": dataclasses.asdict(find_gpus())}))
"""


def read(nvml: MockNvml) -> Any:
    argv = [sys.executable, "-c", _READ]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=nvml.environment)
    return json.loads(done.stdout)


def parsed(page: str) -> dict[str, list[Any]]:
    return {family.name: family.samples for family in text_string_to_metric_families(page)}


def test_figures_have_the_units_of_the_counters_file(mock_nvml: MockNvml) -> None:
    more = {
        "0.nvmlDeviceGetCudaComputeCapability": "9 0",
        "nvmlSystemGetDriverVersion": "580.159.04",
        "nvmlSystemGetCudaDriverVersion": "13000",
        "0.nvmlDeviceGetMemoryInfo_v2": "85520809984 520809984 80000000000 5000000000",
        "0.nvmlDeviceGetPowerManagementLimit": "650000",
    }
    mock_nvml.show({"nvmlDeviceGetCount_v2": "1", **healthy(0), **more})
    seen = read(mock_nvml)
    (figures,) = seen["figures"]
    assert figures["DCGM_FI_DEV_POWER_USAGE"] == 350.5
    assert figures["DCGM_FI_DEV_POWER_MGMT_LIMIT"] == 650
    assert [figures[f"DCGM_FI_DEV_FB_{part}"] for part in ("RESERVED", "FREE", "USED")] == [496, 76293, 4768]
    assert figures["DCGM_FI_DEV_GPU_TEMP"] == 41
    assert figures["DCGM_FI_DEV_MEMORY_TEMP"] == 55
    assert figures["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x48
    assert (figures["DCGM_FI_DEV_GPU_UTIL"], figures["DCGM_FI_DEV_MEM_COPY_UTIL"]) == (97, 31)
    assert figures["DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"] == 5
    assert figures["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"] == 3
    assert (figures["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"], figures["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"]) == (7, 2)
    assert seen["xids"] == {}
    assert seen["gpus"]["identities"][0]["pci"] == "0000:4e:00"
    assert seen["gpus"]["labels"] == {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/cuda.driver-version.full": "580.159.04",
        "nvidia.com/cuda.runtime-version.full": "13.0",
    }


def test_what_nvml_does_not_have_is_absent_and_never_0(mock_nvml: MockNvml) -> None:
    """The mock has no energy and no encoders; a GPU that is lost has nothing."""
    mock_nvml.show({"nvmlDeviceGetCount_v2": "2", **healthy(0), **healthy(1), "0.nvmlDeviceGetEccMode": "!3"})
    mock_nvml.show({"0.nvmlDeviceRegisterEvents": "!4"})
    mock_nvml.show({"1.nvmlDeviceGetPowerUsage": "!15"})
    seen = read(mock_nvml)
    assert not {"DCGM_FI_DEV_ECC_CURRENT", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"} & seen["figures"][0].keys()
    assert seen["figures"][1] == {}
    assert seen["xids"] is None


def test_every_figure_is_in_the_counters_file() -> None:
    assert {counter.name for counter in counters_of(ExporterRelease.CODED)} >= FIGURES.keys()


GPUS = Gpus(
    tuple(GpuIdentity(index, f"GPU-{index}", f"0000:0{index}:00", "") for index in (1, 2)), 'an "odd" name', "580.1"
)


@pytest.mark.parametrize("release", list(ExporterRelease))
def test_the_page_has_dcgm_exporters_names_and_labels(release: ExporterRelease) -> None:
    figures = {1: {"DCGM_FI_DEV_GPU_TEMP": 41, "DCGM_FI_DEV_FB_USED": 9}, 2: {}}
    holder = GpuHolder("uid", "training", "pretrain-0", "trainer")
    page = render(GPUS, Reading(0.0, figures, {1: 31}), release, {1: holder}.get)
    (temperature,) = parsed(page)["DCGM_FI_DEV_GPU_TEMP"]
    assert temperature.value == 41
    assert temperature.labels[release.node_label] == "metal-0"
    assert temperature.labels["modelName"] == 'an "odd" name'
    assert temperature.labels["pci_bus_id"] == "00000000:01:00.0"
    assert temperature.labels["pod"] == "pretrain-0"
    (xid,) = parsed(page)["DCGM_FI_DEV_XID_ERRORS"]
    assert (xid.value, xid.labels.get("err_code")) == (31, "31" if release.codes_xids else None)
    assert "DCGM_FI_DEV_POWER_USAGE" not in page


def test_without_a_fresh_reading_the_page_is_empty() -> None:
    assert render(GPUS, None, ExporterRelease.CODED, lambda _: None) == ""
    silent = Reading(0.0, {1: {"DCGM_FI_DEV_GPU_TEMP": 41}}, None)
    assert "XID" not in render(GPUS, silent, ExporterRelease.CODED, lambda _: None)


class Events:
    """pynvml with one GPU of which events come; its error classes are the library's own."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module("pynvml"), name)

    nvmlEventSetCreate = nvmlDeviceRegisterEvents = lambda *_: "events"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        return SimpleNamespace(busId="00000000:4E:00.0")

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        if not self.codes:
            raise self.NVMLError_Timeout
        return SimpleNamespace(device=0, eventData=self.codes.pop(0))


def test_the_last_xid_of_nvmls_events_is_shown_until_the_next() -> None:
    nvml = Events(31, 13)
    xids = XidEvents(nvml)
    assert xids.last() == {0: 13}
    assert xids.last() == {0: 13}
    nvml.codes = [43]
    assert xids.last() == {0: 43}


def test_a_flood_of_events_does_not_hold_a_reading_up() -> None:
    nvml = Events(*[31] * 250)
    assert XidEvents(nvml).last() == {0: 31}
    assert nvml.codes, "the rest waits for the next reading"
