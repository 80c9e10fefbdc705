"""Every metric that a rule reads exists somewhere, and the counters file makes dcgm-exporter export what they need."""

from __future__ import annotations

import csv
import re

import pytest

from gameday.observe.api_server_metrics import API_SERVER_METRICS, ETCD_METRICS, SCHEDULER_METRICS
from gameday_rehearsal.nodes.dcgm import FIELDS
from tests.alerts.dcgm_fields import EXPORTER_COUNTERS, FIELD_IDS, FORMER_NAMES
from tests.alerts.promql import metrics_of, own_metrics
from tests.alerts.shipped import ALL_RULES, COUNTERS, RECORDED

# kube-state-metrics: docs/metrics/cluster/node-metrics.md and workload/daemonset-metrics.md of its repository.
KUBE_STATE_METRICS = {
    "kube_daemonset_status_desired_number_scheduled",
    "kube_daemonset_status_number_ready",
    "kube_node_info",
    "kube_node_spec_taint",
    "kube_node_status_allocatable",
    "kube_node_status_capacity",
    "kube_node_status_condition",
}
# node_exporter, collectors that are on by default: infiniband, netclass, netdev, netstat.
NODE_EXPORTER = {
    "node_infiniband_excessive_buffer_overrun_errors_total",
    "node_infiniband_link_downed_total",
    "node_infiniband_link_error_recovery_total",
    "node_infiniband_local_link_integrity_errors_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_port_discards_transmitted_total",
    "node_infiniband_port_errors_received_total",
    "node_infiniband_state_id",
    "node_infiniband_symbol_error_total",
    "node_netstat_Tcp_OutSegs",
    "node_netstat_Tcp_RetransSegs",
    "node_network_carrier_down_changes_total",
    "node_network_receive_drop_total",
    "node_network_receive_errs_total",
    "node_network_receive_packets_total",
    "node_network_transmit_bytes_total",
    "node_network_transmit_drop_total",
    "node_network_transmit_errs_total",
    "node_network_transmit_packets_total",
    "node_network_up",
}
CONTROL_PLANE = {name for metric in (*API_SERVER_METRICS, *SCHEDULER_METRICS, *ETCD_METRICS) for name in metric.series}

READ = {name for rule in ALL_RULES for name in metrics_of(rule["expr"])}


def _lines(*, newer: bool = False) -> list[list[str]]:
    """The counters file's records as dcgm-exporter reads them; with `newer` also those that are commented out."""
    text = COUNTERS.read_text(encoding="utf-8")
    if newer:
        text = re.sub(r"^#(DCGM_)", r"\1", text, flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [[cell.strip(" ") for cell in record] for record in csv.reader(lines)]


NAMES = [record[0] for record in _lines(newer=True)]


def test_every_metric_read_is_exported_by_somebody() -> None:
    exporters = {*FORMER_NAMES, *own_metrics(), *KUBE_STATE_METRICS, *NODE_EXPORTER, *CONTROL_PLANE}
    exported = {*NAMES, *exporters, *RECORDED}
    assert READ - exported == set()


def test_every_metric_listed_is_read() -> None:
    assert {*KUBE_STATE_METRICS, *NODE_EXPORTER, *RECORDED} <= READ


def test_beyond_the_exporters_default_list_only_what_a_rule_reads() -> None:
    _, _, own = COUNTERS.read_text(encoding="utf-8").partition("# --- heat")
    added = set(re.findall(r"^#?(DCGM_\w+)", own, re.MULTILINE))
    assert added - READ == set()


@pytest.mark.parametrize("newer", [False, True], ids=["as shipped", "all switched on"])
def test_the_exporter_can_read_the_counters_file(newer: bool) -> None:
    records = _lines(newer=newer)
    assert {len(record) for record in records} == {3}, "a comma in a help text"
    assert {record[1] for record in records} <= {"gauge", "counter", "label"}
    assert len({record[0] for record in records}) == len(records)


@pytest.mark.parametrize("name", NAMES)
def test_every_counter_is_one_of_dcgms_fields_or_the_exporters_own(name: str) -> None:
    assert name in FIELD_IDS or name in EXPORTER_COUNTERS


def test_the_rehearsals_exporter_uses_the_same_ids() -> None:
    virtual = {field.name: field.id for field in FIELDS}
    assert {name: virtual[name] for name in virtual.keys() & FIELD_IDS} == {
        name: FIELD_IDS[name] for name in virtual.keys() & FIELD_IDS
    }


def test_names_that_older_exporters_do_not_know_are_switched_off() -> None:
    """They would not start: 4.5.3-4.8.2, the newest release looked at, has no GPU_RECOVERY_ACTION."""
    off = set(NAMES) - {record[0] for record in _lines()}
    assert off == {
        "DCGM_FI_DEV_FABRIC_HEALTH_MASK",
        "DCGM_FI_DEV_GPU_RECOVERY_ACTION",
        "DCGM_FI_DEV_MEMORY_UNREPAIRABLE_FLAG",
        "DCGM_FI_DEV_NVLINK_GET_STATE",
        "DCGM_FI_DEV_THRESHOLD_SRM",
    }
