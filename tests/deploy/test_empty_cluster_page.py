"""docs/empty-cluster.md: its values fit our chart, each other, and what docs/sources.md has of the rendered charts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ruamel.yaml import YAML

from gameday.cluster.profile import ClusterProfile, load_profile
from kubesim.controllers.daemonsets import daemon_tolerations, should_run
from tests.cli.accepted import accept
from tests.deploy.helm import objects, rendered
from tests.deploy.manifests import DEPLOY, ROOT, documents

PAGE = (ROOT / "docs" / "empty-cluster.md").read_text(encoding="utf-8")
SOURCES = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if re.match(r" {4,}(kubectl|helm|in-worker|\{ echo) ", line)]


def _values() -> dict[str, Any]:
    """The page's values files by name, parsed."""
    blocks = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", PAGE, re.DOTALL)
    return {name: YAML(typ="safe", pure=True).load(text) for name, text in blocks}


VALUES = _values()
RELEASES = {
    chart: (release, dict(re.findall(r"(--version|-n) (\S+)", options)))
    for release, chart, options in re.findall(r"^    helm install (\S+) (\S+)(.*)$", PAGE, re.MULTILINE)
}
"""By chart: the release's name, and its `--version` and namespace."""
STACK, _ = RELEASES["prometheus-community/kube-prometheus-stack"]


def _facts() -> list[list[str]]:
    """The rows of the table of charts: chart with version, object, what it has, where it is written."""
    section = SOURCES.partition("\n## Helm charts\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [row for row in rows[1:] if not row[0].startswith("---")]


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> ClusterProfile:
    for name, value in VALUES["gameday-values.yaml"]["profile"].items():
        monkeypatch.setenv(name, value if isinstance(value, str) else json.dumps(value))
    return load_profile()


def test_every_values_file_of_a_command_is_on_the_page() -> None:
    used = {name for line in COMMANDS for name in re.findall(r"-f (\S+\.yaml)", line)}
    assert used == VALUES.keys() | {"inhibit.yaml"}


def test_versions_are_those_that_were_rendered() -> None:
    table = dict(re.findall(r"^\| `([\w/-]+)` \| (v?\d\S*) \|", PAGE, re.MULTILINE))
    assert table == {chart: options["--version"] for chart, (_, options) in RELEASES.items() if "--version" in options}
    facts = {fact[0] for fact in _facts()}
    assert facts == {f"{chart.partition('/')[2]} {version}" for chart, version in table.items()}


@pytest.mark.parametrize("where", ["cluster.yaml", "empty-cluster.md"])
def test_servers_are_services_of_the_charts(where: str, profile: ClusterProfile) -> None:
    urls = [profile.prometheus.url, profile.alertmanager.url, profile.loki.url]
    if where == "cluster.yaml":
        (config,) = documents(DEPLOY / "cluster.yaml")
        urls = [value for name, value in config["data"].items() if name.endswith("__URL")]
    services = {(fact[1], re.search(r"port (\d+)", fact[2])) for fact in _facts() if fact[1].startswith("Service ")}
    ports = {name.removeprefix("Service ").strip("`"): found and int(found.group(1)) for name, found in services}
    assert len(urls) == 3
    for url in map(urlsplit, urls):
        name, namespace, svc = (url.hostname or "").split(".")
        assert (ports[name], svc) == (url.port, "svc")
        assert namespace in {options["-n"] for _, options in RELEASES.values()}


def test_whatever_prometheus_selects_by_label_has_the_label_of_the_stacks_release() -> None:
    selected = next(fact[2] for fact in _facts() if "selectors of rules" in fact[1])
    assert selected.startswith(f"label `release: {STACK}`")
    ours, operator = VALUES["gameday-values.yaml"], VALUES["gpu-operator.yaml"]
    wanted = {"release": STACK}
    assert ours["alerts"]["labels"] == ours["nodeHealth"]["podMonitor"]["labels"] == wanted
    assert operator["dcgmExporter"]["serviceMonitor"]["additionalLabels"] == wanted


@pytest.mark.slow
def test_our_chart_takes_the_pages_values(tmp_path: Path) -> None:
    filled_in = json.dumps(VALUES["gameday-values.yaml"]).replace("REGISTRY", "registry.example")
    (tmp_path / "values.yaml").write_text(filled_in, encoding="utf-8")
    made = objects(rendered(options=("--values", tmp_path / "values.yaml")))
    monitors = [one for one in made if one["kind"] in ("PrometheusRule", "PodMonitor")]
    assert len(monitors) == 4
    assert {one["metadata"]["labels"]["release"] for one in monitors} == {STACK}


def test_grafanas_sidecar_finds_our_dashboards() -> None:
    (kustomization,) = documents(DEPLOY / "grafana" / "kustomization.yaml")
    sidecar = next(fact[2] for fact in _facts() if fact[1] == "Grafana's sidecar")
    key, value = re.match(r'label `(\w+): "(\w+)"`', sidecar).groups()  # type: ignore[union-attr]
    assert kustomization["generatorOptions"]["labels"][key] == value


def test_the_profile_reads_what_collector_and_exporter_write(profile: ClusterProfile) -> None:
    assert "otlp" in VALUES["collector.yaml"]["config"]["exporters"]["otlphttp"]["endpoint"]
    assert profile.loki_node_label_kind == "structured_metadata"
    assert profile.prometheus_node_label == "hostname"
    assert profile.loki.tenant is None
    assert VALUES["loki.yaml"]["loki"]["auth_enabled"] is False
    endpoint = urlsplit(VALUES["collector.yaml"]["config"]["exporters"]["otlphttp"]["endpoint"])
    assert endpoint.netloc == urlsplit(profile.loki.url).netloc


def test_operands_tolerate_the_quarantine(profile: ClusterProfile) -> None:
    tolerated = {one["key"] for one in VALUES["gpu-operator.yaml"]["daemonsets"]["tolerations"]}
    assert tolerated == {*profile.quarantine_taint_keys, *profile.ordinary_taint_keys}


@pytest.mark.parametrize(("listed", "returns"), [(1, False), (2, True)], ids=["as shipped", "with the page's values"])
def test_an_operand_returns_to_a_quarantined_node_only_with_the_pages_tolerations(listed: int, returns: bool) -> None:
    spec = {"tolerations": VALUES["gpu-operator.yaml"]["daemonsets"]["tolerations"][:listed]}
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
    node = {"metadata": {"name": "n0"}, "spec": {"taints": [taint]}, "status": {}}
    starts, stays = should_run(spec, daemon_tolerations(spec), node)
    assert (starts, stays) == (returns, True)


def test_the_stack_evaluates_rules_and_scrapes_us_in_time_for_the_first_plan() -> None:
    plan = next(re.findall(r"gameday run (\S+)", line)[0] for line in COMMANDS if "gameday run" in line)
    (written,) = documents(ROOT / "plans" / f"{plan}.yaml")
    (monitor,) = documents(DEPLOY / "node-health" / "podmonitor" / "node-health.yaml")
    evaluation = VALUES["kube-prometheus-stack.yaml"]["prometheus"]["prometheusSpec"]["evaluationInterval"]
    scrape = monitor["spec"]["podMetricsEndpoints"][0]["interval"]
    (within,) = {alert["within"] for alert in written["expect"]["alerts"]}
    assert _seconds(scrape) + _seconds(evaluation) < _seconds(within)


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def test_the_command_makes_values_of_our_inhibition_rules(tmp_path: Path) -> None:
    (command,) = [line for line in COMMANDS if line.startswith("{ echo")]
    (tmp_path / "gpu-gameday").symlink_to(ROOT)
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True)
    (made,) = documents(tmp_path / "inhibit.yaml")
    (ours,) = documents(DEPLOY / "alerts" / "alertmanager-inhibit.yaml")
    assert made == {"alertmanager": {"config": ours}}
    assert len(ours["inhibit_rules"]) > 20


def test_prometheus_serves_the_runbooks_where_the_links_of_the_alerts_lead() -> None:
    spec = VALUES["kube-prometheus-stack.yaml"]["prometheus"]["prometheusSpec"]
    (assets,), (volume,), (mount,) = spec["additionalArgs"], spec["volumes"], spec["volumeMounts"]
    made = next(number for number, line in enumerate(COMMANDS) if "create configmap" in line)
    name, folder = re.findall(r"configmap (\S+) --from-file=gpu-gameday/(\S+)", COMMANDS[made])[0]
    assert f"helm install {STACK}" in "".join(COMMANDS[made:])
    assert (volume["configMap"]["name"], volume["name"], assets["name"]) == (name, mount["name"], "web.user-assets")
    served = mount["mountPath"].removeprefix(assets["value"])
    (rules,) = documents(DEPLOY / "alerts" / "gpu-faults.rules.yaml")
    links = {
        rule["annotations"]["runbook_url"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule
    }
    prefix = f"{{{{ $externalURL }}}}/user{served}/"
    assert links and all((ROOT / folder / link.removeprefix(prefix)).is_file() for link in links)


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("in-worker gameday ")])
def test_the_command_line_takes_what_the_page_shows(line: str) -> None:
    assert accept(line.removeprefix("in-worker "))
