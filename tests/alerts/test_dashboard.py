"""The Grafana dashboard reads what we export, Prometheus parses it, and a Grafana without plugins can draw it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.promql import grouped_by, labels_of, metrics_of, own_metrics
from tests.alerts.shipped import GROUPS, ROOT, run_tool, write_yaml

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "node-health.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
VARIABLES = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
OWN = own_metrics()
# Prometheus' own series of alerts, and the labels that it or Grafana gives to all series.
ALERTS = {"ALERTS": {"alertname", "alertstate", "node"}}
TARGET_LABELS = {"instance"}
# Grafana's own panels, without a plugin to install: public/app/plugins/panel of its repository.
CORE_PANELS = {"stat", "state-timeline", "table", "timeseries"}


def _exprs() -> list[str]:
    return [target["expr"] for target in TARGETS]


def _filled_in(expression: str) -> str:
    """Return the expression as Grafana sends it."""
    return expression.replace("$__range", "6h").replace("$node", "gpu-node-1|gpu-node-2")


@pytest.mark.parametrize("expression", _exprs())
def test_every_panel_reads_metrics_that_we_export_by_labels_that_they_have(expression: str) -> None:
    known = {**OWN, **ALERTS}
    read = metrics_of(expression)
    assert read
    assert read <= known.keys()
    assert labels_of(expression) <= TARGET_LABELS.union(*(known[name] for name in read))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["expr"])
def test_legends_name_labels_that_the_expression_keeps(target: dict[str, Any]) -> None:
    assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= grouped_by(target["expr"])


def test_prometheus_parses_every_expression(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    record = [{"record": f"dashboard:{number}", "expr": _filled_in(expr)} for number, expr in enumerate(_exprs())]
    write_yaml(rules, {"groups": [{"name": "dashboard", "rules": record}]})
    checked = run_tool("promtool", "check", "rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(record)} rules found" in checked.stdout


def test_the_table_of_alerts_has_those_of_the_controller_and_of_the_repairer() -> None:
    (expression,) = (expression for expression in _exprs() if metrics_of(expression) == {"ALERTS"})
    (names,) = re.findall(r'alertname=~"([^"]+)"', expression)
    ours = [group for group in GROUPS if group["name"] in ("gpu-node-health", "node-repair")]
    assert names.split("|") == [rule["alert"] for group in ours for rule in group["rules"] if "alert" in rule]


def test_nodes_are_those_of_metrics_with_a_label_node() -> None:
    query = VARIABLES["node"]["query"]["query"]
    found = re.fullmatch(r'label_values\(\{__name__=~"([\w|]+)"\}, node\)', query)
    assert found
    assert [name for name in found[1].split("|") if "node" not in OWN.get(name, set())] == []


def test_the_only_data_source_is_a_prometheus_of_the_readers_choice() -> None:
    assert (VARIABLES["datasource"]["type"], VARIABLES["datasource"]["query"]) == ("datasource", "prometheus")
    used = [one["datasource"] for one in (*PANELS, *TARGETS, VARIABLES["node"])]
    assert [one for one in used if one != {"type": "prometheus", "uid": "${datasource}"}] == []


def test_a_grafana_without_plugins_imports_it() -> None:
    assert DASHBOARD["id"] is None, "the id is the Grafana's own; the uid is what stays"
    assert DASHBOARD["uid"] == "gameday-node-health"
    # As DashboardMigrator.ts of grafana/grafana had it at 01e3d94c; a newer Grafana migrates it, an older one has less.
    assert DASHBOARD["schemaVersion"] == 39
    assert {panel["type"] for panel in PANELS} <= CORE_PANELS
    assert [panel["id"] for panel in DASHBOARD["panels"] if "libraryPanel" in panel] == []
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
