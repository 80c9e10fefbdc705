"""The arithmetic and the objects of a level with exactly so many seats, without a server."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gameday_control_plane.flow_control_objects import FlowControlKind, Shares, level_names, manifests, total_seats
from gameday_control_plane.flow_control_seats import nominal_seats
from gameday_control_plane.settings import FlowControl

STOCK = {
    "catch-all": 5,
    "system": 30,
    "node-high": 40,
    "leader-election": 10,
    "workload-high": 40,
    "workload-low": 100,
    "global-default": 20,
}
"""Shares of the limited levels that a server of 1.37 makes for itself."""


def test_the_stock_servers_seats_are_computed_from_its_levels() -> None:
    nominal = {level: nominal_seats(600, shares, 245) for level, shares in STOCK.items()}
    assert total_seats(nominal, STOCK) in range(600, 603)


@given(st.integers(50, 5000), st.lists(st.integers(1, 200), min_size=1, max_size=8))
def test_the_computed_seats_are_never_fewer_than_the_server_has(total: int, shares: list[int]) -> None:
    levels = {f"level-{number}": share for number, share in enumerate(shares)}
    nominal = {level: nominal_seats(total, share, sum(shares)) for level, share in levels.items()}
    assert total <= total_seats(nominal, levels) <= total + sum(shares) / max(shares) + 1


def test_seats_of_a_server_whose_levels_nobody_scraped_are_refused() -> None:
    with pytest.raises(ValueError, match="no priority level"):
        total_seats({}, STOCK)


def test_the_level_neither_lends_nor_borrows_and_comes_before_the_schema_that_needs_it() -> None:
    made = manifests(FlowControl(), Shares(own=1, spare=54), "run-1", "gameday")
    assert [kind for kind, _ in made] == [FlowControlKind.LEVEL, FlowControlKind.LEVEL, FlowControlKind.SCHEMA]
    level, spare, schema = (manifest for _, manifest in made)
    limited = level["spec"]["limited"]
    assert (limited["lendablePercent"], limited["borrowingLimitPercent"]) == (0, 0)
    assert spare["spec"]["limited"]["lendablePercent"] == 100
    assert schema["spec"]["priorityLevelConfiguration"]["name"] == level["metadata"]["name"]
    assert {manifest["metadata"]["labels"]["gameday.dev/run"] for _, manifest in made} == {"run-1"}
    rule = schema["spec"]["rules"][0]["resourceRules"][0]
    assert (rule["namespaces"], rule["clusterScope"]) == (["gameday-load"], False)


def test_requests_without_a_namespace_are_meant_where_all_namespaces_are() -> None:
    everywhere = FlowControl(namespaces=("*",))
    schema = manifests(everywhere, Shares(own=2, spare=0), "run-1", "gameday")[-1][1]
    assert schema["spec"]["rules"][0]["resourceRules"][0]["clusterScope"] is True


@pytest.mark.parametrize(
    ("spare", "names"), [(0, ("gameday-heavy-list",)), (7, ("gameday-heavy-list", "gameday-heavy-list-spare"))]
)
def test_a_spare_level_is_made_only_where_it_is_needed(spare: int, names: tuple[str, ...]) -> None:
    assert level_names(FlowControl(), Shares(own=1, spare=spare)) == names


def test_accounts_take_the_place_of_the_groups() -> None:
    wanted = FlowControl(accounts=("gameday-api-client", "gameday-api-canary"))
    (rule,) = manifests(wanted, Shares(own=2, spare=0), "run-1", "chaos")[-1][1]["spec"]["rules"]
    assert [(one["kind"], one["serviceAccount"]["namespace"]) for one in rule["subjects"]] == [
        ("ServiceAccount", "chaos"),
        ("ServiceAccount", "chaos"),
    ]
    with pytest.raises(ValidationError, match="leave out one of the two"):
        FlowControl(accounts=("a",), groups=("system:masters",))
