"""The Grafana dashboards read what we export, Prometheus parses it, and a Grafana without plugins can draw them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gameday.checks.outcome import EXIT_CODES, RunOutcome
from gameday.report.openmetrics import openmetrics
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from tests.alerts.promql import grouped_by, labels_of, metrics_of, own_metrics, run_metrics
from tests.alerts.shipped import GROUPS, ROOT, run_tool, write_yaml
from tests.report.run_builder import VARIANTS, write

DASHBOARDS = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "deploy" / "grafana").glob("*.json")
}
each = pytest.mark.parametrize("name", sorted(DASHBOARDS))
OWN = own_metrics()
# Prometheus' own series of alerts, and the labels that it or Grafana gives to all series.
ALERTS = {"ALERTS": {"alertname", "alertstate", "node"}}
TARGET_LABELS = {"instance"}
# Grafana's own panels, without a plugin to install: public/app/plugins/panel of its repository.
CORE_PANELS = {"stat", "state-timeline", "table", "timeseries"}


def _panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARDS[name]["panels"] if panel["type"] != "row"]


def _targets(name: str) -> list[dict[str, Any]]:
    return [target for panel in _panels(name) for target in panel["targets"]]


def _exprs(name: str) -> list[str]:
    return [target["expr"] for target in _targets(name)]


def _variables(name: str) -> dict[str, Any]:
    return {variable["name"]: variable for variable in DASHBOARDS[name]["templating"]["list"]}


TARGETS = [target for name in sorted(DASHBOARDS) for target in _targets(name)]


@pytest.fixture(scope="module")
def run_exports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The output of `gameday export --openmetrics`, by the run's variant."""
    made = {}
    for variant, timed in VARIANTS.items():
        summary = summarise(load_run_folder(write(tmp_path_factory.mktemp(variant), timed())))
        assert summary is not None
        made[variant] = openmetrics([summary]).decode()
    return made


def _filled_in(expression: str) -> str:
    """Return the expression as Grafana sends it."""
    for variable, value in {"__range": "6h", "node": "gpu-node-1|gpu-node-2", "plan": ".*", "cluster": ".*"}.items():
        expression = expression.replace(f"${variable}", value)
    return expression


@pytest.mark.parametrize("expression", [target["expr"] for target in TARGETS])
def test_every_panel_reads_metrics_that_we_export_by_labels_that_they_have(
    expression: str, run_exports: dict[str, str]
) -> None:
    known = {**OWN, **ALERTS, **run_metrics(run_exports["passing"])}
    read = metrics_of(expression)
    assert read
    assert read <= known.keys()
    assert labels_of(expression) <= TARGET_LABELS.union(*(known[name] for name in read))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["expr"])
def test_legends_name_labels_that_the_expression_keeps(target: dict[str, Any]) -> None:
    assert set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) <= grouped_by(target["expr"])


@each
def test_prometheus_parses_every_expression(name: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    record = [{"record": f"dashboard:{number}", "expr": _filled_in(expr)} for number, expr in enumerate(_exprs(name))]
    write_yaml(rules, {"groups": [{"name": "dashboard", "rules": record}]})
    checked = run_tool("promtool", "check", "rules", rules)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(record)} rules found" in checked.stdout


def test_the_table_of_alerts_has_those_of_the_controller_and_of_the_repairer() -> None:
    (expression,) = (expression for expression in _exprs("node-health") if metrics_of(expression) == {"ALERTS"})
    (names,) = re.findall(r'alertname=~"([^"]+)"', expression)
    ours = [group for group in GROUPS if group["name"] in ("gpu-node-health", "node-repair")]
    assert names.split("|") == [rule["alert"] for group in ours for rule in group["rules"] if "alert" in rule]


def test_nodes_are_those_of_metrics_with_a_label_node() -> None:
    query = _variables("node-health")["node"]["query"]["query"]
    found = re.fullmatch(r'label_values\(\{__name__=~"([\w|]+)"\}, node\)', query)
    assert found
    assert [name for name in found[1].split("|") if "node" not in OWN.get(name, set())] == []


@each
def test_the_only_data_source_is_a_prometheus_of_the_readers_choice(name: str) -> None:
    variables = _variables(name)
    chosen = variables.pop("datasource")
    assert (chosen["type"], chosen["query"]) == ("datasource", "prometheus")
    assert variables
    used = [one["datasource"] for one in (*_panels(name), *_targets(name), *variables.values())]
    assert [one for one in used if one != {"type": "prometheus", "uid": "${datasource}"}] == []


@each
def test_a_grafana_without_plugins_imports_it(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["id"] is None, "the id is the Grafana's own; the uid is what stays"
    assert dashboard["uid"] == f"gameday-{name}"
    # As DashboardMigrator.ts of grafana/grafana had it at 01e3d94c; a newer Grafana migrates it, an older one has less.
    assert dashboard["schemaVersion"] == 39
    assert {panel["type"] for panel in _panels(name)} <= CORE_PANELS
    assert [panel["id"] for panel in dashboard["panels"] if "libraryPanel" in panel] == []
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


@each
def test_no_two_panels_lie_on_each_other(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def _said(panel: dict[str, Any]) -> dict[int, str]:
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    return {int(value): said["text"] for value, said in mapping["options"].items()}


def _titled(title: str) -> dict[str, Any]:
    return next(panel for panel in _panels("game-days") if panel["title"] == title)


def test_outcomes_are_numbered_as_exit_codes_are() -> None:
    assert _said(_titled("Outcome")) == {EXIT_CODES[outcome].value: outcome.value for outcome in RunOutcome}


def test_the_variables_of_the_game_days_are_labels_of_their_metrics(run_exports: dict[str, str]) -> None:
    known = run_metrics(run_exports["passing"])
    for name in ("plan", "cluster"):
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", _variables("game-days")[name]["query"]["query"])
        assert found
        assert found[2] == name
        assert name in known[found[1]]


def _selector(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


@pytest.mark.parametrize("variant", VARIANTS)
def test_prometheus_answers_the_game_days_with_what_a_run_exported(
    variant: str, run_exports: dict[str, str], tmp_path: Path
) -> None:
    """Promtool evaluates each expression over the run's own samples; the states must be the run's."""
    samples = [sample for family in text_string_to_metric_families(run_exports[variant]) for sample in family.samples]
    by_name = {name: [one for one in samples if one.name == name] for name in {one.name for one in samples}}
    (outcome,) = (RunOutcome(one.labels["outcome"]) for one in by_name["gameday_run_outcome"] if one.value)
    (state,) = (one.labels["state"] for one in by_name["gameday_run_cleanliness"] if one.value)
    labels = _selector({name: samples[0].labels[name] for name in ("plan", "cluster")})
    code = next(code for code, said in _said(_titled("Cluster afterwards")).items() if said == state)
    expected = {
        "Outcome": (labels, EXIT_CODES[outcome].value),
        "Cluster afterwards": (labels, code),
        "Plans played": ("{}", 1),
        "Not passed": ("{}", int(outcome is not RunOutcome.PASSED)),
        "Left something": ("{}", int(state != "clean")),
    }
    series = [{"series": one.name + _selector(one.labels), "values": f"{one.value}"} for one in samples]
    cases = [
        {
            "expr": _filled_in(_titled(title)["targets"][0]["expr"]),
            "eval_time": "0s",
            "exp_samples": [{"labels": where, "value": value}],
        }
        for title, (where, value) in expected.items()
    ]
    write_yaml(tmp_path / "run.test.yaml", {"tests": [{"input_series": series, "promql_expr_test": cases}]})
    done = run_tool("promtool", "test", "rules", tmp_path / "run.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
