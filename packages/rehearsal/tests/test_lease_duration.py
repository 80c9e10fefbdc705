"""The nodes' Leases in clusters of different sizes, and what the control plane is told of them."""

from __future__ import annotations

import pytest

from gameday.plan.rehearsal import LabComponent
from gameday_rehearsal.lab.settings import STOCK, LabSettings
from gameday_rehearsal.lease_duration import RENEWALS, lease_duration_s, monitor_grace_s

MANAGER = LabComponent.CONTROLLER_MANAGER


@pytest.mark.parametrize(("nodes", "seconds"), [(1, 40), (1000, 40), (1001, 41), (5000, 200)])
def test_no_more_than_a_hundred_leases_are_renewed_a_second(nodes: int, seconds: int) -> None:
    assert lease_duration_s(nodes) == seconds
    assert nodes * RENEWALS / lease_duration_s(nodes) <= 100
    assert monitor_grace_s(nodes) == seconds + 10


def test_a_lab_of_a_thousand_nodes_is_stock() -> None:
    assert STOCK.for_nodes(1000) is STOCK


def test_the_controller_manager_of_a_large_lab_waits_for_the_longer_leases() -> None:
    settings = STOCK.for_nodes(5000)
    flags = settings.of(MANAGER).flags
    assert flags["node-monitor-grace-period"] == "210s"
    assert int(flags["kube-api-qps"]) >= 3 * 5000 / 120, "two or three requests a node, all within two minutes"


def test_what_a_plan_asks_of_a_large_lab_stays() -> None:
    asked = LabSettings(flags={MANAGER: {"node-monitor-grace-period": "16s", "v": "2"}}, controller_manager_qps=20)
    flags = asked.for_nodes(5000).of(MANAGER).flags
    assert flags == {"node-monitor-grace-period": "16s", "v": "2", "kube-api-qps": "20", "kube-api-burst": "40"}
