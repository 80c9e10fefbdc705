"""API Priority and Fairness computed as the API server computes it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday_control_plane.flow_control_seats import (
    Account,
    Classification,
    FlowSchema,
    PriorityLevel,
    Request,
    classify,
    exact_seats,
    growth_for_exactly,
    nominal_seats,
    share_sum,
    shares_for_exactly,
    totals_for_exactly,
    totals_from,
    widest_request,
)
from tests.control_plane.flow_control import (
    STOCK_LEVELS,
    STOCK_SCHEMAS,
    group,
    level_object,
    rule,
    schema_object,
    service_account,
    user,
)

LISTER = Account.of_service_account("gameday", "gameday-api-client")
LIST_SECRETS = Request("list", "secrets")

SEATS = st.integers(1, 50)
SHARES = st.integers(1, 1_000)
TOTALS = st.integers(1, 10_000)


@pytest.mark.parametrize(
    ("level", "seats", "widest"),
    [
        # As a 1.37 server with the stock 400 + 200 in flight reported apiserver_flowcontrol_nominal_limit_seats.
        ("system", 74, 12),
        ("node-high", 98, 15),
        ("leader-election", 25, 4),
        ("workload-high", 98, 15),
        ("workload-low", 245, 37),
        ("global-default", 49, 8),
    ],
)
def test_a_stock_level_has_the_seats_that_a_stock_server_reports(level: str, seats: int, widest: int) -> None:
    (found,) = (one for one in STOCK_LEVELS if one.name == level)
    assert nominal_seats(600, found.shares, share_sum(STOCK_LEVELS)) == seats
    assert found.hand_size is not None
    assert widest_request(seats, found.hand_size) == widest


def test_exactly_two_on_a_stock_server_takes_another_size_or_a_greater_sum() -> None:
    found = exact_seats(2, total=600, levels=STOCK_LEVELS)
    assert found.today == 3
    assert found.shares is None
    assert (found.totals.start, found.totals.stop - 1) == (247, 492)
    assert found.growth == 54  # workload-low: 100 to 154


@given(total=TOTALS, shares=SHARES, others=SHARES)
def test_nominal_seats_are_what_the_server_computes_in_floating_point(total: int, shares: int, others: int) -> None:
    assert nominal_seats(total, shares, shares + others) == math.ceil(float(total) * shares / (shares + others))


@given(seats=SEATS, total=TOTALS, others=SHARES)
def test_the_shares_for_exactly_are_the_fewest_and_none_is_missed(seats: int, total: int, others: int) -> None:
    found = shares_for_exactly(seats, total=total, others=others)
    by_trying = (s for s in range(1, 2_000) if nominal_seats(total, s, others + s) >= seats)
    first = next(by_trying, None)
    if found is not None:
        assert nominal_seats(total, found, others + found) == seats
        assert first in {found, None}
    elif first is not None:
        assert nominal_seats(total, first, others + first) != seats


@given(seats=SEATS, shares=SHARES, others=SHARES, total=TOTALS)
def test_the_sizes_for_exactly_are_all_that_there_are(seats: int, shares: int, others: int, total: int) -> None:
    sizes = totals_for_exactly(seats, shares=shares, sum_of_shares=shares + others)
    assert (total in sizes) == (nominal_seats(total, shares, shares + others) == seats)


@given(seats=SEATS, shares=SHARES, others=SHARES, total=TOTALS, more=SHARES)
def test_the_growth_for_exactly_is_the_least(seats: int, shares: int, others: int, total: int, more: int) -> None:
    found = growth_for_exactly(seats, total=total, shares=shares, sum_of_shares=shares + others)
    if found is None:
        assert nominal_seats(total, shares, shares + others + more) != seats
    else:
        assert nominal_seats(total, shares, shares + others + found) == seats
        assert found == 0 or nominal_seats(total, shares, shares + others + found - 1) > seats


@given(total=st.integers(200, 3_000))
def test_a_servers_size_is_among_those_that_its_levels_tell(total: int) -> None:
    shares = share_sum(STOCK_LEVELS)
    nominal = {level.name: nominal_seats(total, level.shares, shares) for level in STOCK_LEVELS}
    sizes = totals_from(nominal, STOCK_LEVELS)
    assert total in sizes
    assert len(sizes) <= 3


def test_levels_that_were_just_changed_tell_no_size() -> None:
    assert not totals_from({"workload-low": 245, "system": 10}, STOCK_LEVELS)
    assert not totals_from({}, STOCK_LEVELS)


def test_a_server_smaller_than_the_seats_wanted_has_none_to_give() -> None:
    assert shares_for_exactly(2, total=1, others=245) is None


@pytest.mark.parametrize(
    ("account", "request_", "schema", "level"),
    [
        (LISTER, LIST_SECRETS, "service-accounts", "workload-low"),
        (
            Account.of_service_account("kube-system", "coredns"),
            LIST_SECRETS,
            "kube-system-service-accounts",
            "workload-high",
        ),
        (
            Account("alice", frozenset({"system:authenticated"})),
            LIST_SECRETS,
            "global-default",
            "global-default",
        ),
        (Account("root", frozenset({"system:masters", "system:authenticated"})), LIST_SECRETS, "exempt", "exempt"),
        (Account("stranger", frozenset()), LIST_SECRETS, "catch-all", "catch-all"),
        (
            Account("system:node:a", frozenset({"system:nodes", "system:authenticated"})),
            Request("update", "leases", "coordination.k8s.io", "kube-node-lease"),
            "system-node-high",
            "node-high",
        ),
        (
            # cluster scope: the schema's rule for leases has none
            Account("system:node:a", frozenset({"system:nodes", "system:authenticated"})),
            Request("list", "leases", "coordination.k8s.io"),
            "system-nodes",
            "system",
        ),
        (
            Account("system:node:a", frozenset({"system:nodes", "system:authenticated"})),
            Request("patch", "nodes/status"),
            "system-node-high",
            "node-high",
        ),
    ],
)
def test_a_stock_server_puts_a_request_where_its_first_schema_says(
    account: Account, request_: Request, schema: str, level: str
) -> None:
    assert classify(STOCK_SCHEMAS, STOCK_LEVELS, account, request_) == Classification(schema, level)


LIMIT_TWO = PriorityLevel.model_validate(level_object("two", 1, borrowingLimitPercent=0))


def two(subject: dict[str, object], policy: dict[str, object], precedence: int = 1000) -> FlowSchema:
    return FlowSchema.model_validate(schema_object("list-secrets", "two", precedence, [subject], policy))


@pytest.mark.parametrize(
    ("subject", "policy", "request_", "caught"),
    [
        (group("system:authenticated"), rule("list,watch", "secrets", ""), LIST_SECRETS, True),
        (group("*"), rule("list,watch", "secrets", ""), LIST_SECRETS, True),
        (user("*"), rule("list,watch", "secrets", ""), LIST_SECRETS, True),
        (user(LISTER.user), rule("list,watch", "secrets", ""), LIST_SECRETS, True),
        (service_account("gameday", "gameday-api-client"), rule("list", "secrets", ""), LIST_SECRETS, True),
        (service_account("gameday", "*"), rule("list", "secrets", ""), LIST_SECRETS, True),
        (service_account("game", "*"), rule("list", "secrets", ""), LIST_SECRETS, False),
        (service_account("gameday", "gameday-api"), rule("list", "secrets", ""), LIST_SECRETS, False),
        # An informer's first stream is a WATCH: the rule that misses it.
        (group("*"), rule("list", "secrets", ""), Request("watch", "secrets"), False),
        # A LIST of all namespaces names none.
        (group("*"), rule("list", "secrets", "", cluster=False), LIST_SECRETS, False),
        (group("*"), rule("list", "secrets", "", "a,b", cluster=False), Request("list", "secrets", "", "b"), True),
        (group("*"), rule("list", "secrets", "", "a,b"), Request("list", "secrets", "", "c"), False),
        (group("*"), rule("list", "secrets", "apps"), LIST_SECRETS, False),
        (group("*"), rule("get", "pods", ""), Request("get", "pods/log", "", "a"), False),
        # A star among others is a name like any other; the server refuses to store it.
        (group("*"), rule("list,*", "secrets", ""), Request("watch", "secrets"), False),
    ],
)
def test_a_rule_catches_what_all_of_its_parts_name(
    subject: dict[str, object], policy: dict[str, object], request_: Request, caught: bool
) -> None:
    found = classify((*STOCK_SCHEMAS, two(subject, policy)), (*STOCK_LEVELS, LIMIT_TWO), LISTER, request_)
    assert (found.level == "two") == caught


def test_a_schema_whose_level_is_missing_is_passed_over() -> None:
    found = classify((*STOCK_SCHEMAS, two(group("*"), rule())), STOCK_LEVELS, LISTER, LIST_SECRETS)
    assert found.level == "workload-low"


def test_of_two_schemas_of_one_precedence_the_name_decides() -> None:
    first = FlowSchema.model_validate(schema_object("a-list", "global-default", 1000, [group("*")], rule()))
    schemas = (*STOCK_SCHEMAS, two(group("*"), rule()), first)
    assert classify(schemas, (*STOCK_LEVELS, LIMIT_TWO), LISTER, LIST_SECRETS).flow_schema == "a-list"


def test_only_a_level_that_neither_borrows_nor_lends_has_a_fixed_limit() -> None:
    borrowing = PriorityLevel.model_validate(level_object("three", 1))
    lending = PriorityLevel.model_validate(level_object("four", 1, lendable=50, borrowingLimitPercent=0))
    assert (LIMIT_TWO.borrows, borrowing.borrows, lending.borrows) == (False, True, False)
    assert (LIMIT_TWO.lends, borrowing.lends, lending.lends) == (False, False, True)


def test_what_a_server_leaves_out_has_its_default() -> None:
    limited = PriorityLevel.model_validate({"metadata": {"name": "a"}, "spec": {"type": "Limited", "limited": {}}})
    exempt = PriorityLevel.model_validate({"metadata": {"name": "b"}, "spec": {"type": "Exempt"}})
    assert (limited.shares, exempt.shares) == (30, 0)
    assert (limited.is_exempt, exempt.is_exempt) == (False, True)
