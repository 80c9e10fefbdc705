from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gameday.rehearsal.nodes.devices import GpuHolder
from gameday.rehearsal.nodes.exposition import Exposition
from tests.rehearsal.nodes.conftest import Rack


@pytest.fixture
def exposition(rack: Rack) -> Exposition:
    return Exposition(rack.cache, ["a", "b"], [machine.gpus for machine in rack.machines])


def series(exposition: Exposition, name: str) -> dict[tuple[str, str], float]:
    """(node, gpu) -> value."""
    return {
        (sample.labels["Hostname"], sample.labels["gpu"]): sample.value
        for family in parse(exposition).values()
        for sample in family.samples
        if sample.name == name
    }


def parse(exposition: Exposition):
    text = b"".join(exposition.render()).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_names_types_help_and_labels_are_dcgm_exporters(rack: Rack, exposition: Exposition) -> None:
    families = parse(exposition)
    xid = families["DCGM_FI_DEV_XID_ERRORS"]
    assert (xid.type, xid.documentation) == ("gauge", "Value of the last XID error encountered.")
    assert families["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"].type == "counter"
    assert len(xid.samples) == 8
    gpu = rack.machines[0].gpus[1]
    assert xid.samples[1].labels == {
        "gpu": "1",
        "UUID": gpu.uuid,
        "pci_bus_id": "00000000:43:00.0",
        "device": "nvidia1",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": "a",
        "DCGM_FI_DRIVER_VERSION": "550.163.01",
    }
    for needed in ("GPU_TEMP", "ROW_REMAP_PENDING", "ECC_DBE_VOL_TOTAL", "THERMAL_VIOLATION", "CLOCKS_EVENT_REASONS"):
        assert f"DCGM_FI_DEV_{needed}" in families, "a shipped alert rule reads it"


def test_a_pods_name_is_on_the_gpus_it_holds_and_only_while_it_does(exposition: Exposition) -> None:
    exposition.hold((1, 2), GpuHolder("u", "ml", 'p"1', "train"))
    labels = parse(exposition)["DCGM_FI_DEV_GPU_UTIL"].samples[6].labels
    assert (labels["Hostname"], labels["gpu"]) == ("b", "2")
    assert (labels["namespace"], labels["pod"], labels["container"]) == ("ml", 'p"1', "train")
    exposition.hold((1, 2), None)
    assert "pod" not in parse(exposition)["DCGM_FI_DEV_GPU_UTIL"].samples[6].labels


def test_a_node_that_is_off_has_no_series(rack: Rack, exposition: Exposition) -> None:
    rack.fleet.powered[0] = False
    assert {node for node, _ in series(exposition, "DCGM_FI_DEV_XID_ERRORS")} == {"b"}


def test_of_a_lost_gpu_only_the_xid_is_left(rack: Rack, exposition: Exposition) -> None:
    rack.machines[0].lose_gpu(3)
    assert ("a", "3") not in series(exposition, "DCGM_FI_DEV_GPU_TEMP")
    assert series(exposition, "DCGM_FI_DEV_XID_ERRORS")["a", "3"] == 79


def test_an_injection_shows_until_it_is_overwritten(rack: Rack, exposition: Exposition) -> None:
    rack.cache.inject((0, 0), 150, 95)
    assert series(exposition, "DCGM_FI_DEV_GPU_TEMP")["a", "0"] == 95
    assert series(exposition, "DCGM_FI_DEV_GPU_TEMP")["b", "0"] < 40
    assert rack.machines[0].samples()[0].temperature_c < 40
    rack.clock.pass_by(2.1)
    assert series(exposition, "DCGM_FI_DEV_GPU_TEMP")["a", "0"] < 40


def test_a_paused_node_repeats_its_last_values_and_a_stopped_exporter_blanks_one(
    rack: Rack, exposition: Exposition
) -> None:
    before = series(exposition, "DCGM_FI_DEV_GPU_TEMP")["a", "0"]
    rack.cache.pause(0)
    rack.fleet.set_burst_load((0, 0), 1.0)
    rack.fleet.set_burst_load((1, 0), 1.0)
    rack.clock.pass_by(60)
    temperatures = series(exposition, "DCGM_FI_DEV_GPU_TEMP")
    assert temperatures["a", "0"] == before
    assert temperatures["b", "0"] > before + 10
    rack.cache.resume(0)
    assert series(exposition, "DCGM_FI_DEV_GPU_TEMP")["a", "0"] > before + 10
    rack.machines[1].set_unit("nvidia-dcgm-exporter", active=False)
    assert {node for node, _ in series(exposition, "DCGM_FI_DEV_GPU_TEMP")} == {"a"}


def test_a_field_that_the_gpus_do_not_have_is_a_series_only_while_injected(rack: Rack, exposition: Exposition) -> None:
    assert series(exposition, "DCGM_FI_DEV_RETIRED_PENDING") == {}
    rack.cache.inject((0, 1), 392, 1)
    assert series(exposition, "DCGM_FI_DEV_RETIRED_PENDING") == {("a", "1"): 1}
    rack.clock.pass_by(2.1)
    assert series(exposition, "DCGM_FI_DEV_RETIRED_PENDING") == {}


def test_narrowed_to_a_node_and_a_metric(exposition: Exposition) -> None:
    text = b"".join(exposition.render(["b", "nobody"], ["DCGM_FI_DEV_GPU_TEMP"])).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 4
    assert all('Hostname="b"' in line and line.startswith("DCGM_FI_DEV_GPU_TEMP") for line in lines)
