from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gameday_rehearsal.nodes.dcgm import XID_WINDOW_S
from gameday_rehearsal.nodes.devices import GpuHolder
from gameday_rehearsal.nodes.exposition import Exposition
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
        "err_code": "0",
        "err_msg": "No Error",
    }
    assert "err_code" not in families["DCGM_FI_DEV_GPU_TEMP"].samples[1].labels
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


def xids(exposition: Exposition, name: str, label: str) -> dict[tuple[str, str, str | None], float]:
    """(node, gpu, the code's label) -> value, of the GPUs whose series is not that of no Xid."""
    return {
        (sample.labels["Hostname"], sample.labels["gpu"], sample.labels.get(label)): sample.value
        for sample in parse(exposition)[name].samples
        if sample.value
    }


def test_every_xid_is_a_series_of_its_own_with_a_constant_value(rack: Rack, exposition: Exposition) -> None:
    exposition.hold((0, 1), GpuHolder("u", "ml", "p", "train"))
    for code in (48, 63):
        rack.machines[0].record_xid(1, code, "text")
        assert xids(exposition, "DCGM_FI_DEV_XID_ERRORS", "err_code") == {("a", "1", str(code)): code}
    sample = next(one for one in parse(exposition)["DCGM_FI_DEV_XID_ERRORS"].samples if one.value)
    assert (sample.labels["err_msg"], sample.labels["pod"]) == ("GPU memory remapping event", "p")
    rack.cache.inject((1, 0), 230, 999)
    assert ("b", "0", "999") in xids(exposition, "DCGM_FI_DEV_XID_ERRORS", "err_code")


def test_the_exporter_counts_xids_within_its_window(rack: Rack, exposition: Exposition) -> None:
    before = parse(exposition)["DCGM_EXP_XID_ERRORS_COUNT"].samples
    assert [sample.value for sample in before] == [0] * 8
    assert before[0].labels["window_size_in_ms"] == "30000"
    assert "xid" not in before[0].labels
    rack.machines[0].record_xid(2, 48, "text")
    rack.machines[0].lose_gpu(3)
    for code in (95, 95, 0):
        rack.cache.inject((1, 0), 230, code)
    # Of a lost GPU DCGM 4.6 receives the 79 of the kernel log, and no event of NVML.
    counted = {("a", "2", "48"): 1, ("a", "3", "79"): 1, ("b", "0", "95"): 2, ("b", "0", "0"): 1}
    assert xids(exposition, "DCGM_EXP_XID_ERRORS_COUNT", "xid") == counted
    rack.clock.pass_by(XID_WINDOW_S + 1)
    assert xids(exposition, "DCGM_EXP_XID_ERRORS_COUNT", "xid") == {}
    assert len(parse(exposition)["DCGM_EXP_XID_ERRORS_COUNT"].samples) == 8


def test_a_host_engine_that_starts_anew_has_counted_nothing(rack: Rack, exposition: Exposition) -> None:
    rack.cache.inject((1, 0), 230, 95)
    rack.machines[0].record_xid(1, 48, "text")
    rack.cache.restart(1)
    assert xids(exposition, "DCGM_EXP_XID_ERRORS_COUNT", "xid") == {("a", "1", "48"): 1}


def test_an_exposition_narrowed_to_the_count_shows_nothing_else(exposition: Exposition) -> None:
    text = b"".join(exposition.render(["b"], ["DCGM_EXP_XID_ERRORS_COUNT"])).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 4
    assert all(line.startswith("DCGM_EXP_XID_ERRORS_COUNT{") and 'Hostname="b"' in line for line in lines)


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
