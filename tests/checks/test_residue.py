"""What of a node is no residue, though it is not as it was."""

from __future__ import annotations

from gameday.checks.node_diff import node_differences
from gameday.values.nodes import GFD_TIMESTAMP_LABEL
from tests.guard.observations import OPTED_IN, node


def test_a_new_start_of_gpu_feature_discovery_is_no_difference() -> None:
    before, after = (node("n", OPTED_IN | {GFD_TIMESTAMP_LABEL: started}) for started in ("1704067200", "1704069999"))
    assert node_differences(before, after) == []
    moved = node("n", OPTED_IN | {GFD_TIMESTAMP_LABEL: "1704069999", "team": "b"})
    assert [one.what for one in node_differences(before, moved)] == ["label team"]
