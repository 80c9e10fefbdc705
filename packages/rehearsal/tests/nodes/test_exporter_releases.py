"""Each dcgm-exporter release's series of an Xid, and the alerts that our rules and the usual one make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import XID_COUNT
from tests.alerts.shipped import BY_NAME, GROUPS, run_tool, write_yaml
from tests.rehearsal.nodes.conftest import Rack, new_rack
from tests.rehearsal.nodes.scrapes import SCRAPE_S, exposed, samples, scraped

GAUGE = "DCGM_FI_DEV_XID_ERRORS"
BEFORE, AFTER = 40, 8
"""Scrapes before the Xid, and from it on."""
USUAL = f"count(increase({GAUGE}[5m]) > 0 or changes({GAUGE}[5m]) > 0)"
"""The rule that public collections of alerts have, counted so that its value is a whole number."""
USUAL_OF_COUNT = f"count(increase({XID_COUNT}[5m]) > 0)"


def fall_off(rack: Rack, release: ExporterRelease, *metrics: str) -> list[dict[str, str]]:
    """Ten minutes of scrapes, an Xid 79 of GPU 3 of node a, and two minutes more: as promtool's input."""

    def happens(scrape: int) -> None:
        if scrape == BEFORE:
            rack.machines[0].record_xid(3, 79, "GPU has fallen off the bus.")

    return scraped(rack, release, metrics, BEFORE + AFTER, happens)


def fallen_off(rack: Rack, release: ExporterRelease) -> dict[str, Any]:
    gpu = rack.machines[0].gpus[3]
    alert = BY_NAME["GPUXidHardware"]["annotations"]
    labels = {release.node_label: "a", "gpu": "3", "UUID": gpu.uuid, "pci_bus_id": gpu.bus_id, "code": "79"}
    labels |= {"node": "a", "severity": "critical", "modelName": "NVIDIA H100 80GB HBM3"}
    said = {key: text.replace("{{ $externalURL }}", "") for key, text in alert.items()}  # promtool has none
    said = {
        key: text.replace("{{ or $labels.node $labels.hostname $labels.Hostname }}", "a") for key, text in said.items()
    }
    for name in ("code", "gpu", "UUID"):
        said = {key: text.replace(f"{{{{ $labels.{name} }}}}", labels.get(name, "")) for key, text in said.items()}
    return {"exp_labels": labels, "exp_annotations": said}


def of_release(rack: Rack, release: ExporterRelease, *metrics: str) -> dict[str, Any]:
    """The test of one release: our rule fires once, and the usual one only where a series changes its value."""
    rises = [{"labels": "{}", "value": 1}] if release is ExporterRelease.UNCODED else []
    return {
        "name": f"{release} {metrics}",
        "interval": f"{SCRAPE_S}s",
        "input_series": fall_off(rack, release, *metrics),
        "promql_expr_test": [
            {"expr": USUAL, "eval_time": "11m", "exp_samples": rises},
            {"expr": USUAL_OF_COUNT, "eval_time": "11m", "exp_samples": []},
        ],
        "alert_rule_test": [
            {"eval_time": "9m45s", "alertname": "GPUXidHardware", "exp_alerts": []},
            {"eval_time": "11m", "alertname": "GPUXidHardware", "exp_alerts": [fallen_off(rack, release)]},
        ],
    }


def test_our_rule_fires_with_every_release_and_the_usual_one_only_where_codes_share_a_series(tmp_path: Path) -> None:
    """In one run of promtool; with the gauge alone, and with the count."""
    (xid,) = (group for group in GROUPS if group["name"] == "gpu-xid")
    rules = [rule for rule in xid["rules"] if rule.get("alert", "GPUXidHardware") == "GPUXidHardware"]
    write_yaml(tmp_path / "rules.yaml", {"groups": [{**xid, "rules": rules}]})
    shown = [(GAUGE,), (GAUGE, XID_COUNT)]
    tests = [of_release(new_rack(), release, *metrics) for release in ExporterRelease for metrics in shown]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{SCRAPE_S}s", "tests": tests}
    write_yaml(tmp_path / "test.yaml", content)
    done = run_tool("promtool", "test", "rules", tmp_path / "test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release", ExporterRelease)
def test_a_release_differs_in_nothing_but_the_node_and_the_last_xid(rack: Rack, release: ExporterRelease) -> None:
    rack.machines[0].record_xid(1, 48, "text")
    usual = samples(exposed(rack, ExporterRelease.CODED), "DCGM_FI_DEV_GPU_TEMP", XID_COUNT)
    shown = samples(exposed(rack, release), "DCGM_FI_DEV_GPU_TEMP", XID_COUNT)
    assert {series.replace("hostname=", "Hostname="): value for series, value in shown.items()} == usual
    gauge = samples(exposed(rack, release), GAUGE)
    assert len(gauge) == (8 if release.shows_no_xid else 1)
    assert all(("err_code=" in series) == release.codes_xids for series in gauge)
    assert [value for value in gauge.values() if value] == [48]


def test_a_release_that_shows_no_xid_has_not_even_the_metric_before_the_first(rack: Rack) -> None:
    text = b"".join(exposed(rack, ExporterRelease.FROM_FIRST_XID).render()).decode()
    assert GAUGE not in text
