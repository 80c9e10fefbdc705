"""Write the PrometheusRule manifests, for clusters that run the Prometheus Operator, from the plain rule files."""

from __future__ import annotations

import io
from pathlib import Path

from ruamel.yaml import YAML

ALERTS = Path(__file__).resolve().parents[1] / "deploy" / "alerts"
RULES = sorted(ALERTS.glob("*.rules.yaml"))


def manifest_of(rules: Path) -> Path:
    """The manifest made from a rule file."""
    return rules.with_name(rules.name.replace(".rules.yaml", ".prometheusrule.yaml"))


def manifest(rules: Path) -> str:
    """The manifest's text; comments of the rule file stay there."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": rules.name.removesuffix(".rules.yaml"),
            "namespace": "gameday",
            "labels": {"app.kubernetes.io/name": "gpu-gameday", "app.kubernetes.io/component": "alerts"},
        },
        "spec": {"groups": yaml.load(rules.read_text(encoding="utf-8"))["groups"]},
    }
    out = io.StringIO()
    yaml.dump(document, out)
    return f"# Made from {rules.name} by `make alerts`; edit that one.\n{out.getvalue()}"


if __name__ == "__main__":
    for file in RULES:
        manifest_of(file).write_text(manifest(file), encoding="utf-8")
