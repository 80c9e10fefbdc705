"""DCGM's health watches on injected values, and the series that dcgm-exporter makes of them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gameday_rehearsal.nodes.dcgm_health import FAILURE, WARNING, WATCHES, HealthWatch, Incident
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import GPU_HEALTH
from tests.rehearsal.nodes.conftest import Rack
from tests.rehearsal.nodes.scrapes import exposed, samples

CELL = (0, 1)
CASES = [
    (84, 0, "INFOROM", WARNING, "CORRUPT_INFOROM"),
    (170, 2, "NVLINK", WARNING, "FABRIC_PROBE_STATE"),
    (170, 4, "NVLINK", FAILURE, "FABRIC_PROBE_STATE"),
    (174, 410, "NVLINK", FAILURE, "FIELD_VIOLATION"),
    (174, 0x2AA, "NVLINK", FAILURE, "FIELD_VIOLATION"),
    (202, 32, "PCIE", WARNING, "PCI_REPLAY_RATE"),
    (230, 31, "MEM", WARNING, "XID_ERROR"),
    (230, 64, "MEM", FAILURE, "ROW_REMAP_FAILURE"),
    (230, 79, "ALL", FAILURE, "FALLEN_OFF_BUS"),
    (240, 99_999, "POWER", WARNING, "CLOCK_THROTTLE_POWER"),
    (241, 99_999, "THERMAL", WARNING, "CLOCK_THROTTLE_THERMAL"),
    (311, 1, "MEM", FAILURE, "VOLATILE_DBE_DETECTED"),
    (391, 63, "MEM", FAILURE, "RETIRED_PAGES_LIMIT"),
    (392, 1, "MEM", WARNING, "PENDING_PAGE_RETIREMENTS"),
    (393, 512, "MEM", WARNING, "UNCORRECTABLE_ROW_REMAP_LIMIT"),
    (395, 1, "MEM", FAILURE, "ROW_REMAP_FAILURE"),
    (409, 1, "NVLINK", WARNING, "NVLINK_ERROR_THRESHOLD"),
    (419, 6000, "NVLINK", FAILURE, "NVLINK_CRC_ERROR_THRESHOLD"),
    (439, 1, "NVLINK", FAILURE, "NVLINK_ERROR_CRITICAL"),
    (1215, 0x112, "NVLINK", FAILURE, "NVLINK_SYMBOL_BER_THRESHOLD"),
    (1217, 0, "NVLINK", FAILURE, "NVLINK_EFFECTIVE_BER_THRESHOLD"),
    (1217, 0x20C, "NVLINK", FAILURE, "NVLINK_EFFECTIVE_BER_THRESHOLD"),
    (497, 1, "NVLINK", FAILURE, "NVLINK_ERROR_CRITICAL"),
    (1507, 1, "MEM", FAILURE, "FAULTY_MEMORY"),
    (1523, 2, "DRIVER", FAILURE, "GPU_RECOVERY_REBOOT"),
    (1523, 3, "DRIVER", WARNING, "GPU_RECOVERY_DRAIN_P2P"),
]
HARMLESS = [
    (1215, 0),
    (1215, 0xFFF),
    (1217, 0xFFF),
    (1217, 0x10C),
    (174, 426),
    (202, 31),
    (230, 13),
    (230, 93),
    (390, 62),
    (393, 511),
    (396, 1),
    (170, 0),
    (1523, 0),
]


@pytest.fixture
def health(rack: Rack) -> HealthWatch:
    watch = HealthWatch(rack.cache)
    assert not any(watch.check().values()), "all pass"
    return watch


def wrong(health: HealthWatch) -> dict[str, Incident]:
    """The incidents of GPU 1 of node a by watch; no other GPU has any."""
    found = health.check()
    assert {cell for incidents in found.values() for cell in incidents} <= {CELL}
    return {watch: incidents[CELL] for watch, incidents in found.items() if incidents}


@pytest.mark.parametrize(("field", "value", "watch", "result", "code"), CASES)
def test_a_value_is_an_incident_of_its_watch(
    rack: Rack, health: HealthWatch, field: int, value: float, watch: str, result: int, code: str
) -> None:
    rack.cache.inject(CELL, field, value)
    assert wrong(health) == {watch: Incident(result, f"DCGM_FR_{code}")}


@pytest.mark.parametrize(("field", "value"), HARMLESS)
def test_a_value_within_its_limits_passes(rack: Rack, health: HealthWatch, field: int, value: float) -> None:
    rack.cache.inject(CELL, field, value)
    assert wrong(health) == {}


def test_a_counter_is_wrong_while_it_changed_within_a_minute(rack: Rack, health: HealthWatch) -> None:
    """Also when it falls, which DCGM takes for a rise: a minute after the value is out it passes again."""
    for _ in range(3):
        rack.cache.inject(CELL, 439, 1)
        rack.clock.pass_by(1)
        assert wrong(health)["NVLINK"].result == FAILURE
    rack.clock.pass_by(5)
    assert wrong(health) == {}, "the oldest sample is from before the error"
    rack.fleet.nvlink_recovery[CELL] = 1
    rack.fleet.nvlink_recovery[CELL] = 0
    rack.fleet.pcie_replays[CELL] = 100
    assert wrong(health)["PCIE"].result == WARNING
    for _ in range(8):
        rack.clock.pass_by(10)
        found = wrong(health)
    assert found == {}, "100 replays, and none within the last minute"


def test_an_xid_is_remembered_until_the_host_engine_restarts(rack: Rack, health: HealthWatch) -> None:
    rack.machines[0].record_xid(1, 64, "text")
    rack.machines[0].record_xid(1, 13, "text")
    rack.clock.pass_by(3600)
    assert wrong(health)["MEM"] == Incident(FAILURE, "DCGM_FR_ROW_REMAP_FAILURE")
    rack.cache.restart(0)
    assert wrong(health) == {}


def test_a_restarted_host_engine_has_no_minute_to_look_back_on(rack: Rack, health: HealthWatch) -> None:
    rack.fleet.pcie_replays[CELL] = 100
    assert "PCIE" in wrong(health)
    rack.cache.restart(0)
    assert wrong(health) == {}


def test_a_real_fault_of_the_model_shows(rack: Rack, health: HealthWatch) -> None:
    rack.machines[0].double_bit_error(1)
    found = wrong(health)
    assert found["MEM"] == Incident(FAILURE, "DCGM_FR_VOLATILE_DBE_DETECTED")
    assert found["ALL"] == Incident(FAILURE, "DCGM_FR_XID_ERROR"), "Xid 48"
    rack.machines[0].fleet.nvlinks[CELL] -= 1
    assert wrong(health)["NVLINK"] == Incident(FAILURE, "DCGM_FR_NVLINK_DOWN")


def series(rack: Rack, release: ExporterRelease, gpu: str = "1") -> dict[str, tuple[float, str]]:
    """Value and error by watch, of a GPU of node a."""
    text = b"".join(exposed(rack, release).render(["a"], [GPU_HEALTH])).decode()
    (family,) = text_string_to_metric_families(text)
    assert (family.name, family.type) == (GPU_HEALTH, "counter")
    of_gpu = [sample for sample in family.samples if sample.labels["gpu"] == gpu]
    shown = {one.labels["health_watch"]: (one.value, one.labels["health_error_code"]) for one in of_gpu}
    assert len(shown) == len(of_gpu)
    return shown


@pytest.mark.parametrize("release", list(ExporterRelease)[1:])
def test_each_watch_is_a_series_of_every_gpu(rack: Rack, release: ExporterRelease) -> None:
    rack.machines[0].record_xid(1, 79, "text")
    passed = dict.fromkeys(WATCHES, (0, "DCGM_FR_OK"))
    whole = {"ALL"} if release.shows_whole_gpus_health else set()
    assert series(rack, release) == {**passed, **dict.fromkeys(whole, (20, "DCGM_FR_FALLEN_OFF_BUS"))}
    assert series(rack, release, "0") == {**passed, **dict.fromkeys(whole, (0, "DCGM_FR_OK"))}
    rack.machines[0].lose_gpu(1)
    assert set(series(rack, release).values()) == {(0, "DCGM_FR_OK")}, "DCGM asks about active GPUs only"


def test_a_pause_heals_every_gpu_until_it_ends(rack: Rack, health: HealthWatch) -> None:
    rack.machines[0].record_xid(1, 64, "text")
    rack.fleet.remap_failure[CELL] = True
    rack.cache.pause(0)
    assert wrong(health) == {}
    rack.cache.resume(0)
    assert wrong(health) == {"MEM": Incident(FAILURE, "DCGM_FR_ROW_REMAP_FAILURE")}


def test_an_xid_that_only_the_kernel_log_has_never_reaches_health(rack: Rack, health: HealthWatch) -> None:
    machine = rack.machines[0]
    machine.log.write(f"<3>NVRM: Xid (PCI:{machine.gpus[1].pci}): 79, pid=1, name=a, GPU has fallen off the bus.\n")
    assert rack.cache.latest(CELL, 230) == 79
    assert rack.cache.xid_counts(CELL) == {79: 1}
    assert wrong(health) == {}


def test_a_119_blanks_the_xid_within_a_second_and_only_the_power_warns(rack: Rack, health: HealthWatch) -> None:
    exposition = exposed(rack, ExporterRelease.LOWER_CASE)
    rack.machines[0].record_xid(1, 119, "Timeout after 6s of waiting for RPC response from GPU1 GSP!")
    gauge = samples(exposition, "DCGM_FI_DEV_XID_ERRORS")
    assert list(gauge.values()) == [119]
    assert "DRIVER_VERSION" not in next(iter(gauge))
    rack.clock.pass_by(1.1)
    assert samples(exposition, "DCGM_FI_DEV_XID_ERRORS") == {}
    rack.machines[0].record_xid(1, 95, "no event comes any more")
    found = health.check()
    assert found["POWER"] == {(0, gpu): Incident(WARNING, "DCGM_FR_POWER_UNREADABLE") for gpu in range(4)}
    assert not any(found[watch] for watch in found if watch != "POWER")


def test_an_xid_before_somebody_watched_health_never_counts(rack: Rack, health: HealthWatch) -> None:
    machine = rack.machines[0]
    machine.set_unit("nvidia-dcgm-exporter", active=False)
    machine.record_xid(1, 95, "text")
    machine.set_unit("nvidia-dcgm-exporter", active=True)
    assert wrong(health) == {}
    machine.record_xid(1, 95, "text")
    assert wrong(health) == {"ALL": Incident(FAILURE, "DCGM_FR_UNCONTAINED_ERROR")}


def test_an_error_that_the_exporter_has_no_name_for(rack: Rack) -> None:
    rack.cache.inject(CELL, 393, 512)
    rack.cache.inject(CELL, 1523, 1)
    old, new = series(rack, ExporterRelease.CODED), series(rack, ExporterRelease.LOWER_CASE)
    assert (old["MEM"], old["DRIVER"]) == ((10, ""), (20, ""))
    assert (new["MEM"], new["DRIVER"]) == ((10, "DCGM_FR_UNKNOWN(132)"), (20, "DCGM_FR_GPU_RECOVERY_RESET"))
    rack.cache.inject(CELL, 230, 94)
    assert series(rack, ExporterRelease.LOWER_CASE)["ALL"] == (10, "DCGM_FR_ERROR_SENTINEL"), "it has the number 131"


def test_a_node_whose_host_engine_is_stopped_has_none(rack: Rack) -> None:
    rack.machines[0].set_unit("nvidia-dcgm", active=False)
    assert not b"".join(exposed(rack, ExporterRelease.CODED).render(["a"], [GPU_HEALTH]))
