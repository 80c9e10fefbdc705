"""The repairer's metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from gameday_health.episodes.metrics import RepairMetrics

STATE = ("gameday_repair_episodes", "gameday_repair_allowed_nodes", "gameday_repair_hold_out_nodes")


def test_a_process_that_does_not_lead_shows_no_state_of_the_cluster() -> None:
    registry = CollectorRegistry()
    metrics = RepairMetrics(registry)
    metrics.episodes.labels("withheld").set(3)
    metrics.allowed.set(2)
    metrics.hold_out.labels("spare").set(1)
    metrics.show_nothing()
    samples = [sample for family in registry.collect() for sample in family.samples if sample.name in STATE]
    assert {sample.name for sample in samples} == set(STATE)
    assert {sample.value for sample in samples} == {0}
