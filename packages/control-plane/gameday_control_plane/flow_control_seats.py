"""The arithmetic of API Priority and Fairness: where a request goes, and how many of them run at once.

Everything is computed as in the API server (docs/sources.md, API Priority and Fairness), for one server: each server of
a cluster has its own seats, so three servers run three times as many requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

CATCH_ALL = "catch-all"
"""The flow schema, and its level, of requests that no other schema matches; every server has both."""

_SERVICE_ACCOUNT = "system:serviceaccount"
_WIDEST_SHARE = 0.15  # of a level's seats that one request may take (priorityLevelMaxSeatsPercent)


class _FromApi(BaseModel):
    """A part of an object as the API server sends it; unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


def _or_empty(value: object) -> object:
    """Read null, which Go writes for an empty list, as an empty list."""
    return () if value is None else value


_Texts = Annotated[tuple[str, ...], BeforeValidator(_or_empty)]


class _Named(_FromApi):
    name: str
    namespace: str = ""


class Subject(_FromApi):
    """A user, a group or a service account that a rule applies to."""

    kind: str
    user: _Named | None = None
    group: _Named | None = None
    service_account: _Named | None = None

    def matches(self, account: Account) -> bool:
        """Return True if the subject includes the account; `*` means everybody of the kind."""
        if self.kind == "User":
            return self.user is not None and self.user.name in ("*", account.user)
        if self.kind == "Group":
            return self.group is not None and (self.group.name == "*" or self.group.name in account.groups)
        if self.kind != "ServiceAccount" or self.service_account is None:
            return False
        of_namespace = f"{_SERVICE_ACCOUNT}:{self.service_account.namespace}:"
        name = account.user.removeprefix(of_namespace)
        return account.user.startswith(of_namespace) and self.service_account.name in ("*", name)


class ResourceRule(_FromApi):
    """Requests for resources: each part must match, and `*` alone matches everything."""

    verbs: _Texts = ()
    api_groups: _Texts = ()
    resources: _Texts = ()
    namespaces: _Texts = ()
    cluster_scope: bool = False
    """True if it matches requests without a namespace, such as a LIST of all namespaces."""

    def matches(self, request: Request) -> bool:
        """Return True if the rule matches the request."""
        return (
            _holds(self.verbs, request.verb)
            and _holds(self.resources, request.resource)
            and _holds(self.api_groups, request.group)
            and (_holds(self.namespaces, request.namespace) if request.namespace else self.cluster_scope)
        )


class PolicyRule(_FromApi):
    """Subjects, and the requests of theirs that the rule matches."""

    subjects: Annotated[tuple[Subject, ...], BeforeValidator(_or_empty)] = ()
    resource_rules: Annotated[tuple[ResourceRule, ...], BeforeValidator(_or_empty)] = ()

    def matches(self, account: Account, request: Request) -> bool:
        """Return True if the rule matches this account's request."""
        by_account = any(subject.matches(account) for subject in self.subjects)
        return by_account and any(rule.matches(request) for rule in self.resource_rules)


class FlowSchema(_FromApi):
    """A FlowSchema: which requests go to which priority level."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    precedence: int = Field(1000, validation_alias=AliasPath("spec", "matchingPrecedence"))
    """The schemas are tried in this order, the lowest first; the name decides between equal ones."""
    level: str = Field(validation_alias=AliasPath("spec", "priorityLevelConfiguration", "name"))
    rules: Annotated[tuple[PolicyRule, ...], BeforeValidator(_or_empty)] = Field(
        (), validation_alias=AliasPath("spec", "rules")
    )


class _Queuing(_FromApi):
    hand_size: int = 8


class _LimitResponse(_FromApi):
    type: str
    queuing: _Queuing | None = None


class _Concurrency(_FromApi):
    nominal_concurrency_shares: int | None = None
    lendable_percent: int = 0
    borrowing_limit_percent: int | None = None
    limit_response: _LimitResponse | None = None


class PriorityLevel(_FromApi):
    """A PriorityLevelConfiguration: its share of a server's seats, and what happens to requests that find none."""

    name: str = Field(validation_alias=AliasPath("metadata", "name"))
    limited: _Concurrency | None = Field(None, validation_alias=AliasPath("spec", "limited"))
    exempt: _Concurrency | None = Field(None, validation_alias=AliasPath("spec", "exempt"))

    @property
    def is_exempt(self) -> bool:
        """True if its requests never wait; its shares only say what others may borrow."""
        return self.limited is None

    @property
    def shares(self) -> int:
        """Its nominalConcurrencyShares; the server's default is 30 for a limited level and 0 for an exempt one."""
        stated = (self.limited or self.exempt or _Concurrency()).nominal_concurrency_shares
        return stated if stated is not None else (0 if self.is_exempt else 30)

    @property
    def borrows(self) -> bool:
        """True if it may use more than its nominal seats: without a borrowingLimitPercent there is no limit."""
        return self.limited is not None and self.limited.borrowing_limit_percent != 0

    @property
    def lends(self) -> bool:
        """True if others may take its seats, so that its limit moves with their demand."""
        return self.limited is not None and self.limited.lendable_percent > 0

    @property
    def hand_size(self) -> int | None:
        """The number of queues of one flow; None for a level without queues, which rejects."""
        queuing = self.limited.limit_response.queuing if self.limited and self.limited.limit_response else None
        return queuing.hand_size if queuing else None


@dataclass(frozen=True)
class Account:
    """A user as the API server knows it after authentication."""

    user: str
    groups: frozenset[str]

    @classmethod
    def of_service_account(cls, namespace: str, name: str) -> Account:
        """Return a service account's user and the groups of its tokens."""
        groups = {f"{_SERVICE_ACCOUNT}s", f"{_SERVICE_ACCOUNT}s:{namespace}", "system:authenticated"}
        return cls(f"{_SERVICE_ACCOUNT}:{namespace}:{name}", frozenset(groups))


@dataclass(frozen=True)
class Request:
    """A request for resources, as flow schemas see it."""

    verb: str
    resource: str
    """The plural, with its subresource if there is one: `pods`, `pods/log`."""
    group: str = ""
    """The API group; empty: the core group."""
    namespace: str = ""
    """The namespace; empty: the whole cluster."""


@dataclass(frozen=True)
class Classification:
    """The first schema that matches a request, and the level that it leads to."""

    flow_schema: str
    level: str


def classify(
    schemas: Iterable[FlowSchema], levels: Iterable[PriorityLevel], account: Account, request: Request
) -> Classification:
    """Return the schema and the level of a request.

    Like the server, skip a schema without a level.
    """
    known = {level.name for level in levels}
    for schema in sorted(schemas, key=lambda one: (one.precedence, one.name)):
        if schema.level in known and any(rule.matches(account, request) for rule in schema.rules):
            return Classification(schema.name, schema.level)
    return Classification(CATCH_ALL, CATCH_ALL)


def share_sum(levels: Iterable[PriorityLevel]) -> int:
    """Return the sum of all levels' shares."""
    return sum(level.shares for level in levels)


def nominal_seats(total: int, shares: int, sum_of_shares: int) -> int:
    """Return the nominal seats of a level: its part of the server's seats, rounded up.

    Args:
        total: The server's seats: --max-requests-inflight and --max-mutating-requests-inflight together.
        shares: The level's shares.
        sum_of_shares: The shares of all levels, including this one; at least 1.
    """
    return -(-total * shares // sum_of_shares)


def widest_request(nominal: int, hand_size: int) -> int:
    """Return the most seats that one request of a level may take, at least 1, no matter what it would cost."""
    return max(1, min(math.ceil(nominal * _WIDEST_SHARE), nominal // hand_size))


def shares_for_exactly(seats: int, *, total: int, others: int) -> int | None:
    """Return the fewest shares that give a new level exactly this many nominal seats; None if no number does.

    Args:
        seats: Wanted nominal seats, at least 1.
        total: The server's seats.
        others: The sum of all other levels' shares, at least 1.
    """
    if total < seats:
        return None
    # ceil(total * s / (others + s)) > seats - 1, solved for the least whole s.
    shares = (seats - 1) * others // (total - seats + 1) + 1
    return shares if nominal_seats(total, shares, others + shares) == seats else None


def totals_for_exactly(seats: int, *, shares: int, sum_of_shares: int) -> range:
    """Return the sizes of a server, in seats, at which a level has exactly this many nominal seats; may be empty.

    Args:
        seats: Wanted nominal seats, at least 1.
        shares: The level's shares, at least 1.
        sum_of_shares: The shares of all levels, including this one.
    """
    return range((seats - 1) * sum_of_shares // shares + 1, seats * sum_of_shares // shares + 1)


def growth_for_exactly(seats: int, *, total: int, shares: int, sum_of_shares: int) -> int | None:
    """Return the fewest shares that other levels must gain for a level to have exactly this many nominal seats.

    Args:
        seats: Wanted nominal seats, at least 1.
        total: The server's seats.
        shares: The level's shares, at least 1.
        sum_of_shares: The shares of all levels today, including this one.

    Returns:
        0 if it has them today; None if it would have fewer in any case.
    """
    gained = max(0, -(-total * shares // seats) - sum_of_shares)
    return gained if nominal_seats(total, shares, sum_of_shares + gained) == seats else None


def totals_from(nominal: Mapping[str, int], levels: Sequence[PriorityLevel]) -> range:
    """Return the sizes of a server, in seats, that fit its levels' nominal seats; no API has the size itself.

    Args:
        nominal: Nominal seats by the level's name, as the server reports them.
        levels: All levels.

    Returns:
        An empty range if no size fits, because the levels have just been changed.
    """
    total = share_sum(levels)
    sizes = [
        totals_for_exactly(nominal[level.name], shares=level.shares, sum_of_shares=total)
        for level in levels
        if level.shares and level.name in nominal
    ]
    return range(max((one.start for one in sizes), default=0), min((one.stop for one in sizes), default=0))


@dataclass(frozen=True)
class ExactSeats:
    """The ways to give a new level of one share exactly this many nominal seats on this server."""

    seats: int
    today: int
    """Nominal seats of a new level of one share, with nothing else changed."""
    shares: int | None
    """Shares that give the seats with nothing else changed; None if no number does."""
    totals: range
    """Sizes of the server, in seats, at which one share gives them: a restart with other --max-*-inflight flags."""
    growth: int | None
    """Shares that another level must gain, so that one share gives them; None if that is impossible."""


def exact_seats(seats: int, *, total: int, levels: Sequence[PriorityLevel]) -> ExactSeats:
    """Return every way to exactly this many seats, with the existing levels."""
    others = share_sum(levels)
    return ExactSeats(
        seats=seats,
        today=nominal_seats(total, 1, others + 1),
        shares=shares_for_exactly(seats, total=total, others=others),
        totals=totals_for_exactly(seats, shares=1, sum_of_shares=others + 1),
        growth=growth_for_exactly(seats, total=total, shares=1, sum_of_shares=others + 1),
    )


def _holds(listed: Sequence[str], text: str) -> bool:
    """Return True if a rule's list names the text; `*` counts only alone."""
    return text in listed or tuple(listed) == ("*",)
