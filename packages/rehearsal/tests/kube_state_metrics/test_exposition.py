"""The stand-in shows of nodes what the real kube-state-metrics (c92fe0c5, August 2026) showed of the same nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gameday_rehearsal.kube_state_metrics.exposition import NodeCollector

HERE = Path(__file__).parent
NODES: dict[str, Any] = {node["metadata"]["name"]: node for node in json.loads((HERE / "nodes.json").read_text())}


def text_of(nodes: dict[str, Any]) -> str:
    registry = CollectorRegistry()
    registry.register(NodeCollector(nodes))
    return generate_latest(registry).decode()


def facts(families: Iterable[Metric]) -> dict[str, tuple[str, str, set[tuple[Any, ...]]]]:
    """Return type, help and samples by the family's name."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {(frozenset(sample.labels.items()), sample.value) for sample in family.samples},
        )
        for family in families
    }


def test_the_same_names_types_labels_and_values_as_the_real_program() -> None:
    real = facts(text_string_to_metric_families((HERE / "kube-state-metrics.txt").read_text()))
    ours = facts(text_string_to_metric_families(text_of(NODES)))
    assert ours.keys() == real.keys()
    for name, family in real.items():
        assert ours[name] == family, name
        assert family[2], "the recorded nodes show nothing of this family"


def test_a_family_is_named_before_any_node_has_a_sample_of_it() -> None:
    assert "# TYPE kube_node_spec_taint gauge" in text_of({})


@pytest.mark.parametrize("part", ["spec", "status"])
def test_a_node_that_has_just_been_created_may_lack_its_parts(part: str) -> None:
    bare = {"metadata": {"name": "new"}, part: {}}
    assert 'kube_node_spec_unschedulable{node="new"} 0' in text_of({"new": bare})
