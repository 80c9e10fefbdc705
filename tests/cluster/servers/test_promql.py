"""The series that an expression needs, as Prometheus prints expressions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.cluster.promql import AllOf, AnyOf, Need, Selector, needs


def fired(need: Need, *there: str) -> bool:
    """Return True if these selectors' series suffice."""
    if isinstance(need, Selector):
        return need.text in there
    every = (fired(part, *there) for part in need.parts)
    return all(every) if isinstance(need, AllOf) else any(every)


def selectors(need: Need) -> set[str]:
    return {need.text} if isinstance(need, Selector) else set().union(*map(selectors, need.parts))


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("x > 1", {"x"}),
        ('x{a="b"} == 0', {'x{a="b"}'}),
        ('{__name__=~"DCGM_.+"}', {'{__name__=~"DCGM_.+"}'}),
        ('rate(x{a="or) and {("}[5m] offset 1h) * 60 > 1e+06', {'x{a="or) and {("}'}),
        ('label_replace(x > 0, "node", "$1", "Hostname", "(.+)")', {"x"}),
        ("sum by (y, z) (x) / on (y) group_left (z) w", {"x", "w"}),
        ("sum(x) by (y)", {"x"}),
        ('count_values by (gpu) ("code", x > 0)', {"x"}),
        ("max_over_time((x - y)[1h:5m]) > bool -3", {"x", "y"}),
        ("x @ start() > Inf", {"x"}),
        ("-x ^ 2 atan2 y", {"x", "y"}),
        ("topk(5, job:x:rate5m)", {"job:x:rate5m"}),
        ("histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", {"x_bucket"}),
        ("time() - process_start_time_seconds", {"process_start_time_seconds"}),
        ("vector(1)", set()),
        ("", set()),
    ],
)
def test_every_selector_that_is_needed_is_found_and_nothing_else(expression: str, read: set[str]) -> None:
    need = needs(expression)
    assert selectors(need) == read
    assert fired(need, *read)
    assert not any(fired(need, *(read - {one})) for one in read)


@pytest.mark.parametrize(
    ("expression", "enough", "too_little"),
    [
        ("x > 0 or y > 0", [{"x"}, {"y"}], [set()]),
        ("x and y", [{"x", "y"}], [{"x"}, {"y"}]),
        ("x unless on (node) y", [{"x"}], [{"y"}]),
        ("x or y unless z and w", [{"x"}, {"y", "w"}], [{"y"}, {"z", "w"}]),
        ("(x or y) * on (a) z", [{"x", "z"}, {"y", "z"}], [{"x", "y"}, {"z"}]),
        ("absent(x) == 1", [set()], []),
        ("absent_over_time(x[5m]) and y", [{"y"}], [{"x"}]),
        ("sum(x) or vector(0)", [set()], []),
    ],
)
def test_or_unless_and_absent_are_known(expression: str, enough: list[set[str]], too_little: list[set[str]]) -> None:
    need = needs(expression)
    assert all(fired(need, *there) for there in enough)
    assert not any(fired(need, *there) for there in too_little)


def test_an_alternative_is_kept_apart() -> None:
    assert isinstance(needs("x or y"), AnyOf)


@given(st.text(alphabet="xyor an(){}[]\"'`,=~5m\\", max_size=60))
def test_a_text_that_no_server_prints_does_no_harm(expression: str) -> None:
    needs(expression)
