"""The cost of a load's own processes."""

from __future__ import annotations

from gameday_control_plane.api_clients.order import OwnCost, one_after_another


def test_memory_of_stages_is_that_of_the_largest_and_their_time_is_added() -> None:
    small, large = OwnCost(cpu_seconds=1.5, rss_bytes=100), OwnCost(cpu_seconds=2, rss_bytes=300)
    assert one_after_another([small, large, small]) == OwnCost(cpu_seconds=5, rss_bytes=300)
