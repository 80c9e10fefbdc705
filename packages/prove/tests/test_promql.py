"""Selectors of an expression, and rules that cannot fire."""

from __future__ import annotations

import pytest
import yaml

from gameday.shipped import shipped
from gameday_prove.promql import selectors, why_never


@pytest.mark.parametrize(
    ("query", "metrics"),
    [
        ("up == 0", ["up"]),
        ('sum by (node) (rate(errors_total{job="a b}",x!~"y.*"}[5m])) > 0', ["errors_total"]),
        ("a / on(node) group_left(model) b unless c offset 5m", ["a", "b", "c"]),
        ('label_replace(max_over_time(broken[1s]) > 0, "node", "$1", "Hostname", "(.+)")', ["broken"]),
        ("job:rate:5m > 1e9", ["job:rate:5m"]),
        ("vector(1)", []),
        ('kube_node_status_condition{condition="It\\"s",status="true"} == 1', ["kube_node_status_condition"]),
        ("", []),
    ],
)
def test_the_series_an_expression_asks_for(query: str, metrics: list[str]) -> None:
    assert [one.metric for one in selectors(query)] == metrics


def test_matchers_are_those_of_their_selector() -> None:
    (one,) = selectors('kube_node_status_condition{condition=~"GPU.*|Xid",status!="false"}')
    assert one.accepts("condition", "GPUXidFault") and one.accepts("condition", "Xid")
    assert not one.accepts("condition", "Ready")
    assert one.accepts("status", "true") and not one.accepts("status", "false")
    assert one.accepts("node", "any")


def test_a_rule_about_series_that_nobody_exports_cannot_fire() -> None:
    assert "no series of lost" in why_never("lost > 0", {"lost": 0})


def test_a_rule_with_a_label_that_never_matches_cannot_fire() -> None:
    query = 'dcgm{cluster="old"} > 0'
    why = why_never(query, {'dcgm{cluster="old"}': 0, "dcgm": 8})
    assert why == 'dcgm has series, but none that fits dcgm{cluster="old"}'


@pytest.mark.parametrize(
    ("query", "series"),
    [
        ("a > 0", {"a": 1}),
        ("a > 0", {}),  # it was not asked
        ("a or b", {"a": 0, "b": 1}),
        ("a unless b", {"a": 1, "b": 0}),
        ("absent(a)", {"a": 0}),
        ('kube_node_spec_taint{key="x"} == 1', {"kube_node_spec_taint": 0, 'kube_node_spec_taint{key="x"}': 0}),
    ],
)
def test_a_rule_that_may_fire_is_never_called_dead(query: str, series: dict[str, int]) -> None:
    assert why_never(query, series) == ""


def test_every_rule_of_ours_asks_for_something() -> None:
    document = yaml.safe_load((shipped("deploy") / "alerts" / "gpu-faults.prometheusrule.yaml").read_text())
    rules = [rule for group in document["spec"]["groups"] for rule in group["rules"]]
    assert rules and all(selectors(rule["expr"]) for rule in rules)
