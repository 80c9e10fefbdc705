"""The rehearsal's exporter exports what our counters file names: all of it, as it says, and nothing else."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from gameday_rehearsal.nodes.counters import counters_of, release_for
from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import GPU_HEALTH, watched_by
from tests.alerts.dcgm_fields import FIELD_IDS
from tests.alerts.shipped import ALL_RULES, COUNTERS, run_tool, write_yaml
from tests.rehearsal.nodes.conftest import Rack, new_rack
from tests.rehearsal.nodes.scrapes import SCRAPE_S, exposed, scraped

UNCODED, CODED, FROM_FIRST_XID, LOWER_CASE = ExporterRelease
SRAM, FABRIC, ACTION = (
    f"DCGM_FI_DEV_{name}" for name in ("THRESHOLD_SRM", "FABRIC_HEALTH_MASK", "GPU_RECOVERY_ACTION")
)
UNREPAIRABLE, LINK_STATE = "DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG", "DCGM_FI_DEV_NVLINK_GET_STATE"
NEWER = {
    UNCODED: set(),
    CODED: {SRAM, FABRIC},
    FROM_FIRST_XID: {SRAM, FABRIC, UNREPAIRABLE, LINK_STATE},
    LOWER_CASE: {SRAM, FABRIC, UNREPAIRABLE, LINK_STATE, ACTION},
}
"""The names that are switched off in the file, and on in a release's: what go-dcgm knows at each (its go.mod)."""
UNKNOWN_TO_3_3_5 = {
    GPU_HEALTH,
    *(f"DCGM_FI_DEV_{name}" for name in ("CLOCKS_EVENT_REASONS", "FABRIC_MANAGER_STATUS")),
    *(f"DCGM_FI_DEV_NVLINK_ERROR_DL_{name}" for name in ("CRC", "REPLAY", "RECOVERY")),
    "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
}
BLANK = {
    "DCGM_FI_DEV_MEM_MAX_OP_TEMP",
    "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_RETIRED_SBE",
    UNREPAIRABLE,
}
"""Names that an H100 lacks, or nobody looked at on one: no series, as from the real exporter, until injected."""
OF_NO_GPU = {"DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS", "DCGM_FI_DEV_NVSWITCH_NON_FATAL_ERRORS", LINK_STATE}
"""Fields of an NVSwitch and of a single link: the rehearsal has neither."""
LABEL = "DCGM_FI_DRIVER_VERSION"


def file_of(release: ExporterRelease) -> dict[str, tuple[str, str]]:
    """Type and help by name: the file's own lines, with the release's newer names switched on."""
    text = COUNTERS.read_text(encoding="utf-8")
    for name in NEWER[release]:
        text = re.sub(rf"^#{name},", f"{name},", text, flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    named = {name: (kind.strip(), help.strip()) for name, kind, help in csv.reader(lines)}
    return {name: line for name, line in named.items() if release is not UNCODED or name not in UNKNOWN_TO_3_3_5}


def families(rack: Rack, release: ExporterRelease) -> dict[str, tuple[str, str]]:
    """Type and help by name, of every metric that has a series."""
    text = b"".join(exposed(rack, release).render()).decode()
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    with_series = set(re.findall(r"^(\w+)\{", text, re.MULTILINE))
    assert with_series == helps.keys() == types.keys()
    assert len(re.findall(r"^# HELP", text, re.MULTILINE)) == len(helps), "a family is in one piece"
    return {name: (types[name], helps[name]) for name in with_series}


@pytest.mark.parametrize("release", ExporterRelease)
def test_a_healthy_gpu_shows_every_line_of_the_file_but_what_it_does_not_have(
    rack: Rack, release: ExporterRelease
) -> None:
    rack.machines[0].record_xid(1, 48, "text")
    said, shown = file_of(release), families(rack, release)
    assert shown.items() <= said.items()
    assert said.keys() - shown.keys() == said.keys() & {*BLANK, *OF_NO_GPU, LABEL}


@pytest.mark.parametrize("release", ExporterRelease)
def test_with_every_field_of_every_release_injected_it_is_the_files_and_no_other(
    rack: Rack, release: ExporterRelease
) -> None:
    for field in {*FIELD_IDS.values(), 153, 312, 319} - {FIELD_IDS[LABEL]}:
        rack.cache.inject((0, 1), field, 1)
    said, shown = file_of(release), families(rack, release)
    assert shown.items() <= said.items()
    assert said.keys() - shown.keys() == said.keys() & {*OF_NO_GPU, LABEL}


@pytest.mark.parametrize("release", ExporterRelease)
def test_the_file_is_read_as_its_comments_advise(release: ExporterRelease) -> None:
    assert {one.name: (one.kind, one.help) for one in counters_of(release)} == file_of(release)


def test_a_name_that_is_switched_off_without_a_release_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "counters.csv").write_text("#DCGM_FI_DEV_NEW, gauge, New.\n", encoding="utf-8")
    with pytest.raises(ValueError, match="DCGM_FI_DEV_NEW"):
        counters_of(CODED, tmp_path / "counters.csv")


def test_the_release_is_the_first_that_exports_what_a_plan_injects() -> None:
    assert release_for([]) is CODED
    assert release_for([FABRIC]) is CODED
    assert release_for([UNREPAIRABLE]) is FROM_FIRST_XID
    assert release_for([FABRIC, ACTION]) is LOWER_CASE
    assert release_for(["DCGM_FI_DEV_ECC_DBE_VOL_DEV"]) is CODED, "no file exports it"
    assert release_for(["DCGM_FI_DEV_ECC_DBE_VOL_DEV", ACTION]) is LOWER_CASE


def test_dcgm_samples_what_is_exported_and_what_the_health_watches_read() -> None:
    assert FIELD_IDS[ACTION] in watched_by(CODED), "for the health watch DRIVER"
    assert FIELD_IDS[ACTION] not in watched_by(UNCODED)
    assert 319 not in watched_by(LOWER_CASE)


def test_an_injected_value_that_nobody_samples_stays(rack: Rack) -> None:
    rack.cache._watched = watched_by(CODED)
    for field in (319, 310):
        rack.cache.inject((0, 1), field, 7)
    rack.clock.pass_by(60)
    assert (rack.cache.latest((0, 1), 319), rack.cache.latest((0, 1), 310)) == (7, 0)


ALERTS = {
    "GPUHealthCheckFailed": (GPU_HEALTH, 311, 1),
    "GPUNVLinkRecoveryErrors": ("DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY", 498, 1),
    "GPUNVLinkReplayErrors": ("DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY", 499, 1),
    "GPUPagesRetiredPending": ("DCGM_FI_DEV_RETIRED_PENDING", 392, 1),
    "GPUPCIeWidthReduced": ("DCGM_FI_DEV_PCIE_LINK_WIDTH", 238, 8),
    "GPUSRAMErrorsMany": (SRAM, 346, 1),
    "GPUMemoryUnrepairable": (UNREPAIRABLE, 1507, 1),
    "GPUFabricUnhealthy": (FABRIC, 174, 410),
    "GPURecoveryActionNeeded": (ACTION, 1523, 1),
}
"""A rule, and what it reads and sees of an injected value."""
BESIDE = ("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH",)


def of_release(release: ExporterRelease, *alerts: str) -> dict[str, Any]:
    """Return promtool's test: each alert's value is injected into a GPU of its own from scrape 8 on.

    An alert fires of that GPU where its metric is exported, and of no other.
    """
    rack, gpus = new_rack(), {alert: divmod(n, 4) for n, alert in enumerate(alerts)}

    def happens(scrape: int) -> None:
        if scrape >= 8:
            for alert, at in gpus.items():
                rack.cache.inject(at, *ALERTS[alert][1:])

    expected, exported = [], file_of(release)
    for alert, (node, gpu) in gpus.items():
        firing = f'count by (node, gpu) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
        labels = f'{{gpu="{gpu}", node="{"ab"[node]}"}}'
        fired = [{"labels": labels, "value": 1}] if ALERTS[alert][0] in exported else []
        expected += [
            {"expr": firing, "eval_time": "1m45s", "exp_samples": []},
            {"expr": firing, "eval_time": "3m30s", "exp_samples": fired},
        ]
    metrics = (*(ALERTS[alert][0] for alert in alerts), *BESIDE)
    return {
        "interval": f"{SCRAPE_S}s",
        "input_series": scraped(rack, release, metrics, 20, happens),
        "promql_expr_test": expected,
    }


@pytest.mark.parametrize("release", ExporterRelease)
def test_a_rule_fires_from_the_exposition_where_the_release_has_its_metric(
    release: ExporterRelease, tmp_path: Path
) -> None:
    """All alerts in one run of promtool, whose start takes longer than the tests in it."""
    rules = [rule for rule in ALL_RULES if "record" in rule or rule["alert"] in ALERTS]
    write_yaml(tmp_path / "rules.yaml", {"groups": [{"name": "rules", "rules": rules}]})
    # DCGM's health watches see the values of the others, too: their alert is alone.
    first, *others = ALERTS
    tests = [of_release(release, first), of_release(release, *others)]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{SCRAPE_S}s", "tests": tests}
    write_yaml(tmp_path / "test.yaml", content)
    done = run_tool("promtool", "test", "rules", tmp_path / "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
