"""The cost of pods in steps: quantiles, memory by step, writes by pod; nothing where it was not measured."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gameday.history.frames import SCHEMAS, Frames, conform
from gameday.observe.api_server_metrics import REQUESTS, RESIDENT_MEMORY, SCHEDULING_SECONDS
from gameday_control_plane.checks.pod_steps import load_cost, step_costs
from gameday_control_plane.events import PodStepsLogged
from gameday_control_plane.values.pod_steps import PodStep

START = datetime(2026, 11, 23, 12, tzinfo=UTC)
_SLI = f"{SCHEDULING_SECONDS.name}_bucket"


def step(number: int, begin_s: float, end_s: float, bound: int = 10) -> PodStep:
    return PodStep(
        step=number,
        created=10,
        bound=bound,
        took_s=2.0,
        p50_s=0.1,
        p99_s=0.2,
        began_at=START + timedelta(seconds=begin_s),
        until=START + timedelta(seconds=end_s),
    )


LOGGED = PodStepsLogged(node="client-1", steps=(step(1, 10, 20), step(2, 20, 30)), placed=None)


def scheduler_row(after_s: float, metric: str, value: float, server: str = "kube-scheduler", le: str = "") -> object:
    labels = "attempts=1" if le else ""
    time = START + timedelta(seconds=after_s)
    return {"time": time, "server": server, "metric": metric, "le": le, "labels": labels, "value": value}


def buckets(after_s: float, *counts: float, server: str = "kube-scheduler") -> list[object]:
    return [
        scheduler_row(after_s, _SLI, count, server, le)
        for le, count in zip(("0.1", "0.2", "+Inf"), counts, strict=True)
    ]


def request_row(after_s: float, value: float, **others: str) -> dict[str, object]:
    blank: dict[str, object] = dict.fromkeys(SCHEMAS["api_server"], "")
    named = {"metric": REQUESTS.name, "server": "kube-apiserver", "verb": "POST", "resource": "pods", "code": "201"}
    return blank | named | others | {"time": START + timedelta(seconds=after_s), "value": value}


def frames(scheduler: list[object] | None = None, api_server: list[dict[str, object]] | None = None) -> Frames:
    return Frames(
        scheduler=conform("scheduler", scheduler or []),  # type: ignore[arg-type]
        api_server=conform("api_server", api_server or []),  # type: ignore[arg-type]
    )


def test_a_quantile_counts_what_was_added_in_the_step_by_all_schedulers() -> None:
    rows = [*buckets(9, 50, 50, 50), *buckets(19, 54, 55, 55), *buckets(19, 0, 5, 5, server="kube-scheduler-topology")]
    (first, second) = step_costs(LOGGED, frames(rows))
    assert first.p50_s == pytest.approx(0.1 + 0.1 * 1 / 6)  # the fifth of ten: four up to 0.1 s, six up to 0.2
    assert second.p50_s is None
    cost = load_cost(LOGGED, frames(rows))
    assert cost is not None
    assert cost.p99_s == pytest.approx(0.2, rel=0.01)


def test_a_wait_above_the_last_bucket_is_at_least_that_bucket() -> None:
    assert step_costs(LOGGED, frames(buckets(12, 0, 0, 4)))[0].p99_s == 0.2


def test_the_memory_of_schedulers_is_their_sum_and_that_of_servers_the_most() -> None:
    scheduled = [
        scheduler_row(at, RESIDENT_MEMORY.name, value, name)
        for at, name, value in ((5, "a", 900), (12, "a", 100), (18, "a", 150), (18, "b", 50), (25, "a", 1))
    ]
    served = [request_row(15, value, metric=RESIDENT_MEMORY.name, server=str(value)) for value in (7, 9)]
    first, second = step_costs(LOGGED, frames(scheduled, served))
    assert (first.schedulers, first.api_server) == (200, 9)
    assert (second.schedulers, second.api_server) == (1, None)


def test_writes_are_those_of_pods_that_the_servers_carried_out() -> None:
    binding = "component=apiserver,scope=resource,subresource=binding,version=v1"
    rows = [
        request_row(9, 100),
        request_row(29, 120),
        request_row(29, 20, labels=binding),
        request_row(29, 40, verb="PUT", resource="noderesourcetopologies", code="200"),
        request_row(29, 40, code="409"),
        request_row(29, 40, resource="leases"),
        request_row(29, 80, verb="GET", resource="noderesourcetopologies", code="200"),
        request_row(29, 40, verb="LIST", code="200"),
    ]
    cost = load_cost(LOGGED, frames(api_server=rows))
    assert cost is not None
    assert cost.writes == {"pods": 1, "pods/binding": 1, "noderesourcetopologies": 2}
    assert cost.reads == {"noderesourcetopologies": 4}


def test_nothing_measured_is_nothing_and_not_0() -> None:
    cost = load_cost(LOGGED, frames())
    assert cost is not None
    assert (cost.bound, cost.p50_s, cost.writes) == (20, None, {})
    assert {(one.p99_s, one.schedulers, one.api_server) for one in step_costs(LOGGED, frames())} == {(None, None, None)}


def test_a_game_day_from_before_the_times_were_noted_has_no_cost() -> None:
    old = PodStepsLogged(node="n", steps=(step(1, 0, 1).model_copy(update={"began_at": None}),), placed=None)
    assert (step_costs(old, frames()), load_cost(old, frames())) == ([], None)
